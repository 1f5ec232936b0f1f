"""The switch for OpenCV beside OpenCV."""

import sys

import cv2 as original
import numpy as np
import pytest

from manymatch.compat import cv2 as ours
from tests.support import matched_points
from tests.support.matched_points import K, alike, direction_deg, matched, turn_deg, with_candidates

LENS = np.array([-0.2, 0.05, 1e-3, -5e-4])


def check(result, reference, rows):
    """Shapes and types of matrix and mask of both."""
    for value, expected in zip(result, reference, strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        assert value.flags.writeable
    assert result[1].shape == (rows, 1)
    assert set(np.unique(result[1])) <= {0, 1}


def params(**values):
    given = original.UsacParams()
    for name, value in values.items():
        setattr(given, name, value)
    return given


FORMS = {
    "matrix": ((K, original.RANSAC, 0.999, 1.0), {}),
    "matrix, magsac": ((K, original.USAC_MAGSAC, 0.999, 1.0, 2000), {}),
    "matrix by name": ((), {"cameraMatrix": K, "method": original.RANSAC, "threshold": 1.0}),
    "matrix alone": ((K,), {}),
    "focal": ((795.0, (320.0, 240.0), original.RANSAC, 0.999, 1.0), {}),
    "focal by name": ((), {"focal": 795.0, "pp": (320, 240)}),
    "two matrices": ((K, None, K, None), {"method": original.USAC_MAGSAC, "threshold": 1.0}),
    "two matrices and lenses": ((K, np.zeros(5), K, np.zeros(8), original.RANSAC, 0.99, 1.0), {}),
    "parameters": ((K, K, None, None, params(threshold=1.0)), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_essential_matrix(form):
    data = matched()
    args, kwargs = FORMS[form]
    result = ours.findEssentialMat(data.points0, data.points1, *args, **kwargs)
    if form == "two matrices and lenses":
        kwargs = {}
    reference = original.findEssentialMat(data.points0, data.points1, *args, **kwargs)
    check(result, reference, len(data.points0))
    assert np.linalg.norm(result[0]) == pytest.approx(1)
    count, R, t, mask = ours.recoverPose(result[0], data.points0, data.points1, K, mask=result[1])
    assert turn_deg(R, data.R) < 0.4
    assert direction_deg(t, data.t) < 2.0
    assert count == (mask > 0).sum() > 80


def bent(points):
    plane = (np.c_[points, np.ones(len(points))] @ np.linalg.inv(K).T)[:, None]
    return original.projectPoints(plane, np.zeros(3), np.zeros(3), K, LENS)[0][:, 0]


def test_distortion_is_removed():
    data = matched(noise=0.1)
    first, second = bent(data.points0), bent(data.points1)
    reference = original.recoverPose(first, second, K, LENS, K, LENS)
    for lens in (LENS, [*LENS, 0.0], [*LENS, 0.0, 0.0, 0.0, 0.0], np.pad(LENS, (0, 8))):
        lens = np.array(lens)  # noqa: PLW2901
        result = ours.recoverPose(first, second, K, lens, K, lens, method=original.RANSAC)
        assert list(map(np.shape, result)) == list(map(np.shape, reference))
        count, E, R, t, mask = result
        assert turn_deg(R, data.R) < 0.1
        assert direction_deg(t, data.t) < 0.5
        assert count == mask.sum() > 85
    straight, _ = ours.findEssentialMat(first, second, K, None, K, None)
    assert not alike(straight, E, 1e-3)
    _, rvec, *_ = ours.solvePnPRansac(data.world, second, K, LENS, reprojectionError=3.0)
    assert turn_deg(original.Rodrigues(rvec)[0], data.R) < 0.1


@pytest.mark.parametrize(
    "arguments",
    [
        (original.RANSAC, 3.0),
        (original.USAC_MAGSAC, 3.0, None, 5000, 0.999),
        (original.RHO, 3.0),
        (original.LMEDS,),
        (params(threshold=3.0, maxIterations=2000, randomGeneratorState=5),),
    ],
)
def test_homography(arguments):
    data = matched(plane=True)
    result = ours.findHomography(data.points0, data.points1, *arguments)
    reference = original.findHomography(data.points0, data.points1, *arguments)
    check(result, reference, len(data.points0))
    assert result[0][2, 2] == 1
    assert matched_points.map_difference_px(result[0], reference[0], data.points0) < 1.5
    assert np.mean(result[1] == reference[1]) > 0.9


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((None, original.RANSAC, 2.0, 3000, 0.999, 10), {}),
        ((), {"method": original.LMEDS}),
        ((params(threshold=2.0),), {}),
    ],
)
def test_affine_map(args, kwargs):
    points = matched_points.affine_points()
    result = ours.estimateAffine2D(*points, *args, **kwargs)
    reference = original.estimateAffine2D(*points, *args, **kwargs)
    check(result, reference, 80)
    assert np.mean(result[1] == reference[1]) > 0.9
    first, second, edges, _ = with_candidates(*points)
    listed = ours.estimateAffine2D(first, second, *args, **kwargs)
    given = ours.estimateAffine2D(*points, *args, **kwargs, edges=edges)
    assert listed[1].shape == given[1].shape == (len(edges), 1)
    for A, _ in (result, reference, listed, given):
        assert matched_points.affine_error_px(A) < 0.5
    assert ours.estimateAffine2D(points[0][:2], points[1][:2])[0] is None
    with pytest.raises(ValueError, match=r"the arguments must be from_, to, .* got no to"):
        ours.estimateAffine2D(points[0])


def test_fits_to_all_points_are_the_originals():
    plane, data = matched(40, 40, plane=True), matched(40, 40)
    result, reference = (m.findHomography(plane.points0, plane.points1) for m in (ours, original))
    assert np.array_equal(result[0], reference[0])
    for flag, count in ((original.FM_8POINT, 40), (original.FM_7POINT, 7)):
        points = data.points0[:count], data.points1[:count]
        fit, expected = (m.findFundamentalMat(*points, flag)[0] for m in (ours, original))
        assert np.array_equal(fit, expected)
        with pytest.raises(ValueError, match="method must be a robust one"):
            ours.findFundamentalMat(*points, flag, edges=[[0, 0]])
    first, second, edges, _ = with_candidates(plane.points0, plane.points1)
    for points, more in (((plane.points0, plane.points1), {"edges": edges}), ((first, second), {})):
        with pytest.raises(ValueError, match="method must be a robust one"):
            ours.findHomography(*points, **more)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((original.FM_RANSAC, 2.0), {}),
        ((original.USAC_MAGSAC, 2.0, 0.999, 5000), {}),
        ((original.USAC_MAGSAC, 2.0, 0.999, 5000, None), {}),
        ((original.FM_RANSAC, 2.0, 0.999, None), {}),
        ((), {"method": original.FM_LMEDS}),
        ((), {"method": 8, "ransacReprojThreshold": 2.0, "confidence": 0.99, "maxIters": 900}),
        ((params(threshold=2.0),), {}),
    ],
)
def test_fundamental_matrix(args, kwargs):
    data = matched()
    result = ours.findFundamentalMat(data.points0, data.points1, *args, **kwargs)
    reference = original.findFundamentalMat(data.points0, data.points1, *args, **kwargs)
    check(result, reference, len(data.points0))
    assert result[0][2, 2] == 1
    assert matched_points.epipolar_distance(result[0], data) < 0.25
    *_, edges, _ = with_candidates(data.points0, data.points1)
    F, mask = ours.findFundamentalMat(data.points0, data.points1, *args, **kwargs, edges=edges)
    assert matched_points.epipolar_distance(F, data) < 0.4
    assert mask.shape == (len(edges), 1)


PNP = {
    "plain": ((), {}),
    "settings": ((None, None, False, 500, 3.0, 0.999), {}),
    "by name": ((), {"reprojectionError": 3.0, "flags": original.SOLVEPNP_EPNP}),
    "parameters": ((), {"params": params(threshold=3.0)}),
}


@pytest.mark.parametrize("form", PNP)
def test_absolute_pose(form):
    data = matched()
    args, kwargs = PNP[form]
    arguments = data.world, data.points1, K, None
    result = ours.solvePnPRansac(*arguments, *args, **kwargs)
    reference = original.solvePnPRansac(*arguments, *args, **kwargs)
    assert [type(value) for value in result] == [type(value) for value in reference]
    assert result[0] is True
    for value, expected in zip(result[1:-1], reference[1:-1], strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        assert np.abs(value - expected).max() < 0.05
    assert result[-1].dtype == reference[-1].dtype
    assert result[-1].shape[1:] == reference[-1].shape[1:] == (1,)
    assert len(np.setxor1d(result[-1], reference[-1])) < 6
    assert turn_deg(original.Rodrigues(result[-3])[0], data.R) < 0.1


def test_absolute_pose_of_candidates():
    data = matched()
    pixels, world, edges, own = with_candidates(data.points1, data.world)
    settings = {"cameraMatrix": K, "distCoeffs": None, "reprojectionError": 3.0}
    listed = ours.solvePnPRansac(world, pixels, **settings)
    given = ours.solvePnPRansac(data.world, data.points1, **settings, edges=edges[:, ::-1])
    right = np.flatnonzero(own & data.mask[edges[:, 0]])
    for ok, rvec, tvec, inliers in (listed, given):
        assert ok
        assert turn_deg(original.Rodrigues(rvec)[0], data.R) < 0.1
        assert np.abs(tvec[:, 0] - data.t).max() < 0.02
        assert len(np.setxor1d(inliers, right)) < 8
    assert np.array_equal(listed[3], given[3])


def test_lists_of_candidates_and_edges():
    data = matched()
    first, second, edges, own = with_candidates(data.points0, data.points1)
    right = own & data.mask[edges[:, 0]]
    listed = ours.findEssentialMat(first, second, K)
    given = ours.findEssentialMat(data.points0, data.points1, K, edges=edges)
    assert alike(listed[0], given[0], 0.02)
    for E, mask in (listed, given):
        assert mask.shape == (len(edges), 1)
        assert mask[right].mean() > 0.95
        pose = ours.recoverPose(E, data.points0, data.points1, K, mask=mask, edges=edges)
        assert turn_deg(pose[1], data.R) < 0.4
        again = original.recoverPose(E, first, second, K, mask=mask)
        assert np.array_equal(pose[1], again[1])
    _, _, R, _, mask = ours.recoverPose(data.points0, data.points1, K, None, K, None, edges=edges)
    assert turn_deg(R, data.R) < 0.3
    assert mask.shape == (len(edges), 1)


def test_nothing_found():
    few = matched(3, 3)
    assert ours.findEssentialMat(few.points0, few.points1, K) == (None, None)
    assert ours.findFundamentalMat(few.points0, few.points1) == (None, None)
    H, mask = ours.findHomography(few.points0, few.points1, original.RANSAC)
    assert H is None
    assert mask.tolist() == [[0], [0], [0]]
    result = ours.recoverPose(few.points0, few.points1, K, None, K, None)
    assert result[:4] == (0, None, None, None)
    ok, rvec, tvec, inliers = ours.solvePnPRansac(few.world[:2], few.points1[:2], K, None)
    assert (ok, inliers, rvec.any(), tvec.any()) == (False, None, False, False)
    line = np.c_[np.arange(30.0), np.arange(30.0)]
    H, mask = ours.findHomography(line, line + 1, original.RANSAC)
    reference = original.findHomography(line, line + 1, original.RANSAC)
    assert H is reference[0] is None
    assert mask.shape == reference[1].shape


def test_other_names_are_the_originals(monkeypatch):
    functions = {
        *("findEssentialMat", "findFundamentalMat", "findHomography", "recoverPose"),
        *("estimateAffine2D", "solvePnPRansac"),
    }
    assert matched_points.only_these_are_ours(ours, original) == functions
    with pytest.raises(AttributeError, match="imreed"):
        ours.imreed  # noqa: B018
    monkeypatch.setitem(sys.modules, "cv2", None)
    data = matched()
    assert ours.findEssentialMat(data.points0, data.points1, K)[0] is not None
    with pytest.raises(AttributeError, match=r"pip install \"manymatch\[images\]\""):
        ours.imread  # noqa: B018


BAD = [
    ({"points2": np.zeros((3, 2))}, "points2 must hold 120 points"),
    ({"points1": np.full((120, 2), np.inf)}, "points1 must hold finite numbers"),
    ({"cameraMatrix": np.eye(2)}, "cameraMatrix must be"),
    ({"threshold": -1.0}, "^threshold must be"),
    ({"prob": 1.5}, "^prob must be"),
    ({"maxIters": 0}, "^maxIters must be"),
    ({"focal": 3.0}, "the arguments must be cameraMatrix, .* got focal as well"),
    ({"method": "RANSAC"}, "method must be one of OpenCV's flags"),
    ({"edges": [[0, 500]]}, "edges must hold indices"),
]
BAD_FORMS = [
    ((K, np.zeros(3), K, None), "distCoeffs must be 4, 5, 8, 12 or 14 numbers"),
    ((K, np.ones(12), K, None), "distCoeffs must be .* after the eighth are zero"),
    ((K, K, None, None, params(threshold=-1.0)), "^params.threshold must be"),
    ((-1.0,), "focal must be"),
    ((800.0, (1, 2, 3)), "pp must be two numbers"),
]
BAD_PNP = [
    ({"objectPoints": np.zeros((3, 2))}, "objectPoints must be an .N, 3. array"),
    ({"imagePoints": np.zeros((3, 2))}, "objectPoints must hold 3 points, one for each"),
    ({"cameraMatrix": np.zeros((3, 3))}, "cameraMatrix must"),
    ({"iterationsCount": 0}, r"^iterationsCount must be"),
    ({"reprojectionError": -1.0}, r"^reprojectionError must be"),
    ({"edges": 3}, "edges must be an .E, 2. array of indices or None"),
    ({"edges": [[0, 500]]}, "edges must hold indices"),
    ({"thresh": 3}, "the arguments must be rvec, .* got thresh as well"),
]


@pytest.mark.parametrize(("given", "message"), [*BAD, *BAD_FORMS])
def test_bad_input_is_one_sentence(given, message):
    data = matched()
    points = {"points1": data.points0, "points2": data.points1}
    args, kwargs = given, {}
    if isinstance(given, dict):
        args, kwargs = (), {"cameraMatrix": K, **given}
        points |= {name: kwargs.pop(name) for name in points if name in kwargs}
    with pytest.raises(ValueError, match=message) as error:
        ours.findEssentialMat(*points.values(), *args, **kwargs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("change", "message"), BAD_PNP)
def test_bad_input_for_an_absolute_pose_is_one_sentence(change, message):
    data = matched()
    arguments = {"objectPoints": data.world, "imagePoints": data.points1, "cameraMatrix": K}
    with pytest.raises(ValueError, match=message):
        ours.solvePnPRansac(**{**arguments, "distCoeffs": None, **change})

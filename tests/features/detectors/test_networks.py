"""Detectors on synthetic images: geometry, number, border, suppression, sizes, repeatability.

Weights are real where a package on this machine holds them, and random for SuperPoint, which no
package may hold.
"""

import functools

import numpy as np
import pytest

from manymatch.features.device import Device
from manymatch.features.registry import load_detector, models
from manymatch.features.weight_files import WeightsError
from manymatch.features.weights import locate
from tests.support.data_folder import data_folder
from tests.support.synthetic_images import texture

cv2 = pytest.importorskip("cv2")

TRAINED = ("xfeat", "aliked-t16")
NETWORKS = (*TRAINED, "superpoint")
CLASSIC = ("sift", "orb")
ALL = (*CLASSIC, *NETWORKS)


@functools.cache
def detector(name, **settings):
    if name in TRAINED and locate(models()[name]) is None:
        pytest.skip(f"no weights of {name} here: manymatch models get {name}")
    if name == "superpoint":
        pytest.importorskip("transformers")
        # The threshold below what 65 equal places have.
        settings = {"weights": "random", "threshold": 0.01, **settings}
    return load_detector(name, **settings)


def scene(width, height, seed=0):
    """Overlapping patches of different brightness: corners at all angles."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), 128, np.uint8)
    for _ in range(width * height // 350):
        corners = rng.uniform(-20, 20, (4, 2)) + rng.uniform(0, (width, height), 2)
        cv2.fillPoly(image, [corners.astype(np.int32)], rng.integers(0, 256, 3).tolist())
    return cv2.GaussianBlur(image, (0, 0), 0.8)


@functools.cache
def found(name):
    return detector(name).detect(scene(176, 144))


@pytest.mark.parametrize("name", ALL)
def test_keypoints_have_shapes_types_and_order(name):
    keypoints = found(name)
    count = len(keypoints)
    assert 30 < count <= 2048
    assert keypoints.points.shape == (count, 2)
    assert keypoints.points.dtype == np.float64
    assert keypoints.scores.shape == (count,)
    assert keypoints.scores.dtype == np.float32
    assert (np.diff(keypoints.scores) <= 0).all()
    assert keypoints.descriptors.shape == (count, detector(name).dim)
    if name == "orb":
        assert keypoints.descriptors.dtype == np.uint8
    else:
        assert keypoints.descriptors.dtype == np.float32
        assert np.allclose(np.linalg.norm(keypoints.descriptors, axis=1), 1, atol=1e-5)
    assert (keypoints.points >= 4).all()
    assert (keypoints.points <= (176 - 5, 144 - 5)).all()


@pytest.mark.parametrize("name", ALL)
def test_the_best_are_kept_and_nothing_else_changes(name):
    few = detector(name, max_keypoints=17).detect(scene(176, 144))
    whole = found(name)
    assert len(few) == 17
    assert np.array_equal(few.points, whole.points[:17])
    assert np.array_equal(few.scores, whole.scores[:17])
    assert np.allclose(few.descriptors, whole.descriptors[:17], atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_two_within_the_radius(name):
    radius = 6
    points = detector(name, nms_radius=radius, border=0).detect(scene(176, 144)).points
    if name.startswith("aliked"):
        # Peaks are refined within two pixels afterwards.
        radius = 2
    assert len(points) > 20
    apart = np.abs(points[:, None] - points).max(axis=2)
    assert (apart > radius).sum() == len(points) * (len(points) - 1)


@pytest.mark.parametrize("name", ALL)
def test_the_same_image_gives_the_same_numbers_also_as_a_view(name):
    image, whole = scene(176, 144), found(name)
    for view in (image, np.ascontiguousarray(image[:, ::-1])[:, ::-1]):
        again = detector(name).detect(view)
        for part in ("points", "scores", "descriptors"):
            assert np.array_equal(getattr(again, part), getattr(whole, part))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 40), (15, 15), (33, 17), (50, 91)])
def test_strange_sizes(name, size):
    width, height = size
    for image in (scene(width, height), np.zeros((height, width, 3), np.uint8)):
        keypoints = detector(name).detect(image)
        assert keypoints.descriptors.shape == (len(keypoints), detector(name).dim)
        assert np.isfinite(keypoints.descriptors).all()
        assert (keypoints.points >= 4).all()
        assert (keypoints.points <= (width - 5, height - 5)).all()


@pytest.mark.parametrize("name", ["sift", *NETWORKS])
def test_keypoints_move_with_the_image(name):
    """On an even ground, so that the means by which networks normalise stay the same."""
    patch = scene(96, 80, seed=4)
    points = []
    for x, y in ((64, 64), (96, 128)):
        canvas = np.full((288, 256, 3), 128, np.uint8)
        canvas[y : y + 80, x : x + 96] = patch
        shifted = detector(name, max_keypoints=200).detect(canvas).points - (x, y)
        inner = ((shifted > 8) & (shifted < (88, 72))).all(axis=1)
        points.append(shifted[inner])
    assert len(points[0]) > 20
    distance = np.abs(points[0][:, None] - points[1][None]).max(axis=2)
    partner, near = distance.argmin(axis=1), distance.min(axis=1) < 2
    assert near.mean() > 0.6
    moved = points[1][partner[near]] - points[0][near]
    # ALIKED enlarges its maps from edge to edge, so the place in the image makes a difference.
    assert np.abs(moved.mean(axis=0)).max() < (0.3 if name.startswith("aliked") else 0.1)
    if not name.startswith("aliked"):
        assert np.mean(np.abs(moved).max(axis=1) < 0.05) > 0.8


@pytest.mark.parametrize("name", ["sift", *TRAINED])
def test_corners_are_found_again_in_a_warped_image(name):
    image = scene(240, 200, seed=2)
    homography = np.array([[0.96, -0.08, 14.0], [0.05, 1.04, -6.0], [1e-4, -1e-4, 1.0]])
    warped = cv2.warpPerspective(image, homography, (240, 200), flags=cv2.INTER_CUBIC)
    first, second = (detector(name, max_keypoints=300).detect(view) for view in (image, warped))
    mapped = cv2.perspectiveTransform(first.points[None], homography)[0]
    visible = ((mapped > 10) & (mapped < (229, 189))).all(axis=1)
    distance = np.linalg.norm(mapped[:, None] - second.points[None], axis=2)
    repeated = distance.min(axis=1)[visible] < 3
    assert repeated.mean() > 0.4
    similarity = first.descriptors @ second.descriptors.T
    partner = similarity.argmax(axis=1)
    mutual = similarity.argmax(axis=0)[partner] == np.arange(len(first))
    error = (second.points[partner] - mapped)[mutual & visible]
    near = np.linalg.norm(error, axis=1) < 3
    assert near.mean() > 0.5
    assert np.abs(np.median(error[near], axis=0)).max() < 0.5


def test_sift_has_no_offset():
    """Without the precise enlargement of OpenCV every position would be 0.25 px too large."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:96, 0:96]
    offsets = []
    for sigma in (2, 3, 5):
        for _ in range(4):
            centre = rng.uniform(44, 52, 2)
            blob = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * sigma**2))
            grey = np.rint(40 + 180 * blob).astype(np.uint8)
            points = detector("sift").detect(np.repeat(grey[:, :, None], 3, axis=2)).points
            offsets.append(points[np.linalg.norm(points - centre, axis=1).argmin()] - centre)
    assert np.abs(np.mean(offsets, axis=0)).max() < 0.03


@pytest.mark.parametrize("axis", [0, 1])
def test_orb_has_no_offset_on_any_level(axis):
    """Keypoints of a mirrored image are the mirrored ones; OpenCV's own are up to a pixel off."""
    image = scene(333, 271, seed=3)
    whole = detector("orb", max_keypoints=100_000, border=0)
    points = whole.detect(image).points
    mirrored = whole.detect(np.ascontiguousarray(np.flip(image, 1 - axis))).points
    mirrored[:, axis] = image.shape[1 - axis] - 1 - mirrored[:, axis]
    distance = np.abs(points[:, None] - mirrored[None]).max(axis=2).min(axis=1)
    assert len(points) > 300
    assert np.mean(distance < 1e-3) > 0.8


def test_sift_orientations_are_one_keypoint_with_further_descriptors():
    keypoints = found("sift")
    assert len(np.unique(keypoints.points, axis=0)) == len(keypoints)
    grey = cv2.cvtColor(scene(176, 144), cv2.COLOR_RGB2GRAY)
    raw, histograms = cv2.SIFT_create(
        contrastThreshold=0.02, enable_precise_upscale=True
    ).detectAndCompute(grey, None)
    places = np.array([k.pt for k in raw])
    inside = ((places >= 4) & (places <= (171, 139))).all(axis=1)
    assert len(keypoints) == len(np.unique(places[inside], axis=0))
    assert len(keypoints) + len(keypoints.further) == inside.sum()
    assert len(keypoints.further) > 5
    shares = histograms / histograms.sum(axis=1, keepdims=True)
    for row, owner in zip(keypoints.further, keypoints.owners, strict=True):
        here = (places == keypoints.points[owner]).all(axis=1)
        distance = np.abs(np.sqrt(shares[here]) - row).max(axis=1)
        assert distance.min() < 1e-6
        # Another orientation than the keypoint's own.
        assert np.abs(keypoints.descriptors[owner] - row).max() > 1e-3


@pytest.mark.data
def test_sift_finds_the_keypoints_of_the_reference_graphs():
    folder = data_folder()
    if folder is None:
        pytest.skip("no reference data here, see MANYMATCH_DATA")
    graph = np.load(folder / "graphs" / "sift" / "kitti_vo" / "0000.npz")
    image = cv2.imread(str(folder / "posed_pairs" / "kitti_vo" / str(graph["name0"])))
    small = cv2.resize(image, graph["size0"].tolist(), interpolation=cv2.INTER_AREA)
    keypoints = load_detector("sift", border=0).detect(small[:, :, ::-1].copy())
    assert np.array_equal(keypoints.points.astype(np.float32), graph["points0"])


def to_tensor(image):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255


def assert_same(keypoints, points, descriptors, share=1.0):
    """All keypoints are among the twin's, with the same descriptors."""
    distance = np.linalg.norm(keypoints.points[:, None] - points[None], axis=2)
    partner = distance.argmin(axis=1)
    assert distance.min(axis=1).max() < 1e-3
    assert np.abs(descriptors[partner] - keypoints.descriptors).max() < 1e-4
    assert len(keypoints) >= share * len(points)


def published_aliked(name):
    """The network in the code of kornia."""
    torch, kornia = pytest.importorskip("torch"), pytest.importorskip("kornia.feature")
    network = kornia.ALIKED(name).eval().requires_grad_(requires_grad=False)
    state = torch.load(locate(models()[name]), weights_only=True)
    network.load_state_dict(state | {"dkd.hw_grid": network.dkd.hw_grid})
    return network


def published_xfeat():
    """The network in the code of kornia."""
    torch, kornia = pytest.importorskip("torch"), pytest.importorskip("kornia.feature")
    network = kornia.XFeat().net.eval()
    network.load_state_dict(torch.load(locate(models()["xfeat"]), weights_only=True))
    return network


@pytest.mark.parametrize("name", ["aliked-t16", "aliked-n16", "aliked-n32"])
@pytest.mark.parametrize("size", [(160, 128), (181, 131)])
def test_aliked_is_the_network_of_kornia(name, size):
    ours = detector(name, border=4)
    image = scene(*size)
    (twin,) = published_aliked(name)(to_tensor(image))
    assert_same(ours.detect(image), twin.keypoints.numpy(), twin.descriptors.numpy(), 0.8)


def test_xfeat_is_the_network_of_kornia():
    ours = detector("xfeat", border=4)
    kornia = pytest.importorskip("kornia.feature")
    whole = kornia.XFeat(top_k=4096).eval()
    whole.net = published_xfeat()
    image = scene(128, 96)
    (twin,) = whole.detectAndCompute(to_tensor(image))
    assert_same(ours.detect(image), twin["keypoints"].numpy(), twin["descriptors"].numpy(), 0.8)


def test_superpoint_is_the_network_of_transformers():
    ours = detector("superpoint")
    transformers = pytest.importorskip("transformers")
    settings = transformers.SuperPointConfig(keypoint_threshold=0.01)
    whole = transformers.SuperPointForKeypointDetection(settings).eval()
    whole.load_state_dict(ours.module.state_dict())
    image = scene(104, 88)
    # That network takes one channel for grey.
    grey = to_tensor(image) * to_tensor(np.ones_like(image)).new_tensor(
        (0.299, 0.587, 0.114)
    ).reshape(1, 3, 1, 1)
    grey = grey.sum(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    output = whole(grey)
    points = output.keypoints[0].detach().numpy() * (104, 88)
    # Its border is missing at the right and at the bottom.
    inner = ((points >= 4 - 1e-3) & (points <= (99.001, 83.001))).all(axis=1)
    keypoints = ours.detect(image)
    assert len(keypoints) == inner.sum() > 30
    assert_same(keypoints, points[inner], output.descriptors[0].detach().numpy()[inner])


def kornia_maps(network, pixels):
    """Scores, reliability and features of XFeat, of pixels whose sizes are multiples of 32."""
    functional = pytest.importorskip("torch").nn.functional
    features, logits, reliability = network(pixels)
    scores = functional.pixel_shuffle(logits.softmax(dim=1)[:, :-1], 8)
    return scores, reliability, functional.normalize(features, dim=1)


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("size", [(128, 96), (61, 75), (33, 200), (640, 480)])
def test_xfeat_differs_from_the_published_network_by_rounding(size, device):
    """The published network in float64 is the reference; in float32 it has errors of that size."""
    torch = pytest.importorskip("torch")
    if device == "cpu":
        pytest.importorskip("onnxruntime")
    ours, image = detector("xfeat"), scene(*size)
    image = np.pad(image, ((0, -size[1] % 32), (0, -size[0] % 32), (0, 0)), "edge")
    names = [ours.values[name] for name in ("scores", "reliability", "features")]
    ours.module.to(Device(device))
    try:
        found = ours.module.run(names, {"image": image[None]})
    finally:
        ours.module.to(Device("cpu"))
    network = published_xfeat()
    with torch.inference_mode():
        single = kornia_maps(network, to_tensor(image))
        exact = kornia_maps(network.double(), to_tensor(image).double())
    for own, apart, reference in zip(found, single, exact, strict=True):
        errors = [float((torch.as_tensor(m) - reference).abs().max()) for m in (own, apart)]
        assert 0 < errors[0] < max(3 * errors[1], 2e-6)


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("size", [(128, 96), (61, 75), (320, 240)])
def test_aliked_differs_from_the_published_network_by_rounding(size, device):
    torch = pytest.importorskip("torch")
    ours, image, name = detector("aliked-t16"), scene(*size), "aliked-t16"
    ours.module.to(Device(device))
    try:
        scores, levels = ours.maps(image)
    finally:
        ours.module.to(Device("cpu"))
    network = published_aliked(name)
    with torch.inference_mode():
        single = network.extract_dense_map(to_tensor(image))
        exact = network.double().extract_dense_map(to_tensor(image).double())
    pixels = np.random.default_rng(0).integers(0, size, (200, 2))
    found = ours.look(levels, pixels.astype(float)), scores
    for k, own in enumerate(found):
        apart, reference = (
            maps[k][0, 0] if k else maps[k][0, :, pixels[:, 1], pixels[:, 0]].T
            for maps in (single, exact)
        )
        errors = [float((torch.as_tensor(m) - reference).abs().max()) for m in (own, apart)]
        assert 0 < errors[0] < max(3 * errors[1], 5e-6)


@pytest.mark.parametrize("name", ["xfeat", "aliked-t16"])
def test_keypoints_of_both_ways_are_the_same(name):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    ours, image = detector(name, max_keypoints=10_000), scene(301, 223)
    by_onnx = ours.detect(image)
    ours.module.to(Device("torch"))
    try:
        by_torch = ours.detect(image)
    finally:
        ours.module.to(Device("cpu"))
    assert_same(by_onnx, by_torch.points, by_torch.descriptors)
    assert len(by_onnx) == len(by_torch) > 100


@pytest.mark.parametrize("name", ALL)
def test_settings_list_every_choice(name):
    base = detector(name).settings()
    assert base["name"] == name
    for setting, value in (
        ("max_keypoints", 99),
        *([] if name in CLASSIC else [("nms_radius", 7)]),
        ("border", 9),
        ("threshold", 0.3),
    ):
        changed = detector(name, **{setting: value}).settings()
        assert changed == {**base, setting: value} != base


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_frozen_and_missing_ones_are_named(name, tmp_path):
    module = detector(name).module
    assert not module.training
    assert not any(p.requires_grad for p in getattr(module, "parameters", list)())
    with pytest.raises(WeightsError, match=r"^weights must be an existing file or folder"):
        load_detector(name, weights=str(tmp_path / "none.pth"))


def test_weights_of_another_network_are_refused():
    detector("xfeat"), detector("aliked-t16")
    with pytest.raises(WeightsError, match=r"^weights must be those of 'aliked-n16'"):
        load_detector("aliked", weights=str(locate(models()["aliked-t16"])))


@pytest.mark.parametrize("most", [1, 7, 60, 5000])
def test_the_best_of_sift_are_those_of_all(most, monkeypatch):
    """Describing some keypoints only gives the numbers that describing all gives."""
    image = texture(5, 260, 200)
    few = load_detector("sift", max_keypoints=most).detect(image)
    whole = load_detector("sift", max_keypoints=100_000)
    monkeypatch.setattr("manymatch.features.detectors.classic._SPARE", ())
    all_of_them = whole.detect(image)
    count = min(most, len(all_of_them))
    assert len(few) == count
    kept = all_of_them.take(np.arange(count))
    for name in ("points", "scores", "descriptors", "further", "owners"):
        np.testing.assert_array_equal(getattr(few, name), getattr(kept, name))

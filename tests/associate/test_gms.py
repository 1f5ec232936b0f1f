"""The GMS filter: examples that can be worked out by hand, refusals, and its quadratic twin."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch.associate.gms import at_working_size
from manymatch.geometry.camera import working_pixel
from manymatch_lab.datasets.synthetic import CONFIGS, make_scene
from tests.oracles.gms import gms
from tests.oracles.problems import unique_edges

SIZE = (100, 100)
PLAIN = {"scales": False, "rotations": False}


def graph_of(pairs):
    """A one-to-one graph of pairs ((x0, y0), (x1, y1))."""
    points0, points1 = (np.array([pair[k] for pair in pairs], dtype=float) for k in range(2))
    return manymatch.AssociationGraph(points0, points1, [(i, i) for i in range(len(pairs))])


def block(turn=0, zoom=1.0):
    """Two points in each of 10 x 10 cells of ten pixels, moved about the centre of the image."""
    x, y = np.meshgrid(np.arange(10) * 10.0 - 45.0, np.arange(10) * 10.0 - 45.0)
    left = np.concatenate(
        [np.column_stack([x.ravel() + d, y.ravel() + d / 2]) for d in (-2.0, 2.0)]
    )
    c, s = zoom * math.cos(turn * math.pi / 4), zoom * math.sin(turn * math.pi / 4)
    # Image axes point right and down: this turns counter-clockwise as seen.
    right = left @ np.array([[c, -s], [s, c]])
    edges = [(i, i) for i in range(len(left))]
    return manymatch.AssociationGraph(left + 50.0, right + 50.0, edges)


@pytest.mark.parametrize("turn", range(8))
def test_rotation_counts_steps_counter_clockwise(turn):
    graph = block(turn)
    result = manymatch.gms_filter(graph, SIZE, SIZE, 4.0, 10, scales=False)
    assert result.rotation == turn
    upright = manymatch.gms_filter(graph, SIZE, SIZE, 4.0, 10, scales=False, rotations=False)
    assert upright.num_kept < result.num_kept or turn == 0


def test_scale_is_that_of_the_right_grid():
    far = block(zoom=0.5)
    near = manymatch.AssociationGraph(far.points1, far.points0, far.edges)
    # So strict that only cells pass all of whose neighbours agree.
    for graph, threshold, scale in ((block(), 12.0, 1.0), (far, 12.0, 2.0), (near, 20.0, 0.5)):
        result = manymatch.gms_filter(graph, SIZE, SIZE, threshold, 10, rotations=False, crop=False)
        assert result.num_kept > 0
        assert result.scale == scale


def test_nothing_kept_has_no_setting():
    for count in (0, 3):
        graph = manymatch.AssociationGraph(np.zeros((count, 2)), np.zeros((count, 2)), [])
        result = manymatch.gms_filter(graph, SIZE, SIZE)
        assert (result.mask.shape, result.mask.dtype) == ((0,), bool)
        assert (result.num_kept, result.scale, result.rotation) == (0, None, None)
    rng = np.random.default_rng(0)
    points = rng.uniform(0.0, 100.0, size=(2, 60, 2))
    graph = manymatch.AssociationGraph(*points, [(i, i) for i in range(60)])
    result = manymatch.gms_filter(graph, SIZE, SIZE, 1e6, integer_mean=False)
    assert (result.num_kept, result.scale, result.rotation) == (0, None, None)
    assert not result.mask.any()
    with pytest.raises(ValueError, match="read-only"):
        result.mask[0] = True


def test_threads_do_not_disturb_each_other():
    graphs = [block(turn) for turn in range(8)] * 3
    alone = [manymatch.gms_filter(graph, SIZE, SIZE, 4.0, 10).mask for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda g: manymatch.gms_filter(g, SIZE, SIZE, 4.0, 10), graphs))
    for mask, result in zip(alone, together, strict=True):
        np.testing.assert_array_equal(result.mask, mask)


SIZES = r"must be two positive finite numbers \(width, height\)"
BAD = [
    (
        {"graph": [[0, 0]]},
        r"graph must be an AssociationGraph or what candidates\(\) returns, got a",
    ),
    (
        {"graph": graph_of([((1e300, 0.0), (0.0, 0.0))])},
        r"graph.points0 must hold pixels within 1e",
    ),
    ({"size0": 100}, f"size0 {SIZES}, got 100"),
    *(({"size0": bad}, f"size0 {SIZES}") for bad in ((1, 2, 3), (math.inf, 10), ("a", "b"))),
    ({"size1": (100, 0)}, rf"size1 {SIZES} up to 1e9, got \[100.0, 0.0\]"),
    *(({"size1": bad}, f"size1 {SIZES}") for bad in ((-5, 10), (math.nan, 10))),
    *(
        ({"threshold": bad}, f"threshold must be a finite number of at least 0, got {bad!r}")
        for bad in (-1.0, math.inf, "4")
    ),
    *(
        ({"grid": bad}, rf"grid must be an integer in \[2, 256\], got {bad}")
        for bad in (1, 257, 20.0, True)
    ),
    ({"scales": 1}, "scales must be True or False, got 1"),
    ({"rotations": None}, "rotations must be True or False, got None"),
    ({"crop": "yes"}, "crop must be True or False, got 'yes'"),
    ({"integer_mean": 0.0}, "integer_mean must be True or False, got 0.0"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_refusals(change, message):
    arguments = {"graph": block(), "size0": SIZE, "size1": SIZE, **change}
    with pytest.raises(ValueError, match=message):
        manymatch.gms_filter(**arguments)


# Small lattices: coincident points, borders of cells and equal supports are the rule.
LATTICE = st.integers(0, 24).map(float)
ANYWHERE = st.floats(-30.0, 60.0, width=32)


@st.composite
def graphs(draw, coordinate=LATTICE, max_points=12, max_edges=30):
    points0, points1 = (
        draw(st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=max_points))
        for _ in range(2)
    )
    edge = st.tuples(st.integers(0, len(points0) - 1), st.integers(0, len(points1) - 1))
    edges = unique_edges(draw(st.lists(edge, max_size=max_edges)))
    return manymatch.AssociationGraph(points0, points1, edges)


options = st.fixed_dictionaries(
    {
        "threshold": st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 4.0]),
        "grid": st.sampled_from([2, 3, 4, 5, 6, 7, 256]),
        "scales": st.booleans(),
        "rotations": st.booleans(),
        "crop": st.booleans(),
        "integer_mean": st.booleans(),
    }
)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def assert_equals_twin(graph, size0, size1, **chosen):
    """Mask and winning setting are those of the twin; returns the result."""
    result = manymatch.gms_filter(graph, size0, size1, **chosen)
    mask, scale, rotation = gms(graph.points0, graph.points1, graph.edges, size0, size1, **chosen)
    np.testing.assert_array_equal(result.mask, mask)
    assert (result.num_kept, result.rotation) == (mask.sum(), rotation)
    assert result.scale == (None if scale is None else pytest.approx(scale, rel=1e-15))
    return result


FEW_CELLS = graphs(st.sampled_from([0.0, 1.0, 9.0]), max_edges=60)


@pytest.mark.filterwarnings("ignore:size")
@settings(max_examples=150)
@given(graphs() | graphs(ANYWHERE) | FEW_CELLS, sizes, sizes, options)
def test_equals_the_twin(graph, size0, size1, chosen):
    assert_equals_twin(graph, size0, size1, **chosen)


def moved_scene(rng, count, turn=0.0, zoom=1.0, noise=3.0, clutter=1.0, candidates=1):
    """Points that move together in a 640 x 480 image, each with some candidates, and clutter."""
    centre = np.array([320.0, 240.0])
    points0 = centre + rng.uniform(-150.0, 150.0, size=(count, 2))
    c, s = zoom * np.cos(turn), zoom * np.sin(turn)
    points1 = centre + (points0 - centre) @ np.array([[c, s], [-s, c]])
    points1 += rng.normal(scale=noise, size=points1.shape)
    true = [(i, i) for i in range(count)]
    wrong = rng.integers(0, count, size=(int(clutter * count * candidates), 2))
    edges = unique_edges([*true, *wrong.tolist()])
    edges = edges[rng.permutation(len(edges))]
    return manymatch.AssociationGraph(points0, points1, edges)


@pytest.mark.parametrize("seed", range(4))
def test_scenes(seed):
    rng = np.random.default_rng([seed, 5])
    graph = moved_scene(rng, 60, seed * np.pi / 4, (1.0, 1.4, 0.7, 0.5)[seed], candidates=2)
    chosen = {"threshold": 1.5, "crop": seed % 2 == 0, "integer_mean": seed < 2}
    result = assert_equals_twin(graph, (640, 480), (640, 480), **chosen)
    assert 0 < result.num_kept < graph.num_edges


@settings(max_examples=40)
@given(graphs(), options, st.integers(0, 2**32 - 1))
def test_numbering_and_isolated_keypoints_play_no_part(graph, chosen, seed):
    rng = np.random.default_rng(seed)
    new0, new1 = rng.permutation(len(graph.points0)), rng.permutation(len(graph.points1))
    order = rng.permutation(graph.num_edges)
    points0, points1 = np.empty_like(graph.points0), np.empty_like(graph.points1)
    points0[new0], points1[new1] = graph.points0, graph.points1
    edges = np.column_stack([new0[graph.edges[:, 0]], new1[graph.edges[:, 1]]])[order]
    # A keypoint without edges plays no part.
    far = [[-1e4, 3e4]]
    points0, points1 = np.concatenate([points0, far]), np.concatenate([points1, far])
    other = manymatch.AssociationGraph(points0, points1, edges)
    before = manymatch.gms_filter(graph, (25, 25), (25, 25), **chosen)
    after = manymatch.gms_filter(other, (25, 25), (25, 25), **chosen)
    np.testing.assert_array_equal(after.mask, before.mask[order])
    assert (after.scale, after.rotation) == (before.scale, before.rotation)


def opencv_mask(graph, size0, size1, threshold, scales, rotations):
    """Mask of OpenCV's one-to-one filter, or skip where it is not installed."""
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV with its contributed modules")
    match_gms = getattr(getattr(cv2, "xfeatures2d", None), "matchGMS", None)
    if match_gms is None:
        pytest.skip("the installed OpenCV has no xfeatures2d.matchGMS (opencv-contrib-python)")
    keypoints = [
        [cv2.KeyPoint(float(x), float(y), 1.0) for x, y in points]
        for points in (graph.points0, graph.points1)
    ]
    matches = [cv2.DMatch(int(i), int(j), 0.0) for i, j in graph.edges]
    kept = match_gms(size0, size1, *keypoints, matches, rotations, scales, threshold)
    pairs = {(match.queryIdx, match.trainIdx) for match in kept}
    return np.array([(int(i), int(j)) in pairs for i, j in graph.edges], dtype=bool)


@pytest.mark.parametrize("seed", range(12))
def test_one_to_one_agrees_with_opencv(seed):
    rng = np.random.default_rng([seed, 9])
    scene = moved_scene(rng, 700, seed * np.pi / 4, (1.0, 1.4, 0.7)[seed % 3], clutter=0.0)
    partner = np.arange(700)
    lost = rng.choice(700, size=350, replace=False)
    partner[lost] = rng.permutation(partner[lost])
    points0, points1 = (
        np.clip(points, 0.0, [639.5, 479.5]).astype(np.float32)
        for points in (scene.points0, scene.points1)
    )
    edges = np.column_stack([np.arange(700), partner])
    graph = manymatch.AssociationGraph(points0, points1, edges)
    size = (640, 480)
    for scales, rotations in ((False, False), (False, True), (True, False), (True, True)):
        for threshold in (1.0, 2.0, 6.0):
            result = manymatch.gms_filter(
                graph, size, size, threshold, 20, scales, rotations, crop=False, integer_mean=False
            )
            expected = opencv_mask(graph, size, size, threshold, scales, rotations)
            np.testing.assert_array_equal(result.mask, expected)


def stored_at(points, size, working):
    """Pixels in a file of another resolution."""
    return (points + 0.5) * np.divide(size, working) - 0.5


def noisy_block(seed=0):
    """A block that moves together among strays, at working sizes 1024 x 576 and 640 x 512."""
    rng = np.random.default_rng(seed)
    left = rng.uniform([4.0, 4.0], [1019.0, 571.0], (500, 2))
    right = np.clip(left * [0.55, 0.8] + [20.0, 15.0], 0.0, [639.0, 511.0])
    strays = rng.choice(500, 200, replace=False)
    right[strays] = rng.uniform(0.0, [639.0, 511.0], (200, 2))
    rank = np.ones(500, dtype=np.int32)
    return manymatch.AssociationGraph(left, right, [(i, i) for i in range(500)], rank=rank)


WORKING = (1024, 576), (640, 512)
STORED = (3840, 2160), (640, 512)


@pytest.mark.parametrize("sizes", [STORED, ((512, 288), (4000, 3200)), WORKING])
@pytest.mark.parametrize("crop", [True, False])
def test_filter_at_working_size_ignores_the_resolution_of_files(sizes, crop):
    graph = noisy_block()
    expected = manymatch.gms_filter(graph, *WORKING, crop=crop)
    assert 200 < expected.num_kept < 450
    pairs = zip((graph.points0, graph.points1), sizes, WORKING, strict=True)
    points = [stored_at(*pair) for pair in pairs]
    in_files = manymatch.AssociationGraph(*points, graph.edges, rank=graph.rank)
    scales = [np.divide(a, b) for a, b in zip(WORKING, sizes, strict=True)]
    again = manymatch.gms_filter(at_working_size(in_files, *scales), *WORKING, crop=crop)
    assert np.array_equal(again.mask, expected.mask)
    # Unit vectors make the graph's own edges the nearest neighbours.
    descriptors = np.eye(500, dtype=np.float32)
    arguments = (*points, descriptors, descriptors, *sizes, 1, "hcm-mcm")
    found = manymatch.candidates(
        *arguments, gms={"crop": crop}, keep=None, working0=WORKING[0], working1=WORKING[1]
    )
    assert found.counts["associated"] == 500
    assert {tuple(e) for e in found.graph.edges} == {tuple(e) for e in graph.edges[expected.mask]}
    assert np.array_equal(found.graph.points0, points[0])
    if sizes == STORED and crop:
        # The margin around the smaller image is that of the larger one.
        plain = manymatch.candidates(*arguments, keep=None)
        assert plain.graph.num_edges != found.graph.num_edges


def test_filter_inside_auto_counts_at_working_size():
    scene = make_scene(CONFIGS["demo"], 3)
    options = manymatch.Options(min_iterations=300, max_iterations=300)
    expected = manymatch.estimate_relative_pose(
        scene.graph, scene.camera0, scene.camera1, options=options
    )
    size = np.array(scene.size)
    factors = np.array([4.0, 4.0]), np.array([0.5, 0.5])
    points = [
        stored_at(points, size * factor, size)
        for points, factor in zip((scene.graph.points0, scene.graph.points1), factors, strict=True)
    ]
    graph = manymatch.AssociationGraph(
        *points, scene.graph.edges, scene.graph.similarity, scene.graph.rank
    )
    cameras = scene.camera0.scaled(4.0), scene.camera1.scaled(0.5)
    pixels = working_pixel(*cameras, 1 / factors[0], 1 / factors[1])
    stored = options.replace(threshold_px=options.threshold_px * pixels)
    scaled = manymatch.estimate_relative_pose(
        graph, *cameras, options=stored, working_scale=(1 / factors[0], 1 / factors[1])
    )
    assert np.array_equal(scaled.inliers, expected.inliers)
    np.testing.assert_allclose(scaled.match_probability, expected.match_probability, atol=1e-6)
    np.testing.assert_allclose(scaled.pose.R, expected.pose.R, atol=1e-6)
    assert manymatch.assess(scaled).verdict == manymatch.assess(expected).verdict
    plain = manymatch.estimate_relative_pose(graph, *cameras, options=stored)
    assert not np.array_equal(plain.match_probability, scaled.match_probability)
    with pytest.raises(ValueError, match="scale1 must be two positive numbers"):
        manymatch.estimate_relative_pose(graph, *cameras, working_scale=((1, 1), (1, 0)))

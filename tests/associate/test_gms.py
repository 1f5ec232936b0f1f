"""The GMS filter on examples that can be worked out by hand, its result and its refusals."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import manymatch
from tests.oracles.gms import gms

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


def test_points_that_move_together_stay_and_a_stray_goes():
    together = [((x, y), (x + 3.0, y + 3.0)) for x in (41.0, 44.0, 47.0) for y in (42.0, 45.0)]
    stray = [((43.0, 43.0), (90.0, 10.0))]
    result = manymatch.gms_filter(
        graph_of(together + stray), SIZE, SIZE, threshold=2.0, grid=10, crop=False
    )
    assert result.mask.tolist() == [True] * 6 + [False]
    assert result.num_kept == 6
    assert (result.scale, result.rotation) == (1.0, 0)


def test_threshold_is_met_with_equality():
    # Four matches between two cells in the middle: score 4, mean 4 / 9 over the nine pairs.
    graph = graph_of([((53.0 + i / 4, 53.0), (53.0, 53.0 + i / 4)) for i in range(4)])
    fixed = {"grid": 10, "scales": False, "rotations": False, "crop": False}
    for threshold, kept in ((6.0, 4), (6.0 + 1e-9, 0)):
        result = manymatch.gms_filter(graph, SIZE, SIZE, threshold, integer_mean=False, **fixed)
        assert result.num_kept == kept
    # Truncated, the mean is 0 and no threshold is too high.
    assert manymatch.gms_filter(graph, SIZE, SIZE, 1e9, integer_mean=True, **fixed).num_kept == 4


def test_several_candidates_in_one_cell_support_it_once():
    # One keypoint with six candidates in a cell, against two keypoints with one candidate each.
    points0 = [[53.0, 53.0], [54.0, 53.0], [53.0, 54.0]]
    points1 = [[13.0 + i / 4, 13.0] for i in range(6)] + [[73.0, 73.0], [74.0, 74.0]]
    edges = [(0, j) for j in range(6)] + [(1, 6), (2, 7)]
    graph = manymatch.AssociationGraph(points0, points1, edges)
    result = manymatch.gms_filter(graph, SIZE, SIZE, 0.0, 10, crop=False, **PLAIN)
    assert result.mask.tolist() == [False] * 6 + [True] * 2


def test_equal_support_goes_to_the_first_cell_row_by_row():
    points1 = [[13.0, 73.0], [73.0, 13.0], [83.0, 13.0]]
    graph = manymatch.AssociationGraph([[53.0, 53.0]], points1, [(0, 0), (0, 1), (0, 2)])
    result = manymatch.gms_filter(graph, SIZE, SIZE, 0.0, 10, crop=False, **PLAIN)
    assert result.mask.tolist() == [False, True, False]


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


def test_the_crop_follows_the_points_and_the_image_does_not():
    graph = block()
    moved = manymatch.AssociationGraph(
        np.add(graph.points0, [4000.0, -300.0]), graph.points1 - [17.0, 900.0], graph.edges
    )
    for crop, same in ((True, True), (False, False)):
        masks = [
            manymatch.gms_filter(g, SIZE, SIZE, 5.0, 10, crop=crop).mask for g in (graph, moved)
        ]
        assert np.array_equal(*masks) is same


def test_points_outside_enlarge_the_image():
    graph = graph_of([((-7.5, 3.0), (130.25, 20.0)), ((50.0, 220.0), (99.999999999, 99.0))])
    result = manymatch.gms_filter(graph, SIZE, SIZE, 0.0, crop=False)
    expected, _, _ = gms(graph.points0, graph.points1, graph.edges, SIZE, SIZE, 0.0, crop=False)
    assert result.mask.tolist() == expected.tolist() == [True, True]


def test_one_edge():
    graph = graph_of([((5.0, 5.0), (80.0, 80.0))])
    for crop in (True, False):
        assert manymatch.gms_filter(graph, SIZE, SIZE, crop=crop).mask.tolist() == [True]
        strict = manymatch.gms_filter(graph, SIZE, SIZE, 4.0, crop=crop, integer_mean=False)
        assert strict.mask.tolist() == [False]


@pytest.mark.parametrize("count", [0, 3])
def test_no_edges(count):
    graph = manymatch.AssociationGraph(np.zeros((count, 2)), np.zeros((count, 2)), [])
    result = manymatch.gms_filter(graph, SIZE, SIZE)
    assert result.mask.shape == (0,)
    assert result.mask.dtype == bool
    assert (result.num_kept, result.scale, result.rotation) == (0, None, None)
    assert repr(result) == "GmsResult(0 of 0 edges kept)"


def test_nothing_kept_has_no_setting():
    rng = np.random.default_rng(0)
    points = rng.uniform(0.0, 100.0, size=(2, 60, 2))
    graph = manymatch.AssociationGraph(*points, [(i, i) for i in range(60)])
    result = manymatch.gms_filter(graph, SIZE, SIZE, 1e6, integer_mean=False)
    assert (result.num_kept, result.scale, result.rotation) == (0, None, None)
    assert not result.mask.any()


def test_result_is_frozen_and_prints():
    result = manymatch.gms_filter(block(), SIZE, SIZE, 5.0, 10)
    text = repr(result)
    assert text == f"GmsResult({result.num_kept} of 200 edges kept; scale 1, rotation 0 deg)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.num_kept = 0
    with pytest.raises(ValueError, match="read-only"):
        result.mask[0] = True


def test_threads_do_not_disturb_each_other():
    graphs = [block(turn) for turn in range(8)] * 3
    alone = [manymatch.gms_filter(graph, SIZE, SIZE, 4.0, 10).mask for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda g: manymatch.gms_filter(g, SIZE, SIZE, 4.0, 10), graphs))
    for mask, result in zip(alone, together, strict=True):
        np.testing.assert_array_equal(result.mask, mask)


BAD = [
    ({"graph": [[0, 0]]}, "graph must be an AssociationGraph, got a list of length 1"),
    ({"size0": 100}, r"size0 must be two positive finite numbers \(width, height\), got 100"),
    ({"size0": (1, 2, 3)}, "size0 must be two positive finite numbers"),
    ({"size1": (100, 0)}, r"size1 must be two positive finite .*, got \[100.0, 0.0\]"),
    ({"size1": (-5, 10)}, r"size1 must be two positive finite .*, got \[-5.0, 10.0\]"),
    ({"size1": (math.nan, 10)}, r"size1 must be two positive finite .*, got \[nan, 10.0\]"),
    ({"size0": (math.inf, 10)}, r"size0 must be two positive finite .*, got \[inf, 10.0\]"),
    ({"size0": ("a", "b")}, "size0 must be two positive finite numbers"),
    ({"threshold": -1.0}, "threshold must be a finite number of at least 0, got -1"),
    ({"threshold": math.inf}, "threshold must be a finite number of at least 0, got inf"),
    ({"threshold": "4"}, "threshold must be a finite number of at least 0, got '4'"),
    ({"grid": 1}, r"grid must be an integer in \[2, 256\], got 1"),
    ({"grid": 257}, r"grid must be an integer in \[2, 256\], got 257"),
    ({"grid": 20.0}, r"grid must be an integer in \[2, 256\], got 20.0"),
    ({"grid": True}, r"grid must be an integer in \[2, 256\], got True"),
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


def test_coordinates_that_single_precision_cannot_tell_apart_are_refused():
    graph = manymatch.AssociationGraph([[1e300, 0.0], [0.0, 0.0]], [[0.0, 0.0]], [(0, 0), (1, 0)])
    with pytest.raises(ValueError, match=r"graph.points0 must hold pixels within 1e\+09"):
        manymatch.gms_filter(graph, SIZE, SIZE)


@pytest.mark.parametrize("grid", [2, 256])
def test_the_extreme_grids(grid):
    graph = block(turn=1)
    result = manymatch.gms_filter(graph, SIZE, SIZE, 1.0, grid, **PLAIN)
    arrays = graph.points0, graph.points1, graph.edges
    expected, _, _ = gms(*arrays, SIZE, SIZE, 1.0, grid, **PLAIN)
    np.testing.assert_array_equal(result.mask, expected)
    assert result.num_kept > 0

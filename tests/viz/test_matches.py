import sys

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.image import imread

from manymatch import estimate_relative_pose
from manymatch.datasets.synthetic import EASY, SceneConfig, make_scene
from manymatch.graph import AssociationGraph
from manymatch.viz import plot_candidates


@pytest.fixture(scope="module")
def scene():
    return make_scene(SceneConfig(num_points=40, num_outliers=5, num_rows=2), 0)


@pytest.fixture(scope="module")
def estimate(scene):
    return estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


def lines_of(axes):
    """All segments drawn in the axes, (n, 2, 2)."""
    collections = [c for c in axes.collections if isinstance(c, LineCollection)]
    return np.concatenate([np.array(c.get_segments()).reshape(-1, 2, 2) for c in collections])


def texts_of(figure):
    return [text.get_text() for text in figure.texts]


def test_picture_is_written_with_content(scene, estimate, tmp_path):
    path = tmp_path / "new folder" / "pair.png"
    plot_candidates(
        scene.graph,
        scene.size,
        scene.size,
        path,
        estimate=estimate,
        is_true=scene.is_true,
        title="A pair",
    )
    pixels = imread(path)[:, :, :3]
    assert pixels.shape[1] > 1000
    assert pixels.shape[0] > 1000
    assert len(np.unique((pixels @ [1.0, 300.0, 90_000.0]).round(3))) > 100
    # Green: matches that are right were drawn in the lower half.
    lower = pixels[pixels.shape[0] // 2 :]
    greenish = (lower[..., 1] > lower[..., 0] + 0.2) & (lower[..., 1] > lower[..., 2] + 0.1)
    assert greenish.sum() > 1000


def test_candidates_of_the_wanted_number_of_keypoints_are_drawn(scene):
    figure = plot_candidates(scene.graph, scene.size, scene.size, max_keypoints=10)
    segments = lines_of(figure.axes[0])
    starts = np.unique(segments[:, 0], axis=0)
    assert len(starts) == 10
    shown = [np.flatnonzero(np.all(scene.graph.points0 == start, axis=1))[0] for start in starts]
    assert len(segments) == np.isin(scene.graph.edges[:, 0], shown).sum()
    # They are spread over the image.
    assert np.all(np.ptp(starts, axis=0) > 0.5 * np.array(scene.size))


def test_lines_end_at_the_second_image_beside_the_first(scene):
    figure = plot_candidates(scene.graph, scene.size, scene.size, max_keypoints=1000)
    segments = lines_of(figure.axes[0])
    assert len(segments) == scene.graph.num_edges
    offset = segments[:, 1].min(axis=0)[0] - scene.graph.points1[scene.graph.edges[:, 1], 0].min()
    assert offset > scene.size[0]
    ends = {tuple(np.round(end, 6)) for end in segments[:, 1] - (offset, 0)}
    assert ends == {tuple(np.round(p, 6)) for p in scene.graph.points1[scene.graph.edges[:, 1]]}


def test_every_chosen_match_is_drawn_and_counted(scene, estimate):
    figure = plot_candidates(
        scene.graph, scene.size, scene.size, estimate=estimate, is_true=scene.is_true
    )
    assert len(figure.axes) == 2
    assert len(lines_of(figure.axes[1])) == len(estimate.matches)
    true = {tuple(pair) for pair in scene.true_matches.tolist()}
    right = sum(tuple(pair) in true for pair in estimate.matches.tolist())
    assert f"{right} right" in texts_of(figure)
    assert f"{len(estimate.matches) - right} wrong" in texts_of(figure)


def test_graphs_without_ranks_or_edges_and_failed_estimates_can_be_drawn(tmp_path):
    scene = make_scene(EASY, 0)
    plain = AssociationGraph(scene.graph.points0, scene.graph.points1, scene.graph.edges)
    assert "candidate" in texts_of(plot_candidates(plain, scene.size, scene.size))
    nothing = scene.graph.head(0)
    failed = estimate_relative_pose(nothing, scene.camera0, scene.camera1)
    figure = plot_candidates(
        nothing, scene.size, scene.size, tmp_path / "nothing.png", estimate=failed
    )
    assert any(failed.failure in text for text in texts_of(figure))
    assert (tmp_path / "nothing.png").stat().st_size > 1000


def test_photographs_of_unequal_size_are_placed_at_their_pixels():
    scene = make_scene(EASY, 0)
    images = np.zeros((768, 1024)), np.ones((100, 200, 3))
    figure = plot_candidates(scene.graph, (1024, 768), (200, 100), images=images)
    extents = [image.get_extent() for image in figure.axes[0].images]
    assert extents[0] == pytest.approx((-0.5, 1023.5, 767.5, -0.5))
    left, right, bottom, top = extents[1]
    assert (right - left, bottom, top) == pytest.approx((200, 99.5, -0.5))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_keypoints": 0}, "max_keypoints must be"),
        ({"is_true": [True]}, "is_true must be"),
        ({"size0": (0, 10)}, "size0 must be"),
    ],
)
def test_bad_arguments_are_named(scene, keywords, message):
    arguments = {"size0": scene.size, "size1": scene.size, **keywords}
    with pytest.raises(ValueError, match=f"^{message}"):
        plot_candidates(scene.graph, **arguments)


def test_without_matplotlib_the_error_says_what_to_install(scene, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"manymatch\[viz\]"):
        plot_candidates(scene.graph, scene.size, scene.size)


def test_the_chosen_candidates_of_the_drawn_keypoints_have_rings(scene, estimate):
    figure = plot_candidates(
        scene.graph, scene.size, scene.size, estimate=estimate, max_keypoints=10
    )
    shown = np.unique(lines_of(figure.axes[0])[:, 0], axis=0)
    rings = [c for c in figure.axes[0].collections if len(c.get_facecolors()) == 0]
    left = rings[-2].get_offsets()
    chosen = scene.graph.points0[estimate.matches[:, 0]]
    expected = [p for p in chosen.tolist() if p in shown.tolist()]
    assert len(expected) > 0
    assert sorted(left.tolist()) == sorted(expected)
    assert "chosen" in texts_of(figure)

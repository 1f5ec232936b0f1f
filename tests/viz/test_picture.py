"""The picture of a pair: what is drawn where, in words and colours, at the size of a screen."""

import dataclasses
import io
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from PIL import Image

from manymatch import assess, estimate_homography, estimate_relative_pose, merge_graphs
from manymatch.estimate import words
from manymatch.graph import AssociationGraph
from manymatch.viz import picture as drawing
from manymatch.viz import plot_candidates
from manymatch.viz.figure import text_width, wrapped
from manymatch.viz.overlay import SOURCE_COLOURS
from manymatch_lab.datasets.synthetic import EASY, SceneConfig, make_scene
from tests.support.synthetic_alternatives import with_alternatives


@pytest.fixture(scope="module")
def scene():
    return make_scene(SceneConfig(num_points=40, num_outliers=5, num_rows=2), 0)


@pytest.fixture(scope="module")
def estimate(scene):
    return estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


@pytest.fixture(scope="module")
def crowded():
    """More matches than lines can be followed for, some of them beyond rank one."""
    scene = make_scene(SceneConfig(num_points=500, num_outliers=20, num_rows=4), 1)
    return scene, estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


def picture(scene, path=None, graph=None, **keywords):
    graph = scene.graph if graph is None else graph
    return plot_candidates(graph, scene.size, scene.size, path, **keywords)


def segments(lines):
    return np.array(lines.get_segments()).reshape(-1, 2, 2)


def line_groups(axes):
    return [c for c in axes.collections if isinstance(c, LineCollection)]


def lines_of(axes, colour=None):
    """Segments drawn in the axes, (n, 2, 2), of one colour or all but the dark casings."""
    groups = [c for c in line_groups(axes) if len(c.get_segments())]
    wanted = [
        segments(c)
        for c in groups
        if (colour is None and not same(c, drawing._OUTLINE)) or (colour and same(c, colour))
    ]
    return np.concatenate(wanted) if wanted else np.empty((0, 2, 2))


def same(collection, colour):
    return np.allclose(collection.get_colors()[:, :3], to_rgba(colour)[:3], atol=0.01)


def dots_of(axes):
    """Centres of all groups of discs."""
    return [np.array(c.get_offsets()) for c in axes.collections if not hasattr(c, "get_segments")]


def texts_of(figure):
    return [text.get_text() for text in figure.texts]


def said(figure):
    return " ".join(texts_of(figure))


def on_screen(figure, points, size, side):
    """Pixels of an image where the first panel draws them."""
    left, right, bottom, top = figure.axes[0].images[side].get_extent()
    scale = np.array([(right - left) / size[0], (bottom - top) / size[1]])
    return (np.asarray(points) + 0.5) * scale + (left, 0)


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "tif", "pdf", "svg", "eps", ""])
def test_formats(scene, estimate, tmp_path, ending):
    path = tmp_path / "new folder" / f"pair{'.' if ending else ''}{ending}"
    keywords = {"estimate": estimate, "max_keypoints": 2}
    assert picture(scene, path, **keywords) == path
    start = path.read_bytes()[:400]
    marks = {"jpg": b"\xff\xd8", "webp": b"WEBP", "tif": b"II*", "pdf": b"%PDF", "eps": b"%!PS"}
    assert {**marks, "svg": b"<svg"}.get(ending, b"\x89PNG") in start
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_file_and_figure_are_the_same_picture(crowded, tmp_path):
    """Pillow draws the file, matplotlib the figure: the same things at the same places."""
    scene, estimate = crowded
    rng = np.random.default_rng(0)
    photo = np.repeat(np.repeat(rng.integers(0, 255, (24, 32, 3)), 20, 0), 20, 1).astype(np.uint8)
    arguments = {"images": (photo, photo[:, ::2]), "estimate": estimate, "title": "Two photographs"}
    sizes = scene.size, (scene.size[0] // 2, scene.size[1])
    plot_candidates(scene.graph, *sizes, tmp_path / "a.png", **arguments)
    figure = plot_candidates(scene.graph, *sizes, **arguments)
    with Image.open(tmp_path / "a.png") as image:
        drawn = np.asarray(image).astype(float)
    shown = np.asarray(Image.open(io.BytesIO(figure._repr_png_())).convert("RGB")).astype(float)
    assert drawn.shape == shown.shape
    # Edges of letters and lines differ, by less than a pixel.
    smooth = [
        np.asarray(Image.fromarray(a.astype(np.uint8)).reduce(6)) / 1.0 for a in (drawn, shown)
    ]
    difference = np.abs(smooth[0] - smooth[1])
    assert difference.mean() < 3
    assert np.percentile(difference, 99) < 30


def test_candidates_of_the_wanted_number_of_keypoints_are_drawn(scene):
    figure = picture(scene, max_keypoints=10)
    drawn = lines_of(figure.axes[0])
    starts = np.unique(drawn[:, 0], axis=0)
    assert len(starts) == 10
    places = on_screen(figure, scene.graph.points0, scene.size, 0)
    shown = [np.argmin(np.linalg.norm(places - start, axis=1)) for start in starts]
    assert len(drawn) == np.isin(scene.graph.edges[:, 0], shown).sum()
    # They are spread over the image.
    assert np.all(np.ptp(scene.graph.points0[shown], axis=0) > 0.5 * np.array(scene.size))
    assert "Drawn with their ranks for 10 keypoints." in said(figure)


def test_candidates_of_several_sources_are_coloured_by_source(scene):
    merged = merge_graphs([scene.graph, scene.graph.head(40)], ["first", "second"])
    figure = picture(scene, graph=merged, max_keypoints=200)
    for number in (0, 1):
        drawn = lines_of(figure.axes[0], SOURCE_COLOURS[number])
        assert len(drawn) == np.sum(merged.source == number)
    assert {"first", "second"} <= set(texts_of(figure))


def test_matches_of_several_sources_are_coloured_by_source(scene):
    merged = merge_graphs([scene.graph.head(40), scene.graph], ["first", "second"])
    found = estimate_relative_pose(merged, scene.camera0, scene.camera1)
    counts = merged.count_by_source(found.matches)
    assert min(counts.values()) > 0
    figure = picture(scene, graph=merged, estimate=found)
    for colour, (name, number) in zip(SOURCE_COLOURS, counts.items(), strict=False):
        drawn = np.concatenate([c.get_colors() for c in line_groups(figure.axes[1])])
        assert np.isclose(drawn[:, :3], to_rgba(colour)[:3], atol=0.01).all(axis=1).sum() == number
        assert f"{number} of {name}" in texts_of(figure)


def test_lines_join_the_keypoints_of_both_images(scene):
    size1 = (scene.size[0] * 2, scene.size[1])
    figure = plot_candidates(scene.graph, scene.size, size1, max_keypoints=1000)
    drawn = lines_of(figure.axes[0])
    expected = np.stack(
        [
            on_screen(figure, points[scene.graph.edges[:, side]], size, side)
            for side, (points, size) in enumerate(
                [(scene.graph.points0, scene.size), (scene.graph.points1, size1)]
            )
        ],
        axis=1,
    )
    order = [np.lexsort(np.round(ends.reshape(-1, 4), 3).T) for ends in (drawn, expected)]
    np.testing.assert_allclose(drawn[order[0]], expected[order[1]], atol=1e-6)


def test_kept_panel_shows_chosen_and_refused_candidates(scene, estimate):
    """Keypoints matched beyond rank one, what was chosen for them, and what rank one would be."""
    graph = scene.graph
    rank_of = {tuple(e): r for e, r in zip(graph.edges.tolist(), graph.rank.tolist(), strict=True)}
    chosen = {tuple(match) for match in estimate.matches.tolist()}
    beyond = {i for i, j in chosen if rank_of[i, j] > 1}
    assert len(beyond) > 4
    figure = picture(scene, graph=graph, estimate=estimate, max_keypoints=4)
    places = [
        on_screen(figure, points, scene.size, side)
        for side, points in enumerate((graph.points0, graph.points1))
    ]

    def edges(colour):
        return {
            tuple(int(np.argmin(np.linalg.norm(places[s] - end[s], axis=1))) for s in (0, 1))
            for end in lines_of(figure.axes[0], colour)
        }

    shown = {i for i, _ in edges(drawing._CHOSEN)}
    assert len(shown) == 4
    assert shown <= beyond
    assert edges(drawing._CHOSEN) == {edge for edge in chosen if edge[0] in shown}
    rejected = {edge for edge in rank_of if edge[0] in shown and edge not in chosen}
    assert edges(drawing._FIRST) == {edge for edge in rejected if rank_of[edge] == 1}
    assert edges(drawing._OTHER) == {edge for edge in rejected if rank_of[edge] > 1}
    dashed = [c for c in line_groups(figure.axes[0]) if c.get_linestyle()[0][1] is not None]
    assert [same(c, drawing._FIRST) for c in dashed] == [True]
    # Every candidate has its rank beside it.
    drawn = figure.axes[0].texts
    assert len(drawn) == len(rejected) + 4
    for text in drawn:
        at = np.array(text.get_position())
        ends = [j for i, j in rank_of if i in shown and np.allclose(places[1][j], at)]
        assert int(text.get_text()) in {
            rank_of[i, j] for j in ends for i in shown if (i, j) in rank_of
        }
    assert f"ranks for 4 keypoints, 4 of the {len(beyond)} whose match is beyond rank one." in said(
        figure
    )
    assert f"{len(beyond)} of them" in said(figure)
    assert f"{len(beyond)} of them" in words.chosen_text(
        estimate, graph, np.array([tuple(edge) in chosen for edge in graph.edges.tolist()])
    )
    for entry in ("chosen", "rank one, not chosen"):
        assert entry in texts_of(figure)


def test_matches_far_from_their_first_choice_come_first():
    """Of two rescued keypoints the one whose first choice is elsewhere says more."""
    points0 = np.array([[10.0, 10.0], [90.0, 90.0], [50.0, 50.0]])
    points1 = np.array([[12.0, 10.0], [10.0, 10.0], [10.0, 95.0], [90.0, 90.0], [50.0, 50.0]])
    edges = [[0, 0], [1, 2], [2, 4], [0, 1], [1, 3]]
    graph = AssociationGraph(points0, points1, edges, rank=[1, 1, 1, 2, 2])
    states = np.array([0, 0, 2, 2, 2])
    shown, text = drawing._telling(graph, states, 1)
    assert "for 1 keypoint, 1 of the 2 whose match is beyond rank one." in text
    many = drawing._telling(graph, states, 3)
    assert sorted(many[0].tolist()) == [0, 1, 2]
    assert "for 3 keypoints, 2 of the 2 whose match is beyond rank one." in many[1]
    assert shown.tolist() in ([0], [1])


def test_every_match_is_drawn_and_counted(scene, estimate):
    figure = picture(scene, estimate=estimate)
    assert len(figure.axes) == 2
    number = len(estimate.matches)
    assert number <= drawing._MOST_LINES
    assert len(lines_of(figure.axes[1])) == number
    assert sum(map(len, dots_of(figure.axes[1]))) == 2 * number
    assert words.matches_text(estimate) in said(figure)


@pytest.mark.parametrize("verdict", ["solved", "uncertain", "ambiguous"])
def test_caption_agrees_with_the_verdict(scene, estimate, verdict):
    """Where the pose is ambiguous the caption says that others are not drawn."""
    several = with_alternatives(estimate)
    unsure = dataclasses.replace(several, match_probability=0.9 * estimate.match_probability)
    confidence = dataclasses.replace(assess(several), verdict=verdict, reason="It is so.")
    figure = picture(
        scene,
        estimate=unsure,
        confidence=confidence,
    )
    told = said(figure)
    assert f"{verdict.capitalize()}: It is so." in told
    assert ("expected to be right" in told) == (verdict == "solved")
    others = "They belong to the most probable pose (57 %); 2 other poses are not drawn."
    assert (others in told) == (verdict == "ambiguous")


def test_crowded_pairs_have_dots_for_all_and_lines_for_some_in_many_colours(crowded):
    scene, estimate = crowded
    number = len(estimate.matches)
    assert number > 2 * drawing._MOST_LINES
    figure = picture(scene, estimate=estimate)
    (lines,) = line_groups(figure.axes[1])
    assert len(lines.get_segments()) == drawing._MOST_LINES
    assert f"Lines for {drawing._MOST_LINES} of them." in said(figure)
    # From left to right in image 0: neighbours have similar colours, far ones different ones.
    starts = segments(lines)[:, 0, 0]
    assert np.all(np.diff(starts) >= 0)
    colours = lines.get_colors()[:, :3]
    assert len(np.unique(colours.round(3), axis=0)) > 100
    assert np.abs(np.diff(colours, axis=0)).max() < 0.1
    assert np.abs(colours[0] - colours[-1]).max() > 0.5
    (dots,) = (c for c in figure.axes[1].collections if not isinstance(c, LineCollection))
    assert len(dots.get_offsets()) == 2 * number
    fill = dots.get_facecolors()
    np.testing.assert_array_equal(fill[:number], fill[number:])


def test_graphs_without_ranks_or_edges_and_failed_estimates_can_be_drawn(tmp_path):
    scene = make_scene(EASY, 0)
    plain = AssociationGraph(scene.graph.points0, scene.graph.points1, scene.graph.edges)
    figure = picture(scene, graph=plain)
    assert "candidate" in texts_of(figure)
    assert not figure.axes[0].texts
    nothing = scene.graph.head(0)
    failed = estimate_relative_pose(nothing, scene.camera0, scene.camera1)
    arguments = {"estimate": failed, "confidence": assess(failed)}
    figure = picture(scene, graph=nothing, **arguments)
    assert said(figure).count(failed.failure) == 1
    alone = picture(scene, graph=nothing, estimate=failed)
    assert f"nothing: {failed.failure}" in said(alone)
    assert words.verdict_sentence(arguments["confidence"]) in said(figure)
    assert len(figure.axes) == 1
    picture(scene, tmp_path / "nothing.png", nothing, **arguments)
    assert (tmp_path / "nothing.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("size0", "size1"),
    [
        ((4032, 3024), (640, 512)),
        ((3024, 4032), (4032, 3024)),
        ((720, 1280), (720, 1280)),
        ((9, 7), (1, 1)),
        ((5000, 2), (3, 4000)),
        ((12_000, 9_000), (160, 120)),
    ],
)
def test_both_images_have_the_same_height_and_text_never_overlaps(scene, estimate, size0, size1):
    figure = plot_candidates(
        scene.graph,
        size0,
        size1,
        estimate=estimate,
        confidence=assess(estimate),
        title="a_rather_long_name_" * 7 + ".jpg - another name with $dollars$ and _{braces}.jpg",
    )
    width, height = figure.get_size_inches() * figure.dpi
    assert 700 <= width <= 1400
    assert height < 1.9 * width
    for axes in figure.axes:
        boxes = [image.get_window_extent() for image in axes.images]
        assert boxes[0].height == pytest.approx(boxes[1].height)
        assert boxes[0].x1 < boxes[1].x0
        if max(size0[0] / size0[1], size1[0] / size1[1]) < 100:
            for box, size in zip(boxes, (size0, size1), strict=True):
                assert box.width / box.height == pytest.approx(
                    size[0] / size[1], rel=0.02, abs=0.05
                )
    taken = [axes.get_window_extent() for axes in figure.axes]
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width
        # Letters of a line may touch the box of the next one, not its letters.
        box = box.shrunk(1.0, 0.8)
        assert not any(box.overlaps(other) for other in taken), text.get_text()
        taken.append(box)
    assert taken[-1].y0 > 0


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    number=st.integers(0, 30),
    ranked=st.booleans(),
    sizes=st.tuples(*[st.tuples(st.integers(1, 9000), st.integers(1, 9000))] * 2),
    far=st.sampled_from([0.0, -1e6, 1e300]),
    most=st.integers(1, 20),
)
@example(seed=0, number=1, ranked=True, sizes=((9, 9), (640, 480)), far=1e300, most=1)
@example(seed=1, number=1, ranked=True, sizes=((9, 9), (640, 480)), far=1e300, most=1)
def test_any_graph_can_be_drawn(seed, number, ranked, sizes, far, most):
    rng = np.random.default_rng(seed)
    points = [rng.uniform(0, 1, (9, 2)) * size for size in sizes]
    points[seed % 2][0, 0] += far
    edges = np.unique(rng.integers(0, 9, (number, 2)), axis=0)
    rank = rng.integers(1, 9, len(edges)) if ranked else None
    graph = AssociationGraph(*points, edges, rank=rank)
    found = estimate_homography(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        arguments = {"estimate": found, "max_keypoints": most}
        plot_candidates(graph, *sizes, path, **arguments)
        with Image.open(path) as image:
            width, height = image.size
    figure = plot_candidates(graph, *sizes, **arguments)
    assert tuple(np.round(figure.get_size_inches() * figure.dpi)) == (width, height)
    assert width <= 1400
    assert figure._repr_png_()


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=80), width=st.floats(1, 500), first=st.floats(0, 400))
def test_wrapped_text_keeps_every_letter_within_the_width(text, width, first):
    lines = wrapped(text, 20, width, first=first)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for k, line in enumerate(lines):
        room = width - (first if k == 0 else 0)
        assert len(line) <= 1 or text_width(line, 20) <= room


def test_photographs_are_drawn_at_the_size_of_a_screen(scene, tmp_path):
    """Neither the figure nor what is read of the arrays grows with the photographs."""

    class Counted(np.ndarray):
        taken = 0

        def __getitem__(self, key):
            part = super().__getitem__(key)
            Counted.taken += np.asarray(part).size
            return np.asarray(part)

    images = [np.zeros((9000, 12_000, 3), dtype=np.uint8).view(Counted) for _ in (0, 1)]
    sizes = ((12_000, 9_000), (12_000, 9_000))
    figure = plot_candidates(scene.graph, *sizes, images=images)
    plot_candidates(scene.graph, *sizes, tmp_path / "a.png", images)
    pixels = np.prod(figure.get_size_inches() * figure.dpi)
    assert sum(image.get_array().size for image in figure.axes[0].images) <= 3 * pixels
    assert Counted.taken < 100 * pixels


def test_reduced_photographs_are_means_at_their_place():
    """The bright quarter of a large photograph stays where it is, and stripes become grey."""
    image = np.zeros((3000, 4000), dtype=np.uint8)
    image[:1500, :2000] = 200
    image[1500:, 2000::2] = 200
    small = drawing.screen_image(image, (400, 300), "image").astype(float)
    assert small.shape == (300, 400, 3)
    assert np.all(small[:149, :199] == 200)
    assert np.all(small[:149, 201:] == 0)
    assert small[151:, 201:].mean() == pytest.approx(100, abs=35)
    ramp = np.linspace(0, 1, 5000)[None].repeat(40, axis=0)
    small = drawing.screen_image(ramp, (500, 20), "image")[0, :, 0].astype(float)
    np.testing.assert_allclose(small, np.linspace(0, 255, 500), atol=1.0)


def test_files_need_no_matplotlib_and_nothing_touches_pyplot(tmp_path):
    script = f"""
import sys
sys.modules["matplotlib"] = None
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch.viz import plot_candidates
scene = make_scene(EASY, 0)
plot_candidates(scene.graph, scene.size, scene.size, {str(tmp_path / "a.png")!r}, title="A – B")
del sys.modules["matplotlib"]
plot_candidates(scene.graph, scene.size, scene.size)._repr_png_()
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_figures_show_themselves_in_notebooks_and_stay_light(scene, estimate):
    import matplotlib as mpl

    figure = picture(scene, estimate=estimate, title="Two")
    copies = [figure, pickle.loads(pickle.dumps(figure))]  # noqa: S301
    dark = {"savefig.facecolor": "black", "figure.facecolor": "black", "text.color": "white"}
    for one in copies:
        with mpl.rc_context({**dark, "savefig.transparent": True}):
            data = one._repr_png_()
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
        assert pixels.shape[:2] == tuple((figure.get_size_inches() * figure.dpi).astype(int))[::-1]
        assert (pixels[:4] == 255).all()
        assert pixels[:, :, :3].min() < 40


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_keypoints": 0}, "max_keypoints must be"),
        ({"size0": (0, 10)}, "size0 must be"),
        ({"images": (np.zeros(3), None)}, r"images\[0\] must be"),
        ({"images": (None, np.full((3, 4), 7.0))}, r"images\[1\] must hold floats"),
        ({"path": "a.nonsense"}, "path must be a picture whose name ends in"),
        ({"head": 5}, "estimate must be an estimate on the graph with its 5 edges"),
    ],
)
def test_bad_arguments_are_named(scene, estimate, keywords, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"size0": scene.size, "size1": scene.size, "estimate": estimate, **keywords}
    graph = scene.graph.head(arguments.pop("head", scene.graph.num_edges))
    with pytest.raises(ValueError, match=f"^{message}"):
        plot_candidates(graph, **arguments)
    assert list(tmp_path.iterdir()) == []

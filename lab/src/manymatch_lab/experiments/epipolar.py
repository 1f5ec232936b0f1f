"""An inlier association under the true pose is not necessarily real: one example, and how often.

The example is a keypoint of the photographs that come with the library, with its match and with
another candidate that the true pose explains as well. The numbers are for any sets: how often
associations that are false are inliers of the true pose, which the paper calls δ and takes to be
0.01.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from manymatch import __version__
from manymatch.associate.candidates import candidates
from manymatch.batch.parts import RunProgress, num_pairs
from manymatch.estimate.relative_pose import score_pose
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch.io.image import load_image
from manymatch.io.pairs import Pair, demo_pair
from manymatch.matcher.matcher import Matcher, association_arguments
from manymatch.options import Options
from manymatch_lab import style
from manymatch_lab.cells import set_table
from manymatch_lab.checks import BoolArray, FloatArray, integer
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.evaluate.statistics import bootstrap_interval
from manymatch_lab.evaluate.tables import Table
from manymatch_lab.pose_runs import PoseSets, left_out

QUESTION = "How often is a false association an inlier of the true pose?"
EXAMPLE = "manymatch-lab epipolar synthetic:ordering --limit 20 --out out/epipolar"

#: A candidate further than this from a keypoint's best one, in pixels at working size, is another
#: place.
APART_PX = 10.0

# The false candidate of the example is further than this from the match, in pixels.
_OTHER_PX = 40.0
# Room that the drawing around a point needs inside the image.
_MARGIN_PX = 40
# Half the height of the enlarged surroundings in pixels, and how much wider they are.
_HALF_PX, _WIDE = 28, 1.75
_POINT, _TRUE, _FALSE, _LINE = "#e69f00", "#009e73", "#d55e00", "#56b4e9"


def run(
    sets: PoseSets | None = None,
    *,
    draws: Annotated[int, "Random pairs of keypoints of a pair of images."] = 20_000,
) -> dict[str, Any]:
    """Show a false candidate on an epipolar line, and measure how often that happens (δ).

    Without sets only the example is made.
    """
    options = Options()
    integer(draws, "draws", 1)
    sets = sets or PoseSets([], Path())
    return {
        "settings": {
            "threshold_px": options.threshold_px,
            "assumed": options.delta,
            "draws": draws,
            "apart_px": APART_PX,
            "limit": sets.limit,
            "version": __version__,
        },
        "example": find_example(demo_pair(), float(options.threshold_px)),
        "sets": [_measured(source, options, draws, sets) for source in sets.sources],
        "missing": [dict(entry) for entry in sets.missing],
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Show the example in numbers, and δ of every set."""
    made = [_example_table(data["example"])]
    return [*made, _delta_table(data)] if data["sets"] or data["missing"] else made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was measured."""
    settings = data["settings"]
    sentences = [
        "The example is a pair of street photographs with many equal windows, and candidates of "
        "SIFT. The match of the keypoint is its nearest neighbour, an inlier of the true pose; "
        "another candidate, elsewhere on its epipolar line, is an inlier as well."
    ]
    if data["sets"]:
        sentences.append(
            f"δ is the share of inliers under the true pose, at {settings['threshold_px']:g} px "
            "of the working size, among associations that are false: random pairs of keypoints "
            "that are not candidates, and candidates more than "
            f"{settings['apart_px']:g} px from a keypoint's best one where that is an inlier. "
            "The second is rather too large: where the best one is an inlier by chance, a real "
            "candidate counts among the false ones."
        )
    return sentences + left_out(data)


def _measured(source: GraphReader, options: Options, draws: int, sets: PoseSets) -> dict[str, Any]:
    total = num_pairs(len(source), sets.limit)
    label = f"{source.representation}, {source.title}"
    counts = np.zeros((total, 4), dtype=np.int64)
    for i in range(total):
        counts[i] = count_false_inliers(source[i], options, draws)
        if sets.progress is not None:
            sets.progress(RunProgress(i + 1, total, {"finished": i + 1}, None, label))
    return {
        "name": source.name,
        "title": source.title,
        "representation": source.representation,
        "pairs": total,
        "random": _share(counts[:, :2]),
        "others": _share(counts[:, 2:]),
    }


def _share(counts: np.ndarray) -> dict[str, Any]:
    """Share of inliers, pooled over pairs, with an interval that resamples pairs."""
    total, inliers = (int(n) for n in counts.sum(axis=0))
    if total == 0:
        return {"count": 0, "share": None, "low": None, "high": None}

    def pooled(rows: FloatArray) -> float:
        return float(rows[:, 1].sum() / max(rows[:, 0].sum(), 1.0))

    interval = bootstrap_interval(counts.astype(np.float64), pooled)
    return {"count": total, "share": inliers / total, "low": interval.low, "high": interval.high}


def _example_table(example: dict[str, Any]) -> Table:
    rows = []
    line, truth = np.array(example["line"]), np.array(example["match"])
    for title, name in (("match", "match"), ("false candidate", "false")):
        point = np.array(example[name])
        off = f"{abs(line[:2] @ point + line[2]):.2f}", f"{np.linalg.norm(point - truth):.1f}"
        found = f"{example[f'{name}_similarity']:.3f}", str(example[f"{name}_rank"])
        rows.append([title, f"({point[0]:.1f}, {point[1]:.1f})", *off, *found])
    distances = ("from the epipolar line (px)", "from the match (px)")
    return Table(
        "A keypoint of the photographs, its match and a false candidate",
        ["Place", "pixel of image 1", *distances, "similarity", "rank"],
        rows,
        [
            f"Both are inliers of the true pose at {example['threshold_px']:g} px. Similarity and "
            "rank are of SIFT's candidates."
        ],
    )


def _delta_table(data: dict[str, Any]) -> Table:
    rows = []
    for entry in data["sets"]:
        shares = [_text(entry["random"]), _text(entry["others"]), f"{entry['others']['count']:,}"]
        rows.append([entry["title"], entry["representation"], str(entry["pairs"]), *shares])
    title = f"Measured δ; the paper assumes {data['settings']['assumed']:g}"
    header = ["Set", "representation", "pairs", "random pairs", "false candidates", "of"]
    note = "In brackets 95 % intervals that resample pairs of images."
    return set_table(title, header, rows, [note], data)


def _text(share: dict[str, Any]) -> str:
    if share["share"] is None:
        return "–"
    return f"{share['share']:.4f} [{share['low']:.4f}, {share['high']:.4f}]"


class FalseInliers(NamedTuple):
    """Counts of one pair: associations that are taken to be false, and inliers among them.

    `drawn` are random pairs of keypoints that are not candidates. `others` are candidates of
    keypoints whose first one is an inlier, at another place than that one.
    """

    drawn: int
    drawn_inliers: int
    others: int
    other_inliers: int


def count_false_inliers(posed: PosedGraph, options: Options, draws: int) -> FalseInliers:
    """Count inliers of the true pose among associations that are taken to be false.

    It is not known which associations of a pair are real, so two kinds are looked at that almost
    never are. Random pairs of keypoints are false as a keypoint has one match at most, and those
    that the graph has as candidates are left out. The others are the candidates of a keypoint
    beside its best one, if that is an inlier and so most probably its match.
    """
    settings, graph = options.with_pixels(posed.pixels), posed.graph
    # Pairs of keypoints at random, each once, without the candidates.
    n0, n1 = len(graph.points0), len(graph.points1)
    rng = np.random.default_rng(posed.seed_index)
    picked = np.unique(rng.integers(0, max(n0 * n1, 1), size=draws if n0 * n1 else 0))
    picked = np.setdiff1d(picked, graph.edges[:, 0] * n1 + graph.edges[:, 1])
    edges = np.column_stack([picked // max(n1, 1), picked % max(n1, 1)])
    random = AssociationGraph(graph.points0, graph.points1, edges)
    drawn = _inliers(posed, random, settings)
    inlier = _inliers(posed, graph, settings)
    others = other_edges(graph, inlier, APART_PX * posed.pixels)
    return FalseInliers(len(drawn), int(drawn.sum()), int(others.sum()), int(inlier[others].sum()))


def other_edges(graph: AssociationGraph, inlier: BoolArray, apart: float) -> BoolArray:
    """Edges (E,) of keypoints whose rank-one edge is an inlier, over `apart` pixels from it."""
    if graph.rank is None:
        raise ValueError("graph must have ranks, got none")
    best = np.full(len(graph.points0), -1, dtype=np.int64)
    first = (graph.rank == 1) & inlier
    best[graph.edges[first, 0]] = graph.edges[first, 1]
    mine = best[graph.edges[:, 0]]
    known = mine >= 0
    far = np.zeros(len(graph), dtype=np.bool_)
    step = graph.points1[graph.edges[known, 1]] - graph.points1[mine[known]]
    far[known] = np.linalg.norm(step, axis=1) > apart
    return far


def _inliers(posed: PosedGraph, graph: AssociationGraph, options: Options) -> BoolArray:
    if not len(graph):
        return np.zeros(0, dtype=np.bool_)
    return score_pose(graph, posed.camera0, posed.camera1, posed.pose, options).inliers


def find_example(pair: Pair, threshold_px: float = 1.0) -> dict[str, Any]:
    """Find the most deceptive false inlier among the candidates of SIFT, as JSON types.

    A keypoint has one match at most. Where its rank-one candidate is an inlier of the true pose,
    and so most probably the match, a candidate at another place is false. Of those that the true
    pose accepts as well, the one with the highest similarity is taken. Without a pose or such a
    candidate the pair is refused.
    """
    if pair.R is None or pair.t is None or pair.camera0 is None or pair.camera1 is None:
        raise ValueError(f"pair must have cameras and a pose, got {pair.name0} - {pair.name1}")
    pose = RelativePose(pair.R, pair.t / np.linalg.norm(pair.t))
    images = [load_image(path) for path in (pair.path0, pair.path1)]
    features = Matcher("classic").extractor.extract_many(images, longest=(0, 0))
    graph = candidates(
        **association_arguments(*features), k=5, max_edges=None, gms=False, keep=None
    ).graph
    similarity, rank = graph.similarity, graph.rank
    if similarity is None or rank is None:
        raise RuntimeError("candidates have similarities and ranks")
    options = Options(threshold_px=threshold_px)
    inlier = score_pose(graph, pair.camera0, pair.camera1, pose, options).inliers
    first, second = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    inside = _within(first, images[0].shape) & _within(second, images[1].shape)
    inlier = inlier & inside
    false = np.flatnonzero(inlier & other_edges(graph, inlier, _OTHER_PX))
    if not len(false):
        raise ValueError(
            f"pair must have a false candidate near an epipolar line, got {pair.name0} - "
            f"{pair.name1}, which has none"
        )
    e = false[np.argmax(similarity[false])]
    match = np.flatnonzero(inlier & (rank == 1) & (graph.edges[:, 0] == graph.edges[e, 0]))[0]
    example: dict[str, Any] = {
        "images": [style.photograph(image, max(image.shape)) for image in images],
        "threshold_px": threshold_px,
        "point0": first[e].tolist(),
        "line": epipolar_lines(pair.camera0.K, pair.camera1.K, pose, first[[e]])[0].tolist(),
    }
    for name, edge in (("match", match), ("false", e)):
        example[name] = second[edge].tolist()
        example[f"{name}_similarity"] = float(similarity[edge])
        example[f"{name}_rank"] = int(rank[edge])
    return example


def epipolar_lines(
    K0: FloatArray, K1: FloatArray, pose: RelativePose, points: FloatArray
) -> FloatArray:
    """Lines (N, 3) of image 1 on which the matches of (N, 2) pixels of image 0 lie.

    Scaled so that ``a x + b y + c`` is the signed distance of (x, y) in pixels.
    """
    fundamental = np.linalg.inv(K1).T @ pose.essential() @ np.linalg.inv(K0)
    lines = np.column_stack([points, np.ones(len(points))]) @ fundamental.T
    scaled: FloatArray = lines / np.linalg.norm(lines[:, :2], axis=1, keepdims=True)
    return scaled


def _within(points: FloatArray, shape: tuple[int, ...]) -> BoolArray:
    end = (shape[1] - _MARGIN_PX, shape[0] - _MARGIN_PX)
    return np.asarray(np.all((points >= _MARGIN_PX) & (points < end), axis=1))


def epipolar_line(data: dict[str, Any]) -> style.Figure:
    """Draw both images with the line, and the three places enlarged."""
    example = data["example"]
    images = example["images"]
    points = {name: np.array(example[name]) for name in ("point0", "match", "false", "line")}
    figure = style.new_figure(style.PAGE_CM, 10.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(2.0, 1.0))
    top, bottom = parts
    axes = top.subplots(1, 2)
    titles = ("image 0: a keypoint", "image 1: its epipolar line")
    for axis, image, title in zip(axes, images, titles, strict=True):
        _show(axis, image, title)
    _ring(axes[0], points["point0"], _POINT)
    _draw_line(axes[1], points["line"], images[1]["size"])
    _ring(axes[1], points["match"], _TRUE)
    _ring(axes[1], points["false"], _FALSE)
    places = (
        (images[0], points["point0"], _POINT, "the keypoint"),
        (images[1], points["match"], _TRUE, "match"),
        (images[1], points["false"], _FALSE, "false candidate"),
    )
    for number, axis in enumerate(bottom.subplots(1, 3)):
        image, point, colour, title = places[number]
        if number:
            off = abs(float(points["line"][:2] @ point + points["line"][2]))
            title += f": {off:.2f} px off the line"
        _show(axis, image, title)
        axis.set_xlim(point[0] - _HALF_PX * _WIDE, point[0] + _HALF_PX * _WIDE)
        axis.set_ylim(point[1] + _HALF_PX, point[1] - _HALF_PX)
        if number:
            _draw_line(axis, points["line"], image["size"], band=example["threshold_px"])
        _ring(axis, point, colour, size=9)
        for spine in axis.spines.values():
            spine.set(visible=True, color=colour, linewidth=1.4)
    return figure


def _show(axis: Any, image: dict[str, Any], title: str) -> None:
    style.show(axis, image)
    axis.images[-1].set_interpolation("lanczos")
    axis.set_title(title, loc="left")
    width, height = image["size"]
    axis.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _ring(axis: Any, point: Any, colour: str, size: float = 7.0) -> None:
    for width, edge in ((3.0, "white"), (1.5, colour)):
        look = {"markerfacecolor": "none", "markeredgecolor": edge, "markeredgewidth": width}
        axis.plot(*point, "o", markersize=size, **look)
    axis.plot(*point, "o", markersize=1.6, color=colour, markeredgecolor="none")


def _draw_line(axis: Any, line: Any, size: Sequence[int], band: float | None = None) -> None:
    """Draw a x + b y + c = 0 within an image, and dashed what is `band` pixels away from it."""
    normal, along = np.array(line[:2], float), np.array([-line[1], line[0]], float)
    foot = -float(line[2]) * normal
    middle = foot + along * float(along @ (np.array(size) / 2.0 - foot))
    reach = along * float(np.hypot(size[0], size[1]))
    ends = np.stack([middle - reach, middle + reach])
    axis.plot(*ends.T, color="white", linewidth=2.4, alpha=0.75)
    axis.plot(*ends.T, color=_LINE, linewidth=1.2)
    for side in () if band is None else (-band, band):
        shifted = ends + side * normal
        axis.plot(*shifted.T, color=style.INK, linewidth=0.6, linestyle=(0, (4, 3)))


FIGURES = {"epipolar_line": epipolar_line}

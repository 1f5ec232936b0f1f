"""True matches below rank one, beside the wrong ones that rank-one matching takes instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from manymatch.associate.neighbours import associate
from manymatch.geometry.pose import RelativePose
from manymatch.io.image import load_image
from manymatch.io.pairs import Pair
from manymatch_lab import dense_pairs, style
from manymatch_lab.checks import BoolArray, FloatArray, IndexArray, integer
from manymatch_lab.evaluate.protocol import PAPER, unequal
from manymatch_lab.evaluate.tables import Table
from manymatch_lab.measures.recall import PatchTruth

QUESTION = "Which true matches are not nearest neighbours?"
EXAMPLE = "manymatch-lab teaser folder_with_depth --backbone efficientnet-lite0 --layer 10 --tau 30"

# A nearest neighbour counts as wrong beyond this many thresholds, so no doubtful case is shown.
_CLEARLY = 3.0
_GREEN, _ORANGE = "#00a676", "#e8590c"
# Between the two images, as a share of the width of the first.
_GAP = 0.03


def run(
    one: dense_pairs.OneSet,
    *,
    pair: Annotated[int, "Number of the pair, from 0."] = 0,
    backbone: dense_pairs.Backbone = dense_pairs.PAPER_BACKBONE,
    layer: dense_pairs.Layer = None,
    debias: dense_pairs.Debias = None,
    k: Annotated[int, "Candidates of a patch."] = 5,
    tau: Annotated[float, "With depth: distance in cm below which a match is true."] = 5.0,
    tau_px: Annotated[
        float, "Without depth: distance in pixels from the true epipolar lines."
    ] = 4.0,
    lines: Annotated[int, "Matches to draw."] = 8,
    settings: dense_pairs.PatchSettings | None = None,
) -> dict[str, Any]:
    """Draw true matches that are not nearest neighbours, and the wrong ones that are.

    With depth a match is true if its patches are at the same place in space; without, if it fits
    the true epipolar geometry, which a wrong match may do as well.
    """
    integer(k, "k", 2)
    dataset, chosen = one.dataset, one.pair(pair)
    if chosen.rot0 or chosen.rot1:
        raise ValueError(f"pair must be upright, got {chosen.rot0} and {chosen.rot1} quarter turns")
    source = (settings or dense_pairs.PatchSettings()).one_layer(backbone, layer, debias)
    images = [load_image(path) for path in (chosen.path0, chosen.path1)]
    sizes = (dataset.longest0, dataset.longest1)
    (block,), (rank,) = source.layers, source.ranks
    dense = [
        source.corrected_map(source.maps(image, longest), block, rank)
        for image, longest in zip(images, sizes, strict=True)
    ]
    found = map(dense_pairs.whole_patches, dense, ((i.shape[1], i.shape[0]) for i in images))
    centres, rows = zip(*found, strict=True)
    has_depth = dataset.depth is not None and bool(chosen.extra.get("depth", True))
    if dataset.depth is not None and has_depth:
        places = [dataset.depth(chosen, side).points(centres[side]) for side in (0, 1)]
        truth = PatchTruth.of(places[0], places[1], [tau])
        judge = _Judge(lambda edges: truth.distances(edges) / truth.taus_m[0], truth.eligible(0)[0])
    else:
        judge = _by_pose(chosen, centres, tau_px)
    kept = _kept(rows, judge, k)
    return {
        "differs_from_paper": [
            *source.differences(),
            *unequal("k", k, PAPER.association.k),
            "a pair of your choice",
        ],
        "title": f"{dataset.title}, {chosen.name0} and {chosen.name1}, "
        f"{dense_pairs.angle_deg(chosen):.0f}° apart",
        "backbone": source.backbone.name,
        "layer": block,
        "rank": rank,
        "k": k,
        "judge": "depth" if has_depth else "pose",
        "tau": tau if has_depth else tau_px,
        "images": [style.photograph(image) for image in images],
        "overlays": style.overlays(*dense),
        "patches": len(centres[0]),
        "with_partner": kept["with_partner"],
        "first_rank": kept["first_rank"],
        "lines": [
            {
                "point0": centres[0][i].tolist(),
                "right": centres[1][right].tolist(),
                "wrong": centres[1][wrong].tolist(),
                "rank": r,
            }
            for i, right, wrong, r in _spread(kept["lines"], centres[0], lines)
        ],
        "notes": list(source.notes),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Count at which K patches of the first image keep their first true match."""
    total = data["with_partner"]
    counts = data["first_rank"]
    rows = [
        [f"K = {k}", str(number), f"{100 * number / total:.1f}", f"{100 * so_far / total:.1f}"]
        for k, (number, so_far) in enumerate(zip(counts, np.cumsum(counts), strict=True), 1)
        if total
    ]
    kind = f"{data['tau']:g} {'cm in space' if data['judge'] == 'depth' else 'px of the lines'}"
    return [
        Table(
            f"Where the first true match of a patch is, {data['title']}",
            ["", "patches", "percent", "percent so far"],
            rows,
            [f"Of {total:,} patches of the first image with a true match within {kind}."],
        )
    ]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what the lines are."""
    raw = f"debias {data['rank']}" if data["rank"] else "raw"
    judged = (
        "True means the same place in space, by depth."
        if data["judge"] == "depth"
        else "There is no depth: true means near the epipolar lines of the true pose, which a "
        "wrong match can be too."
    )
    return [
        f"{data['backbone']}, layer {data['layer']}, {raw}, mutual {data['k']}-nearest neighbours. "
        "Green: a true match that is not the nearest neighbour. Orange: the nearest neighbour, "
        f"wrong by more than {_CLEARLY:g} thresholds. {judged}",
        *data["notes"],
    ]


@dataclasses.dataclass(frozen=True)
class _Judge:
    """Distance of (E, 2) edges in units of the threshold, NaN where unknown; who has a partner."""

    distance: Callable[[IndexArray], FloatArray]
    has_partner: BoolArray


def _by_pose(pair: Pair, centres: tuple[FloatArray, ...], tau_px: float) -> _Judge:
    """Judge by the larger distance to the two epipolar lines, in pixels."""
    if pair.R is None or pair.t is None or pair.camera0 is None or pair.camera1 is None:
        raise ValueError(
            f"pair must have cameras and a true pose, got {pair.name0} - {pair.name1} without"
        )
    E, cameras = RelativePose(pair.R, pair.t).essential(), (pair.camera0, pair.camera1)
    planes = [
        np.column_stack([camera.unproject(points), np.ones(len(points))])
        for camera, points in zip(cameras, centres, strict=True)
    ]

    def distance(edges: IndexArray) -> FloatArray:
        a, b = planes[0][edges[:, 0]], planes[1][edges[:, 1]]
        lines1, lines0 = a @ E.T, b @ E
        residual = np.abs((b * lines1).sum(axis=1))
        off = [
            residual * camera.focal / np.maximum(np.linalg.norm(lines[:, :2], axis=1), 1e-12)
            for camera, lines in zip(cameras, (lines0, lines1), strict=True)
        ]
        return np.asarray(np.maximum(off[0], off[1]) / tau_px)

    return _Judge(distance, np.ones(len(centres[0]), dtype=bool))


def _kept(rows: tuple[Any, ...], judge: _Judge, k: int) -> dict[str, Any]:
    """Count first true matches by K, and list those beyond a clearly wrong nearest neighbour."""
    edges, _, ranks = associate(rows[0], rows[1], k)
    distance = judge.distance(edges)
    true = distance < 1.0
    first = np.full(len(rows[0]), k + 1)
    np.minimum.at(first, edges[true, 0], ranks[true])
    counted = first[judge.has_partner]
    nearest, _, _ = associate(rows[0], rows[1], 1, "oneway")
    choice = np.full(len(rows[0]), -1)
    choice[nearest[:, 0]] = nearest[:, 1]
    wrong = np.zeros(len(rows[0]), dtype=bool)
    wrong[nearest[:, 0]] = judge.distance(nearest) > _CLEARLY
    lines = []
    for (i, j), rank in zip(edges[true].tolist(), ranks[true].tolist(), strict=True):
        if rank > 1 and rank == first[i] and wrong[i]:
            lines.append((i, j, int(choice[i]), rank))
            wrong[i] = False
    return {
        "with_partner": int(judge.has_partner.sum()),
        "first_rank": np.bincount(counted, minlength=k + 2)[1 : k + 1].tolist(),
        "lines": lines,
    }


def _spread(
    lines: list[tuple[int, int, int, int]], points: FloatArray, count: int
) -> list[tuple[int, int, int, int]]:
    """Choose lines whose starts are far from each other, one after the other."""
    if not lines:
        return []
    places = points[[line[0] for line in lines]]
    chosen = [int(np.argmin(np.linalg.norm(places - places.mean(axis=0), axis=1)))]
    nearest = np.linalg.norm(places - places[chosen[0]], axis=1)
    while len(chosen) < min(count, len(lines)):
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, np.linalg.norm(places - places[chosen[-1]], axis=1))
    return [lines[n] for n in chosen]


def teaser(data: dict[str, Any]) -> style.Figure:
    """Two images coloured by their features, with lines between them."""
    from matplotlib import patheffects

    first, second = (picture["size"] for picture in data["images"])
    gap = _GAP * first[0]
    width, height = first[0] + gap + second[0], max(first[1], second[1])
    figure = style.new_figure(style.PAGE_CM, style.PAGE_CM * height / width + 1.3)
    axis = figure.add_subplot()
    starts = (0.0, first[0] + gap)
    for picture, overlay, left in zip(data["images"], data["overlays"], starts, strict=True):
        style.show(axis, picture, overlay, opacity=0.55, left=left)
    look: dict[str, Any] = {"marker": "o", "markersize": 3, "markeredgecolor": "white"}
    halo = patheffects.Stroke(linewidth=2.2, foreground="white", alpha=0.6)
    look |= {"markeredgewidth": 0.4, "linewidth": 1.3}
    look["path_effects"] = [halo, patheffects.Normal()]
    words: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5, "color": "white"}
    words |= {"va": "center", "bbox": {"boxstyle": "round,pad=0.12", "fc": _GREEN, "ec": "none"}}
    for line in data["lines"]:
        x, y = line["point0"]
        for end, colour, dashes in (("wrong", _ORANGE, (0, (4, 2))), ("right", _GREEN, "-")):
            u, v = line[end]
            axis.plot([x, u + starts[1]], [y, v], color=colour, linestyle=dashes, **look)
        place = (line["right"][0] + starts[1], line["right"][1])
        axis.annotate(str(line["rank"]), place, (4, 0), **words)
    axis.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
    axis.set_axis_off()
    axis.set_title(data["title"])
    handles = [
        style.legend_line("true match, with the K that first keeps it", color=_GREEN),
        style.legend_line("nearest neighbour, wrong", color=_ORANGE, linestyle="--"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


FIGURES = {"teaser": teaser}

"""True matches below rank one, beside the wrong ones that rank-one matching takes instead."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import BoolArray, FloatArray, IndexArray, integer
from manymatch.associate.neighbours import associate
from manymatch.evaluate.tables import Table
from manymatch.io.image import load_image
from manymatch_paper.experiments._dense_pairs import angle_deg
from manymatch_paper.experiments._pictures import overlays, photograph
from manymatch_paper.experiments.teaser_figure import FIGURES
from manymatch_paper.measures.recall import PatchTruth

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch.datasets.dataset import Dataset
    from manymatch.features.maps import FeatureMap
    from manymatch.io.pairs import Pair
    from manymatch_paper.experiments._dense_pairs import PatchSource

__all__ = ["FIGURES", "notes", "run", "tables"]

# A rank-one choice counts as wrong beyond that many thresholds: no doubtful case is shown.
_CLEARLY = 3.0


def run(
    dataset: Dataset,
    index: int,
    source: PatchSource,
    *,
    k: int = 5,
    tau_cm: float = 5.0,
    tau_px: float = 4.0,
    count: int = 8,
) -> dict[str, Any]:
    """Find true matches that only further candidates keep.

    Parameters
    ----------
    dataset : Dataset
        Of which one pair, with its true pose, is shown. With depth a match is true if its patches
        are at the same place in space; without, if it fits the true epipolar geometry, which a
        wrong match may do as well.
    index : int
        Which pair, from 0.
    source : PatchSource
        With one layer and one rank.
    k : int
        Candidates a patch.
    tau_cm : float
        Distance in space below which a match is true, in centimetres.
    tau_px : float
        Distance from the epipolar lines below which it fits, in pixels, where depth is missing.
    count : int
        Lines to draw.

    Returns
    -------
    dict
        What the figure and the table need, as JSON types, pictures included.
    """
    integer(k, "k", 2)
    integer(index, "pair", 0, len(dataset) - 1)
    pair = dataset.pairs[index]
    if pair.rot0 or pair.rot1:
        raise ValueError(f"pair must be upright, got {pair.rot0} and {pair.rot1} quarter turns")
    images = [load_image(path) for path in (pair.path0, pair.path1)]
    sizes = (dataset.longest0, dataset.longest1)
    (layer,), (rank,) = source.layers, source.ranks
    dense = [
        source.corrected_map(source.maps(image, longest), layer, rank)
        for image, longest in zip(images, sizes, strict=True)
    ]
    centres, rows = zip(
        *(_patches(found, image.shape) for found, image in zip(dense, images, strict=True)),
        strict=True,
    )
    has_depth = dataset.depth is not None and bool(pair.extra.get("depth", True))
    judge = (
        _by_depth(dataset, pair, centres, tau_cm) if has_depth else _by_pose(pair, centres, tau_px)
    )
    found = _kept(rows, judge, k)
    return {
        "title": f"{dataset.title}, {pair.name0} and {pair.name1}, {angle_deg(pair):.0f}° apart",
        "backbone": source.backbone.name,
        "layer": layer,
        "rank": rank,
        "k": k,
        "judge": "depth" if has_depth else "pose",
        "tau": tau_cm if has_depth else tau_px,
        "images": [photograph(image) for image in images],
        "overlays": overlays(*dense),
        "patches": len(centres[0]),
        "with_partner": found["with_partner"],
        "first_rank": found["first_rank"],
        "lines": [
            {
                "point0": centres[0][i].tolist(),
                "right": centres[1][right].tolist(),
                "wrong": centres[1][wrong].tolist(),
                "rank": r,
            }
            for i, right, wrong, r in _spread(found["lines"], centres[0], count)
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


def _by_depth(
    dataset: Dataset, pair: Pair, centres: tuple[FloatArray, ...], tau_cm: float
) -> _Judge:
    if dataset.depth is None:
        raise ValueError(f"set must have depth, got {dataset.title!r}, which has none")
    points = [dataset.depth(pair, side).points(centres[side]) for side in (0, 1)]
    truth = PatchTruth.of(points[0], points[1], [tau_cm])
    return _Judge(lambda edges: truth.distances(edges) / truth.taus_m[0], truth.eligible(0)[0])


def _by_pose(pair: Pair, centres: tuple[FloatArray, ...], tau_px: float) -> _Judge:
    """Judge by the larger distance to the two epipolar lines, in pixels."""
    if pair.R is None or pair.t is None or pair.camera0 is None or pair.camera1 is None:
        raise ValueError(
            f"pair must have cameras and a true pose, got {pair.name0} - {pair.name1} without"
        )
    x, y, z = pair.t
    E = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ pair.R
    planes = [
        np.column_stack([camera.unproject(points), np.ones(len(points))])
        for camera, points in zip((pair.camera0, pair.camera1), centres, strict=True)
    ]

    def distance(edges: IndexArray) -> FloatArray:
        a, b = planes[0][edges[:, 0]], planes[1][edges[:, 1]]
        lines1, lines0 = a @ E.T, b @ E
        residual = np.abs((b * lines1).sum(axis=1))
        off = [
            residual * camera.focal / np.maximum(np.linalg.norm(lines[:, :2], axis=1), 1e-12)
            for camera, lines in ((pair.camera0, lines0), (pair.camera1, lines1))
            if camera is not None
        ]
        return np.asarray(np.maximum(off[0], off[1]) / tau_px)

    return _Judge(distance, np.ones(len(centres[0]), dtype=bool))


def _patches(
    dense: FeatureMap, shape: tuple[int, ...]
) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.float32]]]:
    centres = dense.centres()
    inside = ((centres >= -0.5) & (centres <= (shape[1] - 0.5, shape[0] - 0.5))).all(axis=1)
    return centres[inside], np.ascontiguousarray(dense.values.reshape(dense.dim, -1).T[inside])


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

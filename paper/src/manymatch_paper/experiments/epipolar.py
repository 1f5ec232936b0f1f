"""An inlier association under the true pose is not necessarily real: one example, and how often.

The example is a made street, whose depth says where the match of a keypoint is. The numbers are
for any sets: how often associations that are false are inliers of the true pose, which the paper
calls δ and takes to be 0.01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import __version__
from manymatch._validate import integer
from manymatch.estimate.options import Options
from manymatch.evaluate.statistics import bootstrap_interval
from manymatch.evaluate.tables import Table
from manymatch_paper.experiments._cells import missing_rows
from manymatch_paper.experiments._epipolar_example import made_example
from manymatch_paper.experiments._false_inliers import APART_PX, count_false_inliers
from manymatch_paper.experiments._runs import missing_list
from manymatch_paper.experiments.epipolar_figure import FIGURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from manymatch._validate import FloatArray
    from manymatch.evaluate.sources import GraphSource
    from manymatch.evaluate.tables import Cell

__all__ = ["FIGURES", "notes", "run", "tables"]

_SIZE = (640, 480)


def run(
    sources: Sequence[GraphSource] = (),
    *,
    seed: int = 2,
    draws: int = 20_000,
    limit: int | None = None,
    progress: Callable[[str, int, int], object] | None = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Make the example and measure δ.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets on which δ is measured.
    seed : int
        Of the made street of the example.
    draws : int
        Random pairs of keypoints a pair of images.
    limit : int, optional
        Only the first pairs of each set.
    progress : callable, optional
        Called with (label, finished, total).
    missing : sequence of {"set", "why"}
        Sets that were asked for and are not here.

    Returns
    -------
    dict
        What `tables` and the figure need, as JSON types.
    """
    options = Options()
    integer(draws, "draws", 1)
    return {
        "settings": {
            "threshold_px": options.threshold_px,
            "assumed": options.delta,
            "draws": draws,
            "apart_px": APART_PX,
            "limit": limit,
            "version": __version__,
        },
        "example": made_example(seed, _SIZE, options.threshold_px),
        "sets": [_measured(source, options, draws, limit, progress) for source in sources],
        "missing": missing_list(missing),
    }


def tables(data: dict[str, Any]) -> list[Table]:
    """Show the example in numbers, and δ of every set."""
    made = [_example_table(data["example"])]
    return [*made, _delta_table(data)] if data["sets"] or data["missing"] else made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was measured."""
    settings = data["settings"]
    sentences = [
        "The example is a made street: its depth says where the keypoint's match is, and a "
        "candidate of SIFT elsewhere on the epipolar line passes the same test."
    ]
    if data["sets"]:
        sentences.append(
            f"δ is the share of inliers under the true pose, at {settings['threshold_px']:g} px "
            "of the working size, among associations that are false: random pairs of keypoints "
            "that are no candidates, and candidates more than "
            f"{settings['apart_px']:g} px from a keypoint's best one where that is an inlier. "
            "The second is rather too large: where the best one is an inlier by chance, a real "
            "candidate counts among the false ones."
        )
    if settings["limit"]:
        sentences.append(f"Only the first {settings['limit']} pairs of each set were used.")
    sentences += [f"{entry['set']} was not run: {entry['why']}" for entry in data["missing"]]
    return sentences


def _measured(
    source: GraphSource,
    options: Options,
    draws: int,
    limit: int | None,
    progress: Callable[[str, int, int], object] | None,
) -> dict[str, Any]:
    total = len(source) if limit is None else min(limit, len(source))
    label = f"{source.representation}, {source.title}"
    counts = np.zeros((total, 4), dtype=np.int64)
    for i in range(total):
        if progress is not None:
            progress(label, i, total)
        found = count_false_inliers(source[i], options, draws)
        counts[i] = (found.drawn, found.drawn_inliers, found.rivals, found.rival_inliers)
    if progress is not None:
        progress(label, total, total)
    return {
        "name": source.name,
        "title": source.title,
        "representation": source.representation,
        "pairs": total,
        "random": _share(counts[:, :2]),
        "rivals": _share(counts[:, 2:]),
    }


def _share(counts: np.ndarray) -> dict[str, Any]:
    """Inliers of all, pooled over pairs, with an interval that resamples pairs; None of nothing."""
    total, inliers = (int(n) for n in counts.sum(axis=0))
    if total == 0:
        return {"count": 0, "share": None, "low": None, "high": None}

    def pooled(rows: FloatArray) -> float:
        return float(rows[:, 1].sum() / max(rows[:, 0].sum(), 1.0))

    interval = bootstrap_interval(counts.astype(np.float64), pooled)
    return {
        "count": total,
        "share": inliers / total,
        "low": interval.low,
        "high": interval.high,
    }


def _example_table(example: dict[str, Any]) -> Table:
    rows: list[Sequence[str | Cell]] = []
    line, truth = np.array(example["line"]), np.array(example["truth"])
    for title, name, of in (
        ("true match", "truth", "true_"),
        ("false candidate", "false", ""),
    ):
        point = np.array(example[name])
        similarity, rank = example[f"{of}similarity"], example[f"{of}rank"]
        rows.append(
            [
                title,
                f"({point[0]:.1f}, {point[1]:.1f})",
                f"{abs(line[:2] @ point + line[2]):.2f}",
                f"{np.linalg.norm(point - truth):.1f}",
                "–" if similarity is None else f"{similarity:.3f}",
                "–" if rank is None else str(rank),
            ]
        )
    return Table(
        f"A keypoint of the made street {example['seed']}, its match and a false candidate",
        [
            "Place",
            "pixel of image 1",
            "from the epipolar line (px)",
            "from the true place (px)",
            "similarity",
            "rank",
        ],
        rows,
        [
            f"Both are inliers of the true pose at {example['threshold_px']:g} px. Similarity and "
            "rank are those of SIFT's candidates; a dash where no keypoint is."
        ],
    )


def _delta_table(data: dict[str, Any]) -> Table:
    header = ["Set", "representation", "pairs", "random pairs", "false candidates", "of"]
    rows: list[Sequence[str | Cell]] = [
        [
            entry["title"],
            entry["representation"],
            str(entry["pairs"]),
            _text(entry["random"]),
            _text(entry["rivals"]),
            f"{entry['rivals']['count']:,}",
        ]
        for entry in data["sets"]
    ]
    rows += missing_rows(data, len(header))
    return Table(
        f"Measured δ; the paper assumes {data['settings']['assumed']:g}",
        header,
        rows,
        ["In brackets 95 % intervals that resample pairs of images."],
    )


def _text(share: dict[str, Any]) -> str:
    if share["share"] is None:
        return "–"
    return f"{share['share']:.4f} [{share['low']:.4f}, {share['high']:.4f}]"

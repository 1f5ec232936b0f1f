"""What layer and debias rank do to features, as colours of one PCA a column for both views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.io.image import load_image
from manymatch_paper.experiments._dense_pairs import angle_deg
from manymatch_paper.experiments._pictures import overlays, photograph
from manymatch_paper.experiments.qualitative_figure import FIGURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.datasets.dataset import Dataset
    from manymatch.evaluate.tables import Table
    from manymatch.io.pairs import Pair
    from manymatch_paper.experiments._dense_pairs import PatchSource

__all__ = ["FIGURES", "notes", "run", "tables"]


def run(
    dataset: Dataset,
    pairs: Sequence[int],
    source: PatchSource,
    *,
    layer: int,
    against: int,
    rank: int,
) -> dict[str, Any]:
    """Compute the colours of some pairs.

    Parameters
    ----------
    dataset : Dataset
        Depth is not needed.
    pairs : sequence of int
        Which ones, from 0.
    source : PatchSource
        With both layers.
    layer, against : int
        The layer that was selected, and the one it is compared with at the same rank.
    rank : int
        Debias rank, compared with none at the selected layer.

    Returns
    -------
    dict
        What the figure needs, as JSON types, pictures included.
    """
    settings = [(against, rank), (layer, rank), (layer, 0), (layer, rank)]
    examples = []
    for index in pairs:
        if not 0 <= index < len(dataset):
            raise ValueError(f"pair must be in [0, {len(dataset) - 1}], got {index}")
        pair = dataset.pairs[index]
        images = [
            np.ascontiguousarray(np.rot90(load_image(path), turns))
            for path, turns in ((pair.path0, pair.rot0), (pair.path1, pair.rot1))
        ]
        maps = [
            source.maps(image, longest)
            for image, longest in zip(images, (dataset.longest0, dataset.longest1), strict=True)
        ]
        examples.append(
            {
                "title": _title(dataset, pair),
                "images": [photograph(image) for image in images],
                "columns": [
                    {
                        "layer": block,
                        "rank": s,
                        "overlays": overlays(
                            *(source.corrected_map(found, block, s) for found in maps)
                        ),
                    }
                    for block, s in settings
                ],
            }
        )
    return {
        "backbone": source.backbone.name,
        "layer": layer,
        "against": against,
        "rank": rank,
        "examples": examples,
        "notes": list(source.notes),
    }


def tables(data: dict[str, Any]) -> list[Table]:  # noqa: ARG001 - every experiment has it
    """Return none: this experiment is a picture."""
    return []


def notes(data: dict[str, Any]) -> list[str]:
    """Say how to read the colours."""
    return [
        "One PCA a column and example, fitted to both images; its first three components are "
        "stretched from the 1st to the 99th percentile. Colours compare within a column, not "
        "across columns.",
        f"{data['backbone']}: left bracket layer {data['against']} against {data['layer']} at "
        f"rank {data['rank']}, right bracket rank 0 against {data['rank']} at layer "
        f"{data['layer']}.",
        *data["notes"],
    ]


def _title(dataset: Dataset, pair: Pair) -> str:
    words = [dataset.title, *([pair.scene] if pair.scene else [])]
    if "bin" in pair.extra:
        words.append(f"bin {pair.extra['bin']}")
    if pair.has_truth or "angle_deg" in pair.extra:
        words.append(f"{angle_deg(pair):.0f}° apart")
    return ", ".join(words)

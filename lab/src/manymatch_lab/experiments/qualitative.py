"""What layer and debias rank do to features, as colours of one PCA a column for both views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from manymatch.io.image import load_image
from manymatch_lab import dense_pairs, style
from manymatch_lab.evaluate.protocol import unequal
from manymatch_lab.evaluate.tables import Table

QUESTION = "What do layer and debias rank do to features, as colours?"
EXAMPLE = (
    "manymatch-lab qualitative pairs_folder --pair 0 --pair 1 --backbone efficientnet-lite0 "
    "--layer 10 --against 7 --debias 10"
)

# The paper's, the last one of its backbone.
_AGAINST = 24


def run(
    one: dense_pairs.OneSet,
    *,
    pair: Annotated[Sequence[int], "Number of a pair, from 0; may be repeated."] = (0,),
    backbone: dense_pairs.Backbone = dense_pairs.PAPER_BACKBONE,
    layer: Annotated[int, "The selected block, from 1."] = dense_pairs.PAPER_LAYER,
    against: Annotated[int, "The block that it is compared with at the same rank."] = _AGAINST,
    debias: Annotated[
        int, "Rank of the positional subspace, compared with none at the selected block."
    ] = dense_pairs.PAPER_RANK,
    settings: dense_pairs.PatchSettings | None = None,
) -> dict[str, Any]:
    """Colour pairs of images by one PCA of their features: two layers, then two debias ranks."""
    choice = dense_pairs.Choice(backbone, tuple(sorted({layer, against})), (0, debias))
    source = dense_pairs.PatchExtractor(choice, settings)
    columns = [(against, debias), (layer, debias), (layer, 0), (layer, debias)]
    examples = []
    dataset = one.dataset
    for index in pair:
        chosen = one.pair(index)
        sides = (
            (chosen.path0, chosen.rot0, dataset.longest0),
            (chosen.path1, chosen.rot1, dataset.longest1),
        )
        images, maps = [], []
        for path, turns, longest in sides:
            images.append(np.ascontiguousarray(np.rot90(load_image(path), turns)))
            maps.append(source.maps(images[-1], longest))
        words = [dataset.title, *([chosen.scene] if chosen.scene else [])]
        words += [f"bin {chosen.extra['bin']}"] if "bin" in chosen.extra else []
        if chosen.has_truth or "angle_deg" in chosen.extra:
            words.append(f"{dense_pairs.angle_deg(chosen):.0f}° apart")
        coloured = []
        for block, s in columns:
            overlays = style.overlays(*(source.corrected_map(found, block, s) for found in maps))
            coloured.append({"layer": block, "rank": s, "overlays": overlays})
        photographs = [style.photograph(image) for image in images]
        title = ", ".join(words)
        examples.append({"title": title, "images": photographs, "columns": coloured})
    return {
        "differs_from_paper": [
            *unequal("backbone", source.backbone.name, dense_pairs.PAPER_BACKBONE),
            *unequal("layer", layer, dense_pairs.PAPER_LAYER),
            *unequal("against", against, _AGAINST),
            *unequal("debias", debias, dense_pairs.PAPER_RANK),
            "pairs of your choice",
        ],
        "backbone": source.backbone.name,
        "layer": layer,
        "against": against,
        "rank": debias,
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


# All in centimetres.
_GAP, _HEAD, _BRACKETS, _WIDE = 0.12, 0.55, 1.25, 0.5


def qualitative(data: dict[str, Any]) -> style.Figure:
    """Two rows of five pictures an example: the images, two layers, two ranks."""
    column = (style.PAGE_CM - 4 * _GAP - 2 * _WIDE) / 5
    lefts = [_GAP]
    for gap in (_WIDE, _GAP, _WIDE, _GAP):
        lefts.append(lefts[-1] + column + gap)
    heights = [
        [column * picture["size"][1] / picture["size"][0] for picture in example["images"]]
        for example in data["examples"]
    ]
    height = _BRACKETS + sum(_HEAD + sum(both) + 2 * _GAP for both in heights)
    figure = style.new_figure(style.PAGE_CM, height)
    figure.set_layout_engine("none")
    top = height - _BRACKETS
    _brackets(figure, data, lefts, column, height)
    for example, both in zip(data["examples"], heights, strict=True):
        place = (_GAP / style.PAGE_CM, (top - 0.6 * _HEAD) / height)
        figure.text(*place, example["title"], fontsize=7.5, va="center")
        top -= _HEAD
        for side, rows in enumerate(both):
            top -= rows
            for number, left in enumerate(lefts):
                axis = figure.add_axes(
                    (left / style.PAGE_CM, top / height, column / style.PAGE_CM, rows / height)
                )
                overlay = None if number == 0 else example["columns"][number - 1]["overlays"][side]
                style.show(axis, example["images"][side], overlay)
                width, length = example["images"][side]["size"]
                axis.set(xlim=(-0.5, width - 0.5), ylim=(length - 0.5, -0.5))
                axis.set_axis_off()
            top -= _GAP
    return figure


def _brackets(
    figure: style.Figure, data: dict[str, Any], lefts: list[float], column: float, height: float
) -> None:
    """Write what is compared above the columns."""
    from matplotlib.lines import Line2D

    rank, layer = data["rank"], data["layer"]
    columns = [(data["against"], rank), (layer, rank), (layer, 0), (layer, rank)]
    names = ["image", *(f"layer {block}, s = {s}" for block, s in columns)]
    for left, name in zip(lefts, names, strict=True):
        place = ((left + column / 2) / style.PAGE_CM, (height - 0.95) / height)
        figure.text(*place, name, ha="center", va="center", fontsize=7.5)
    for first, text in ((1, f"layers, {data['backbone']}"), (3, "debiasing")):
        start, end = lefts[first], lefts[first + 1] + column
        y, tick = (height - 0.55) / height, 0.12 / height
        ends = [x / style.PAGE_CM for x in (start, start, end, end)]
        figure.add_artist(Line2D(ends, [y - tick, y, y, y - tick], color=style.INK, linewidth=0.8))
        middle = ((start + end) / 2 / style.PAGE_CM, (height - 0.28) / height)
        figure.text(*middle, text, ha="center", va="center", fontsize=8)


FIGURES = {"qualitative": qualitative}

"""The epipolar-line example: a point, its line, its match, and a false candidate on the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch_paper.experiments._epipolar_example import decoded
from manymatch_paper.experiments.style import INK, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_POINT, _TRUE, _FALSE, _LINE = "#e69f00", "#009e73", "#d55e00", "#56b4e9"
# Half the height of the enlarged surroundings in pixels, and how much wider they are.
_HALF_PX, _WIDE = 28, 1.75


def epipolar_line(data: dict[str, Any]) -> Figure:
    """Draw both images with the line, and the three places enlarged."""
    example = data["example"]
    images = [decoded(text) for text in example["images"]]
    points = {name: np.array(example[name]) for name in ("point0", "truth", "false", "line")}
    figure = new_figure(PAGE_CM, 10.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(2.0, 1.0))
    top, bottom = parts
    axes = top.subplots(1, 2)
    for axis, image, title in zip(
        axes, images, ("image 0: a keypoint", "image 1: its epipolar line"), strict=True
    ):
        axis.imshow(image, interpolation="lanczos")
        axis.set_title(title, loc="left")
        _plain(axis, image.shape)
    _ring(axes[0], points["point0"], _POINT)
    _draw_line(axes[1], points["line"], images[1].shape)
    _ring(axes[1], points["truth"], _TRUE)
    _ring(axes[1], points["false"], _FALSE)
    threshold = example["threshold_px"]
    places = (
        (images[0], points["point0"], _POINT, "the keypoint", False),
        (images[1], points["truth"], _TRUE, "true match", True),
        (images[1], points["false"], _FALSE, "false candidate", True),
    )
    for axis, (image, point, colour, title, other) in zip(
        bottom.subplots(1, 3), places, strict=True
    ):
        axis.imshow(image, interpolation="lanczos")
        _plain(axis, image.shape)
        axis.set_xlim(point[0] - _HALF_PX * _WIDE, point[0] + _HALF_PX * _WIDE)
        axis.set_ylim(point[1] + _HALF_PX, point[1] - _HALF_PX)
        text = title
        if other:
            _draw_line(axis, points["line"], image.shape, band=threshold)
            off = abs(float(points["line"][:2] @ point + points["line"][2]))
            text += f": {off:.2f} px off the line"
        _ring(axis, point, colour, size=9)
        axis.set_title(text, loc="left")
        for spine in axis.spines.values():
            spine.set(visible=True, color=colour, linewidth=1.4)
    return figure


def _plain(axis: Any, shape: tuple[int, ...]) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_xlim(-0.5, shape[1] - 0.5)
    axis.set_ylim(shape[0] - 0.5, -0.5)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _ring(axis: Any, point: Any, colour: str, size: float = 7.0) -> None:
    for width, edge in ((3.0, "white"), (1.5, colour)):
        axis.plot(
            *point,
            "o",
            markersize=size,
            markerfacecolor="none",
            markeredgecolor=edge,
            markeredgewidth=width,
        )
    axis.plot(*point, "o", markersize=1.6, color=colour, markeredgecolor="none")


def _draw_line(axis: Any, line: Any, shape: tuple[int, ...], band: float | None = None) -> None:
    """Draw a x + b y + c = 0 within an image, and dashed what is `band` pixels away from it."""
    a, b, c = map(float, line)
    length = float(np.hypot(shape[0], shape[1]))
    foot = np.array([-a * c, -b * c])
    centre = np.array([shape[1], shape[0]]) / 2.0
    along = np.array([-b, a])
    middle = foot + along * float(along @ (centre - foot))
    ends = np.stack([middle - along * length, middle + along * length])
    axis.plot(*ends.T, color="white", linewidth=2.4, alpha=0.75)
    axis.plot(*ends.T, color=_LINE, linewidth=1.2)
    for side in () if band is None else (-band, band):
        shifted = ends + side * np.array([a, b])
        axis.plot(*shifted.T, color=INK, linewidth=0.6, linestyle=(0, (4, 3)))


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {"epipolar_line": epipolar_line}

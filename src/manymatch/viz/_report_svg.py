"""The report's small drawings as inline SVG: residuals, and the two cameras from above and aside.

Colours come from the page's style sheet through classes, so that they follow light and dark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manymatch.geometry.pose_words import camera_centre
from manymatch.viz._report_data import CHOSEN, CONSISTENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch.geometry.pose import RelativePose

_BINS_TO_THRESHOLD = 10
_THRESHOLDS = 3  # as far as the axis goes
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 380, 190, 32, 14, 26, 24


def histogram(residual_px: FloatArray, states: NDArray[np.int64], threshold_px: float) -> str:
    """Draw the Sampson distances of all, of the consistent and of the chosen candidates."""
    end = _THRESHOLDS * threshold_px
    edges = np.linspace(0.0, end, _THRESHOLDS * _BINS_TO_THRESHOLD + 1)
    groups = (
        ("all", residual_px),
        ("consistent", residual_px[states >= CONSISTENT]),
        ("chosen", residual_px[states == CHOSEN]),
    )
    counts = [np.histogram(values[values <= end], edges)[0] for _, values in groups]
    top = max(int(counts[0].max(initial=0)), 1)
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - _TOP
    step = inner_width / (len(edges) - 1)
    parts = []
    for mark in _ticks(top):
        y = _TOP + inner_height * (1.0 - mark / top)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>'
        )
    for (name, _), values in zip(groups, counts, strict=True):
        for k, count in enumerate(values):
            height = inner_height * count / top
            if count:
                parts.append(
                    f'<rect class="bar-{name}" x="{_LEFT + k * step + 0.75:.1f}" '
                    f'y="{_TOP + inner_height - height:.1f}" width="{step - 1.5:.1f}" '
                    f'height="{height:.1f}" rx="1"/>'
                )
    for k in range(_THRESHOLDS + 1):
        x = _LEFT + k * inner_width / _THRESHOLDS
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle">'
            f"{k * threshold_px:g}{' px' if k == _THRESHOLDS else ''}</text>"
        )
    x = _LEFT + inner_width / _THRESHOLDS
    parts.append(
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" '
        f'y2="{_HEIGHT - _BOTTOM}"/><text class="mark-text" x="{x + 6:.1f}" y="{_TOP - 2}">'
        f"threshold {threshold_px:g} px</text>"
    )
    label = f"Histogram of Sampson distances up to {end:g} pixels"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _ticks(top: int) -> list[int]:
    """Return two or three round numbers up to top."""
    size = 10 ** (len(str(top)) - 1)
    for step in (size * 5, size * 2, size, size // 2, size // 5):
        if step and top // step >= 2:
            return [k * step for k in range(1, top // step + 1)]
    return [top]


def pose_views(pose: RelativePose) -> str:
    """Draw both cameras from above (forward is up) and from the right (forward is right)."""
    centre = camera_centre(pose)
    axes = pose.R.T
    return (
        '<div class="views">'
        + _view("from above", centre[[0, 2]] * (1, -1), axes[[0, 2], 2] * (1, -1))
        + _view("from the side", centre[[2, 1]], axes[[2, 1], 2])
        + "</div>"
    )


def _view(name: str, centre: FloatArray, forward: FloatArray) -> str:
    """Draw camera 0 at the origin and camera 1 at centre (2,), x to the right and y down."""
    ahead = np.array([0.0, -1.0]) if name == "from above" else np.array([1.0, 0.0])
    middle = np.array([90.0, 74.0])
    scale = 72.0
    first = middle - scale * centre / 2.0
    second = middle + scale * centre / 2.0
    # Cameras behind one another would write their numbers on the same spot.
    apart = 0.0 if np.hypot(*centre) > 0.3 else 9.0
    return (
        f'<figure><svg viewBox="0 0 180 148" role="img" aria-label="The two cameras {name}">'
        f'<line class="baseline" x1="{first[0]:.1f}" y1="{first[1]:.1f}" x2="{second[0]:.1f}" '
        f'y2="{second[1]:.1f}"/>{_camera(first, ahead, 0, -apart)}'
        f"{_camera(second, forward, 1, apart)}</svg>"
        f"<figcaption>{name}</figcaption></figure>"
    )


def _camera(centre: FloatArray, forward: FloatArray, number: int, aside: float) -> str:
    """Draw a camera as a wedge that opens where it looks, foreshortened where it looks away."""
    length = float(np.hypot(*forward))
    across = np.array([-forward[1], forward[0]]) / max(length, 1e-9)
    tip = centre + 30.0 * forward
    a, b = tip + 15.0 * across, tip - 15.0 * across
    label = centre - 13.0 * forward / max(length, 1e-9) + (aside, aside)
    return (
        f'<path class="camera{number}" d="M{centre[0]:.1f} {centre[1]:.1f}L{a[0]:.1f} {a[1]:.1f}'
        f'L{b[0]:.1f} {b[1]:.1f}Z"/><circle class="dot{number}" cx="{centre[0]:.1f}" '
        f'cy="{centre[1]:.1f}" r="3.5"/><text class="label{number}" x="{label[0]:.1f}" '
        f'y="{label[1] + 4:.1f}" text-anchor="middle">{number}</text>'
    )

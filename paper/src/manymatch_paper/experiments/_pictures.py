"""Pictures inside JSON, so that a figure with photographs can be drawn again from it alone."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.io.image import load_image, require_pillow
from manymatch.viz.features import pca_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from manymatch.features.maps import FeatureMap

# Longer edge of a photograph as it is kept, in pixels: more than a column of a page shows.
_LONGEST = 640


def photograph(image: NDArray[np.uint8]) -> dict[str, Any]:
    """Keep an (H, W, 3) image as JPEG text, with its own width and height."""
    picture = require_pillow().fromarray(image)
    size = picture.size
    picture.thumbnail((_LONGEST, _LONGEST))
    return {"size": list(size), "jpeg": _text(picture, "JPEG", quality=88)}


def overlays(map0: FeatureMap, map1: FeatureMap) -> list[dict[str, Any]]:
    """Colour two maps by one PCA, and keep the colours with the pixels that they cover."""
    result = []
    colours = pca_colours(map0.values, map1.values)
    for dense, colour in zip((map0, map1), colours, strict=True):
        rows, columns = dense.grid
        (x, y), (dx, dy) = dense.origin, dense.stride
        picture = require_pillow().fromarray(np.rint(255 * colour).astype(np.uint8))
        result.append(
            {
                "png": _text(picture, "PNG"),
                # Left, right, bottom, top in pixels of the image.
                "extent": [
                    x - dx / 2,
                    x + (columns - 0.5) * dx,
                    y + (rows - 0.5) * dy,
                    y - dy / 2,
                ],
            }
        )
    return result


def show(
    axis: Axes,
    picture: dict[str, Any],
    overlay: dict[str, Any] | None = None,
    *,
    opacity: float = 0.75,
    left: float = 0.0,
) -> None:
    """Draw a photograph, in grey under an overlay, from `left` on along x."""
    width, height = picture["size"]
    image = _array(picture["jpeg"])
    frame = (left - 0.5, left + width - 0.5, height - 0.5, -0.5)
    if overlay is None:
        axis.imshow(image, extent=frame)
        return
    axis.imshow(image.mean(axis=2), cmap="gray", vmin=0, vmax=255, extent=frame)
    x0, x1, y0, y1 = overlay["extent"]
    shown = axis.imshow(
        _array(overlay["png"]),
        extent=(x0 + left, x1 + left, y0, y1),
        alpha=opacity,
        interpolation="bilinear",
    )
    # Cells may reach beyond the image.
    from matplotlib.patches import Rectangle

    shown.set_clip_path(Rectangle((frame[0], -0.5), width, height, transform=axis.transData))


def _text(picture: Any, form: str, **settings: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, form, **settings)
    return base64.b64encode(buffer.getvalue()).decode()


def _array(text: str) -> NDArray[np.uint8]:
    return load_image(require_pillow().open(io.BytesIO(base64.b64decode(text))))

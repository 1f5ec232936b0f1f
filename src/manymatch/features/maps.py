"""Dense maps of descriptors that know where their cells are, and how backbones compute them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch._validate import BoolArray, FloatArray, float_array, integer, refusal
from manymatch.features.device import Device, inference, require_torch
from manymatch.features.network import Network
from manymatch.features.resize import Frame, Resize, resize_image

if TYPE_CHECKING:
    from manymatch.features.backbones import Backbone

_Float = TypeVar("_Float", np.float32, np.float64)
# Cells within this many of the hull's edge count as on it: rounding in the change of frames.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureMap:
    """Descriptors on a regular grid over the user's image.

    Attributes
    ----------
    values : (D, rows, columns) float32 ndarray
        One descriptor per cell.
    origin : (float, float)
        Centre (x, y) of cell (0, 0) in pixels of the user's image; the centre of its top-left
        pixel is (0, 0).
    stride : (float, float)
        Pixels of the user's image per cell, along x and y.
    input_size : (int, int) or None
        Width and height of what the network saw, padding included, for a map that a network made.
    """

    values: NDArray[np.float32]
    origin: tuple[float, float]
    stride: tuple[float, float]
    input_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or 0 in self.values.shape:
            raise refusal("values", "a (D, rows, columns) array without empty axes", self.values)
        if not min(self.stride) > 0.0:
            raise refusal("stride", "two positive numbers of pixels", self.stride)

    @classmethod
    def of_network(cls, values: Any, frame: Frame, patch: float, origin: float) -> FeatureMap:
        """Place a network's (D, rows, columns) output on the image that went into it.

        `patch` are input pixels per cell, `origin` the centre of the first cell along either axis
        in input pixels: a patch of p pixels that starts at pixel 0 has (p - 1) / 2.
        """
        x, y = frame.to_original(np.array([[origin, origin]]))[0].tolist()
        dx, dy = (patch / frame.scale).tolist()
        return cls(values, (x, y), (dx, dy), frame.padded)

    @property
    def dim(self) -> int:
        """Length of a descriptor."""
        return int(self.values.shape[0])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.values.shape[1]), int(self.values.shape[2])

    def cells(self, points: ArrayLike) -> FloatArray:
        """Map (N, 2) pixels to (column, row) coordinates, whole numbers at the centres."""
        checked = float_array(points, "points", "an (N, 2) array of pixels", (None, 2))
        return (checked - self.origin) / self.stride

    def centres(self) -> FloatArray:
        """Centres of all cells, (rows * columns, 2) pixels, row by row."""
        rows, columns = self.grid
        y, x = np.mgrid[0:rows, 0:columns]
        return np.stack([x.ravel(), y.ravel()], axis=1) * self.stride + self.origin

    def inside(self, points: ArrayLike) -> BoolArray:
        """Tell which points lie in the hull of the cell centres, where sampling interpolates."""
        rows, columns = self.grid
        cells = self.cells(points)
        low, high = -_ROUNDING, np.array([columns - 1, rows - 1]) + _ROUNDING
        return np.asarray(((cells >= low) & (cells <= high)).all(axis=1))

    def sample(self, points: ArrayLike) -> NDArray[np.float32]:
        """Interpolate bilinearly at (N, 2) pixels (x, y) of the user's image.

        Outside the hull of the cell centres (see `inside`) the nearest point of the hull counts.
        The (N, D) float32 result is not normalised.
        """
        rows, columns = self.grid
        cells = np.clip(self.cells(points), 0.0, [columns - 1, rows - 1])
        # The last cell is reached with weight 1 from the one before it, where there is one.
        corner = np.minimum(cells.astype(np.int64), np.maximum([columns - 2, rows - 2], 0))
        x, y = corner[:, 0], corner[:, 1]
        right, below = np.minimum(x + 1, columns - 1), np.minimum(y + 1, rows - 1)
        u, v = (cells - corner).T.astype(np.float32)[:, :, None]
        # One row a cell, as reading whole rows is faster.
        flat = np.ascontiguousarray(self.values.reshape(self.dim, -1).T)
        corners = (
            y * columns + x,
            y * columns + right,
            below * columns + x,
            below * columns + right,
        )
        values = [flat.take(corner, axis=0) for corner in corners]
        upper = (1 - u) * values[0] + u * values[1]
        lower = (1 - u) * values[2] + u * values[3]
        return np.ascontiguousarray((1 - v) * upper + v * lower, dtype=np.float32)


def unit_rows(rows: NDArray[_Float]) -> NDArray[_Float]:
    """Scale (N, D) rows to length one; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(length > 0.0, length, 1.0)).astype(rows.dtype)


def dense_maps(
    images: Sequence[NDArray[np.uint8]],
    backbone: Backbone,
    layers: Sequence[int] | None = None,
    *,
    norm: bool = True,
    resize: Resize | None = None,
    precision: str = "float32",
    complete_only: bool = False,
) -> list[dict[int, FeatureMap]]:
    """Compute feature maps, several layers in one pass.

    Parameters
    ----------
    images : sequence of (H, W, 3) uint8 RGB arrays
        Of any sizes.
    backbone, layers, norm
        As in `Backbone.forward`, which runs where its module is; by default the last layer.
    resize : Resize, optional
        By default the backbone's own.
    precision : {"float32", "bfloat16", "float16"}
        Of products and convolutions.
    complete_only : bool
        Leave out the cells at the right and the bottom that hold padding beside pixels of the
        image. Maps of a backbone with a margin have none.

    Returns
    -------
    list of dict
        For every image the `FeatureMap` of every layer, in pixels of that image. Its cells are
        those that hold at least one pixel of the image. What an image lacks to whole patches is
        black, at the right and the bottom.
    """
    wanted = checked_layers(layers, backbone)
    policy = backbone.resize if resize is None else resize
    result = []
    for image in images:
        frame, pixels = _input(image, policy, backbone, wanted)
        maps = run_backbone(backbone, pixels[None], wanted, norm=norm, precision=precision)
        found = {}
        for layer, (values,) in maps.items():
            stride, first = backbone.stride_of(layer), first_cell(backbone, layer)
            start = backbone.origin_of(layer) + first * stride - backbone.margin
            if backbone.margin:
                # Until the centres enclose those of all pixels: mirrored cells are no worse.
                rows, columns = (
                    min(math.ceil((content - 1 - start) / stride) + 1, padded // stride - first)
                    for content, padded in zip(frame.content[::-1], frame.padded[::-1], strict=True)
                )
            else:
                spare = 0 if complete_only else stride - 1
                rows, columns = ((length + spare) // stride for length in frame.content[::-1])
            cells = values[:, first : first + rows, first : first + columns]
            whole = np.ascontiguousarray(cells)
            found[layer] = FeatureMap.of_network(whole, frame, stride, start)
        result.append(found)
    return result


def run_backbone(
    backbone: Backbone,
    pixels: NDArray[np.float32],
    layers: Sequence[int],
    *,
    norm: bool = True,
    precision: str = "float32",
) -> dict[int, NDArray[np.float32]]:
    """Run the network on normalised (B, 3, H, W) pixels and check what it returns."""
    outputs: dict[int, NDArray[np.float32]]
    if isinstance(backbone.module, Network):
        names = [backbone.values[layer] for layer in layers]
        found = backbone.module.run(names, {"pixels": pixels}, precision)
        outputs = dict(zip(layers, found, strict=True))
    else:
        torch, device = require_torch(), module_device(backbone.module)
        with inference(device, precision):
            maps = backbone.forward(torch.from_numpy(pixels).to(device), list(layers), norm)
            outputs = {layer: values.float().cpu().numpy() for layer, values in maps.items()}
    for layer in layers:
        rows, columns = (length // backbone.stride_of(layer) for length in pixels.shape[2:])
        got = tuple(outputs[layer].shape) if layer in outputs else ()
        if len(got) != 4 or (got[0], *got[2:]) != (len(pixels), rows, columns):
            raise ValueError(
                f"backbone {backbone.name!r} must return a map of shape ({len(pixels)}, D, "
                f"{rows}, {columns}) for layer {layer}, got {got}"
            )
    return outputs


def checked_layers(layers: Sequence[int] | None, backbone: Backbone) -> list[int]:
    """Return ascending layer numbers that exist."""
    chosen = [backbone.num_layers] if layers is None else list(layers)
    return sorted({integer(layer, "layer", 1, backbone.num_layers) for layer in chosen})


def normalised(image: NDArray[np.uint8], backbone: Backbone) -> NDArray[np.float32]:
    """Turn (H, W, 3) RGB bytes into (3, H, W) floats as the backbone wants them."""
    # In place, as memory takes most of the time.
    planes = np.array(image.transpose(2, 0, 1), dtype=np.float32, order="C")
    mean, std = (np.array(v, dtype=np.float32) for v in (backbone.mean, backbone.std))
    planes /= np.float32(255.0)
    planes -= mean[:, None, None]
    planes /= std[:, None, None]
    return planes


def module_device(module: Any) -> Any:
    """Where a network's parameters are; the CPU for one without parameters."""
    if isinstance(getattr(module, "device", None), Device):
        return module.device
    first = next(module.parameters(), None)
    return require_torch().device("cpu") if first is None else first.device


def first_cell(backbone: Backbone, layer: int) -> int:
    """Find the first cell along either axis that counts; those before it are in the margin."""
    reach = backbone.margin - backbone.origin_of(layer)
    return max(0, math.floor(reach / backbone.stride_of(layer))) if backbone.margin else 0


def _input(
    image: NDArray[np.uint8], policy: Resize, backbone: Backbone, layers: Sequence[int]
) -> tuple[Frame, NDArray[np.float32]]:
    """Resize an image, pad it to whole cells of all layers, and normalise it.

    The padding is black at the right and the bottom or, with a margin, mirrored all around.
    """
    # Layers of a pyramid have several strides: the input must hold whole cells of each.
    strides = [backbone.stride_of(layer) for layer in layers]
    multiple, before = math.lcm(backbone.multiple, *strides), backbone.margin
    frame = policy.plan((image.shape[1], image.shape[0]), multiple)
    if min(frame.content) < max(strides):
        raise ValueError(
            f"image must be at least {max(strides)} x {max(strides)} pixels after resizing for "
            f"{backbone.name!r}, got {frame.content[0]} x {frame.content[1]}"
        )
    width, height = (-(-(n + 2 * before) // multiple) * multiple for n in frame.content)
    frame = dataclasses.replace(frame, padded=(width, height))
    right, below = np.subtract(frame.padded, frame.content) - before
    around = ((before, below), (before, right), (0, 0))
    whole = np.pad(resize_image(image, frame), around, mode="reflect" if before else "constant")
    return frame, normalised(whole, backbone)

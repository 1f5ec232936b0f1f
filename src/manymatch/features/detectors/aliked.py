"""ALIKED: keypoints between pixels, with descriptors from deformed windows.

The published network enlarges its coarse maps to the size of the image, joins them to a map of 128
channels, and reads the few pixels that the descriptors need. Here the coarse maps are read at those
pixels only. For the scores, the first layer of the head is applied to each map before it is
enlarged, as enlarging is linear. The layers at full size have few channels and are bound by memory:
the compiled core takes each row through all of them, on a CPU of which one core works on an image.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manymatch import _core
from manymatch._validate import FloatArray, IndexArray
from manymatch.features.detectors.networks import OperatorDetector
from manymatch.features.network import Array, Network, Tensors

_Map = NDArray[np.float32]
# Kernel, bias and activation of a convolution in the core, and the kernel of a shortcut.
_Layer = tuple[_Map, _Map | None, str, _Map | None]

# The input is padded to whole cells of the coarsest map.
_MULTIPLE = 32
# Window and temperature of the soft maximum with which it was trained.
_WINDOW, _TEMPERATURE = 2, 0.1
# Patches of this many pixels squared decide where a descriptor looks.
_PATCH = 3
# A descriptor looks no further than this part of the image's longer edge.
_REACH = 0.25
# Constants of SELU.
_GAIN, _ALPHA = 1.0507009873554805, 1.6732632423543772
# By how much the maps of the coarse levels, whose convolutions are deformed, are smaller.
_FACTORS = {3: 8, 4: 32}


class _Maps(NamedTuple):
    """What descriptors need: maps of all levels, and the place of the image in the first one."""

    fine: _Map
    coarse: list[_Map]
    start: tuple[int, int]
    size: tuple[int, int]


class Aliked(OperatorDetector):
    """Keypoints at the soft maximum of the score within two pixels of a peak.

    The suppression acts before that step, so keypoints may be nearer than its radius by up to
    four pixels. Positions are unbiased to about 0.1 px, measured on photographs and their halves,
    and by epipolar errors on pairs of known pose.
    """

    default_threshold = 0.2
    default_nms_radius = 2

    def build(self, tensors: Tensors) -> tuple[Network, dict[str, str]]:
        """Write down the layers of the core and the network of the rest."""
        self._looks = int(self.model.settings["looks"])
        network, values, self._layers = build_aliked(tensors, self.dim or 0, self._looks)
        return network, values

    def maps(self, image: NDArray[np.uint8]) -> tuple[_Map, _Maps]:
        """Score of every pixel, and the maps of all levels; both sides are padded alike."""
        height, width = image.shape[:2]
        around = [(n // 2, n - n // 2) for n in (-height % _MULTIPLE, -width % _MULTIPLE)]
        padded = np.pad(image, [*around, (0, 0)], "edge")
        rows, columns, longest = *padded.shape[:2], np.array(max(padded.shape), np.float32)
        stem, finer, head = self._layers

        def space(layers: list[_Layer], number: int, factor: int) -> _Map:
            return np.empty((rows // factor, len(layers[number][0]), columns // factor), np.float32)

        fine, half, small = space(stem, 1, 1), space(stem, 1, 2), space(finer, 1, 8)
        _core.convolve_map(padded, stem, [(1, "rows", fine), (1, "means", half)])
        level, share = (
            np.empty((rows // 2, columns // 2, len(layer[0])), np.float32) for layer in finer[2:]
        )
        wanted = [(1, "means", small), (2, "pixels", level), (3, "pixels", share)]
        _core.convolve_map(half, finer, wanted)
        names = [self.values[f"{kind}{k}"] for k in _FACTORS for kind in ("level", "share")]
        found = self.module.run(names, {"small": small[None], "longest": longest})
        levels = [level, *(values[0] for values in found[::2])]
        shares = [share, *(values[0] for values in found[1::2])]
        scores = space(head, -1, 1)
        _core.convolve_map(fine, head, [(len(head) - 1, "rows", scores)], shares, added=1)
        (top, _), (left, _) = around
        inner = scores[top : top + height, 0, left : left + width]
        return inner, _Maps(fine, levels, (left, top), (width, height))

    def refine(self, scores: _Map, peaks: IndexArray) -> FloatArray:
        """Move peaks to the soft maximum of their windows."""
        reach = range(-_WINDOW, _WINDOW + 1)
        dy, dx = np.array(list(itertools.product(reach, reach))).T
        padded = np.pad(scores, _WINDOW)
        window = padded[peaks[:, 1:] + dy + _WINDOW, peaks[:, :1] + dx + _WINDOW] / _TEMPERATURE
        weight = np.exp(window - window.max(axis=1, keepdims=True, initial=-np.inf))
        weight /= weight.sum(axis=1, keepdims=True)
        moved = peaks + weight @ np.stack([dx, dy], axis=1)
        return np.asarray(np.clip(moved, 0.0, np.array(scores.shape[::-1]) - 1.0))

    def describe(self, features: _Maps, points: FloatArray) -> _Map:
        """Descriptors from several places around each keypoint, which a patch there decides."""
        size = np.array(features.size)
        corner = np.clip(points.astype(np.int64) - 1, 0, np.maximum(size - 1 - _PATCH, 0))
        steps = np.array(list(itertools.product(range(_PATCH), range(_PATCH))))[:, ::-1]
        pixels = np.minimum(corner[:, None] + steps, size - 1).reshape(-1, 2)
        patches = self.look(features, pixels.astype(np.float64)).reshape(len(points), -1)
        offsets = self._run("offsets", {"patches": patches})
        reach = _REACH * size.max()
        shifts = np.clip(offsets, -reach, reach).reshape(-1, 2, self._looks).transpose(0, 2, 1)
        places = (points[:, None] + shifts).reshape(-1, 2)
        return self._run("descriptors", {"looks": self.look(features, places)})

    def look(self, features: _Maps, places: FloatArray) -> _Map:
        """Return (N, D) features, between those of length one of the four pixels around a place."""
        weights = np.ascontiguousarray(self._layers[2][0][0][:, :, 0, 0].T)
        return _core.read_maps(
            features.fine, weights, features.coarse, features.start, features.size, places
        )

    def _run(self, name: str, inputs: dict[str, Array]) -> _Map:
        found: _Map = self.module.run([self.values[name]], inputs)[0]
        return found


class _Aliked(Network):
    """The parts of ALIKED."""

    def selu(self, x: str) -> str:
        """Add SELU in steps: the last bits of the operator depend on the number of threads."""
        gain, low = np.float32(_GAIN), np.float32(_GAIN * _ALPHA)
        power = self.add("Exp", self.add("Min", x, np.float32(0.0)))
        below = self.add("Sub", self.add("Mul", power, low), low)
        return self.add("Add", self.add("Mul", self.add("Relu", x), gain), below)

    def shrunk(self, x: str, factor: int) -> str:
        """Average over squares."""
        return self.add("AveragePool", x, kernel_shape=[factor] * 2, strides=[factor] * 2)

    def pointwise(self, x: str, kernel: Array) -> str:
        return self.add("Conv", x, np.ascontiguousarray(kernel), pads=[0] * 4)

    def deformed(self, x: str, name: str, norm: str, shape: tuple[int, ...], reach: str) -> str:
        """Add a convolution with a norm, whose pixels move by at most `reach`."""
        places = (2 * shape[2] * shape[3], *shape[1:])
        moves = self.convolve(x, f"{name}.offset_conv", places, bias=True)
        moves = self.add("Clip", moves, self.add("Neg", reach), reach)
        folded = self.folded(f"{name}.regular_conv", shape, norm=norm)
        return self.add("DeformConv", x, folded[0], moves, np.asarray(folded[1]), pads=[1] * 4)

    def block(self, x: str, name: str, channels: tuple[int, int], reach: str) -> str:
        """Add two deformed convolutions and a shortcut around them."""
        before, out = channels
        y = self.selu(self.deformed(x, f"{name}.conv1", f"{name}.bn1", (out, before, 3, 3), reach))
        y = self.deformed(y, f"{name}.conv2", f"{name}.bn2", (out, out, 3, 3), reach)
        shortcut = self.convolve(x, f"{name}.downsample", (out, before, 1, 1), bias=True)
        return self.selu(self.add("Add", y, shortcut))

    def linear(self, x: str, name: str, matrix: Array) -> str:
        product = self.add("MatMul", x, matrix)
        return self.add("Add", product, self.tensors(f"{name}.bias", matrix.shape[1]))


def build_aliked(
    tensors: Tensors, dim: int, looks: int
) -> tuple[Network, dict[str, str], tuple[list[_Layer], list[_Layer], list[_Layer]]]:
    """Write ALIKED down; `looks` are the places from which a descriptor is made.

    The values are, channels last, maps of the coarse levels and their shares in the scores; offsets
    of places from patches; and descriptors from the features at those places. The layers are those
    of the first block; of the second block, its level and its share; and those of the scores.
    """
    network, part, first = _Aliked(tensors), dim // 4, dim >> 3
    joint = tensors("score_head.0.weight", 8, dim, 1, 1)
    shares = [np.ascontiguousarray(joint[:, k * part : (k + 1) * part]) for k in range(4)]
    levels = [tensors(f"conv{k + 1}.weight", part, first << k, 1, 1) for k in range(4)]
    blocks = [
        network.folded(f"block{k}.conv{i}", (out, into, 3, 3), norm=f"block{k}.bn{i}")
        for k, before, out in ((1, 3, first), (2, first, 2 * first))
        for i, into in ((1, before), (2, out))
    ]
    around = network.folded("block2.downsample", (2 * first, first, 1, 1), bias=True)
    stem: list[_Layer] = [(*folded, "selu", None) for folded in blocks[:2]]
    finer: list[_Layer] = [
        (*blocks[2], "selu", None),
        (blocks[3][0], np.asarray(blocks[3][1]) + np.asarray(around[1]), "selu", around[0]),
        (levels[1], None, "selu", None),
        (shares[1], None, "none", None),
    ]
    head: list[_Layer] = [(kernel, None, "selu", None) for kernel in (levels[0], shares[0])]
    for i, (outputs, inputs) in enumerate([(4, 8), (4, 4), (1, 4)], start=1):
        kernel = tensors(f"score_head.{2 * i}.weight", outputs, inputs, 3, 3)
        head.append((kernel, None, "sigmoid" if outputs == 1 else "selu", None))

    longest, values = network.input("longest", 0), dict[str, str]()
    x = network.add("Transpose", network.input("small", 4), perm=[0, 2, 1, 3])
    for k, factor in _FACTORS.items():
        reach = network.add("Mul", longest, np.float32(_REACH / factor))
        x = x if k == 3 else network.shrunk(x, 4)
        x = network.block(x, f"block{k}", (first << k - 2, first << k - 1), reach)
        y = network.selu(network.pointwise(x, levels[k - 1]))
        share = network.pointwise(y, shares[k - 1])
        for kind, maps in (("level", y), ("share", share)):
            values[f"{kind}{k}"] = network.add("Transpose", maps, perm=[0, 2, 3, 1])

    name, places = "desc_head.offset_conv", 2 * looks
    patch = tensors(f"{name}.0.weight", places, dim, _PATCH, _PATCH).transpose(2, 3, 1, 0)
    second = tensors(f"{name}.2.weight", places, places, 1, 1)[:, :, 0, 0].T
    y = network.linear(network.input("patches", 2), f"{name}.0", patch.reshape(-1, places))
    values["offsets"] = network.linear(network.selu(y), f"{name}.2", second)

    mixed = tensors("desc_head.sf_conv.weight", dim, dim, 1, 1)[:, :, 0, 0].T
    gathered = tensors("desc_head.agg_weights", looks, dim, dim).reshape(-1, dim)
    y = network.selu(network.add("MatMul", network.input("looks", 2), mixed))
    y = network.add("MatMul", network.add("Reshape", y, np.array([-1, looks * dim])), gathered)
    length = network.add("Clip", network.add("ReduceL2", y, np.array([1])), np.float32(1e-12))
    values["descriptors"] = network.add("Div", y, length)
    return network, values, (stem, finer, head)

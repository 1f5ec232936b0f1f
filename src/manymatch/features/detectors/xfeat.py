"""XFeat: a small network for keypoints, their reliability and descriptors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray
from manymatch.features.detectors.networks import OperatorDetector
from manymatch.features.maps import FeatureMap, unit_rows
from manymatch.features.network import Network, Tensors

_Map = NDArray[np.float32]

# There is one map of scores of this many pixels squared per cell.
_CELL = 8
# The input is padded to whole cells of the coarsest layer.
_MULTIPLE = 32


class XFeat(OperatorDetector):
    """Keypoints at whole pixels, sorted by score times reliability.

    The published code resizes images to multiples of 32; here they are padded, so that positions
    need no second scale. Measured as for ALIKED, an offset of positions is within half a pixel and
    not consistent.
    """

    default_threshold = 0.05
    default_nms_radius = 2

    def build(self, tensors: Tensors) -> tuple[Network, dict[str, str]]:
        """Write the network down."""
        return build_xfeat(tensors)

    def maps(self, image: NDArray[np.uint8]) -> tuple[_Map, tuple[FeatureMap, _Map]]:
        """Score of every pixel; reliability and features of every cell of the padded image."""
        height, width = image.shape[:2]
        padded = np.pad(image, [*((0, -n % _MULTIPLE) for n in (height, width)), (0, 0)], "edge")
        values = [self.values[name] for name in ("scores", "reliability", "features")]
        scores, reliability, features = self.module.run(values, {"image": padded[None]})
        centre = (_CELL - 1) / 2
        sure = FeatureMap(reliability[0], (centre, centre), (_CELL, _CELL))
        return scores[0, 0, :height, :width], (sure, features)

    def ranking(self, scores: _Map, points: FloatArray, features: tuple[FeatureMap, _Map]) -> _Map:
        """Return scores times reliability."""
        return scores * features[0].sample(points)[:, 0]

    def describe(self, features: tuple[FeatureMap, _Map], points: FloatArray) -> _Map:
        """Descriptors, bicubic between cells."""
        # As the network was trained: pixels count from edge to edge here, though they are centres,
        # which reads all descriptors half a pixel off in the same direction.
        cells = features[1]
        last = np.array(cells.shape[:1:-1]) * _CELL - 1
        where = (2.0 * points / last - 1.0).astype(np.float32)[None, None]
        inputs = {"cells": cells, "where": where}
        (sampled,) = self.module.run([self.values["descriptors"]], inputs)
        return unit_rows(sampled[0, :, 0].T)


def build_xfeat(tensors: Tensors) -> tuple[Network, dict[str, str]]:
    """Write XFeat down; the second part of it samples descriptors."""
    network = Network(tensors)
    add = network.add

    def layers(x: str, block: str, *shapes: tuple[int, int, int, int]) -> str:
        """Add convolutions of (in, out, kernel, stride), each with a norm and a ReLU."""
        for i, (channels, out, kernel, stride) in enumerate(shapes):
            name, pad = f"{block}.{i}.layer", [kernel // 2] * 4
            x = add("Relu", network.convolve(
                x, f"{name}.0", (out, channels, kernel, kernel), norm=f"{name}.1", affine=False,
                pads=pad, strides=(stride, stride),
            ))  # fmt: skip
        return x

    def enlarged(x: str, factor: int) -> str:
        scales = np.array([1, 1, factor, factor], np.float32)
        return add("Resize", x, "", scales, mode="linear")

    def pointwise(x: str, name: str, out: int) -> str:
        return network.convolve(x, name, (out, 64, 1, 1), bias=True)

    def mean_of(x: str) -> str:
        return add("ReduceMean", add("ReduceMean", x, np.array([3])), np.array([2]))

    image = network.input("image", 4, "uint8")
    values = add("Div", add("Cast", image, to=1), np.float32(255.0))
    grey = add("ReduceMean", add("Transpose", values, perm=[0, 3, 1, 2]), np.array([1]))
    # Sums of rows first: one sum of all pixels would lose digits.
    centred = add("Sub", grey, mean_of(grey))
    variance = mean_of(add("Mul", centred, centred))
    normed = add("Div", centred, add("Sqrt", add("Add", variance, np.float32(1e-5))))
    x1 = layers(normed, "block1", (1, 4, 3, 1), (4, 8, 3, 2), (8, 8, 3, 1), (8, 24, 3, 2))
    coarse = add("AveragePool", normed, kernel_shape=[4, 4], strides=[4, 4])
    skip = network.convolve(coarse, "skip1.1", (24, 1, 1, 1), bias=True)
    x2 = layers(add("Add", x1, skip), "block2", (24, 24, 3, 1), (24, 24, 3, 1))
    x3 = layers(x2, "block3", (24, 64, 3, 2), (64, 64, 3, 1), (64, 64, 1, 1))
    x4 = layers(x3, "block4", (64, 64, 3, 2), (64, 64, 3, 1), (64, 64, 3, 1))
    x5 = layers(x4, "block5", (64, 128, 3, 2), *[(128, 128, 3, 1)] * 2, (128, 64, 1, 1))
    x = add("Add", add("Add", x3, enlarged(x4, 2)), enlarged(x5, 4))
    fused = layers(x, "block_fusion", (64, 64, 3, 1), (64, 64, 3, 1))
    features = pointwise(fused, "block_fusion.2", 64)
    sure = layers(features, "heatmap_head", *[(64, 64, 1, 1)] * 2)
    reliability = add("Sigmoid", pointwise(sure, "heatmap_head.2", 1))
    # 64 places of a cell, row by row, and one for "none".
    patches = add("SpaceToDepth", normed, blocksize=_CELL)
    head = layers(patches, "keypoint_head", *[(64, 64, 1, 1)] * 3)
    logits = pointwise(head, "keypoint_head.3", 65)
    places = add(
        "Slice", add("Softmax", logits, axis=1), np.array([0]), np.array([-1]), np.array([1])
    )
    length = add("Clip", add("ReduceL2", features, np.array([1])), np.float32(1e-12))
    cells, where = network.input("cells", 4), network.input("where", 4)
    return network, {
        "scores": add("DepthToSpace", places, blocksize=_CELL),
        "reliability": reliability,
        "features": add("Div", features, length),
        "descriptors": add("GridSample", cells, where, mode="cubic"),
    }

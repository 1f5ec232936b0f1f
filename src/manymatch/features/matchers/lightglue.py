"""LightGlue: a transformer that matches the keypoints of a detector.

Detections are those of this package, so that all sources with one detector share them. The network
runs at full depth with all keypoints.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manymatch.features.device import weights_hash
from manymatch.features.matchers import PairMatcher
from manymatch.features.network import Array, Network, Tensors
from manymatch.features.registry import Model, models
from manymatch.features.weights import load_network

if TYPE_CHECKING:
    from manymatch.features.extractor import Features

# Matches must be more probable than this, as published.
_THRESHOLD = 0.1
# Channels, layers and heads; of the smaller network too.
_SIZES, _LIGHTER = (256, 9, 4), (96, 6, 1)
_SIDES = ("0", "1")

_Matches = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


class LightGlue(PairMatcher):
    """The LightGlue that was trained for a detector; LighterGlue, a smaller one, for XFeat."""

    name = "lightglue"
    weights: ClassVar[dict[str, Model]] = {
        model.detector: model
        for model in models().values()
        if model.family == "lightglue" and model.detector is not None
    }

    def build(self, source: Path | str, model: Model) -> Any:
        """Write the network down."""
        sizes = _LIGHTER if model.detector == "xfeat" else _SIZES
        build = functools.partial(build_lightglue, into=model.dim or 0, sizes=sizes)
        network, self._values = load_network(model, build, source)
        return network

    def settings(self) -> dict[str, Any]:
        """Return the hash of the weights and the threshold."""
        weights = weights_hash(self.network)
        return {"matching": "LightGlue", "matcher_weights": weights, "threshold": _THRESHOLD}

    def match(self, first: Features, second: Features) -> _Matches:
        """Match the keypoints of two images; `match` of `PairMatcher`."""
        if not (len(first) and len(second)):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        inputs: dict[str, Array] = {}
        for side, found in zip(_SIDES, (first, second), strict=True):
            size = np.array(found.size)
            places = (found.points - size / 2) / (size.max() / 2)
            inputs[f"points{side}"] = places.astype(np.float32)
            inputs[f"descriptors{side}"] = found.descriptors.astype(np.float32)
        network: Any = self.network
        scores, sure0, sure1 = network.run(self._values, inputs)
        with np.errstate(divide="ignore"):
            scores += np.log(sure0) + np.log(sure1).T
        best0, best1 = scores.argmax(axis=1), scores.argmax(axis=0)
        index0 = np.arange(len(best0))
        likely = np.exp(scores[index0, best0].astype(np.float64))
        kept = (best1[best0] == index0) & (likely > _THRESHOLD)
        return index0[kept], best0[kept], likely[kept]


class _LightGlue(Network):
    """The parts of LightGlue; values have a row for each keypoint."""

    alone = True
    heads: int

    def linear(self, x: str, matrix: Array, bias: Array) -> str:
        return self.add("Add", self.add("MatMul", x, np.ascontiguousarray(matrix.T)), bias)

    def layer(self, x: str, name: str, out: int, into: int) -> str:
        """Add a product with the tensors of a name."""
        weight = self.tensors(f"{name}.weight", out, into)
        return self.linear(x, weight, self.tensors(f"{name}.bias", out))

    def split(self, x: str, width: int) -> str:
        """Bring heads to the front."""
        apart = self.add("Reshape", x, np.array([-1, self.heads, width]))
        return self.add("Transpose", apart, perm=[1, 0, 2])

    def attention(self, logits: str, values: str, channels: int) -> str:
        """Add the mean of values by a softmax, heads side by side again."""
        mixed = self.add("MatMul", self.add("Softmax", logits, axis=-1), values)
        together = self.add("Transpose", mixed, perm=[1, 0, 2])
        return self.add("Reshape", together, np.array([-1, channels]))

    def updated(self, x: str, message: str, name: str, channels: int) -> str:
        """Add what two layers make of a message to the input."""
        wide = 2 * channels
        y = self.layer(self.add("Concat", x, message, axis=1), f"{name}.ffn.0", wide, wide)
        norm = (self.tensors(f"{name}.ffn.1.{part}", wide) for part in ("weight", "bias"))
        y = self.add("Gelu", self.add("LayerNormalization", y, *norm))
        return self.add("Add", x, self.layer(y, f"{name}.ffn.3", channels, wide))

    def self_attention(self, x: str, name: str, waves: tuple[str, str], channels: int) -> str:
        """Let the keypoints of an image see each other; queries and keys turn with the place."""
        width = channels // self.heads
        weight = self.tensors(f"{name}.Wqkv.weight", 3 * channels, channels)
        bias = self.tensors(f"{name}.Wqkv.bias", 3 * channels)
        # By head, pair of numbers, number of the pair, and query, key or value.
        weight = weight.reshape(self.heads, width // 2, 2, 3, channels)
        bias = bias.reshape(self.heads, width // 2, 2, 3)

        def part(number: int | slice, kind: int, factor: float, width: int) -> str:
            matrix = (factor * weight[:, :, number, kind]).reshape(-1, channels)
            shift = (factor * bias[:, :, number, kind]).reshape(-1)
            return self.split(self.linear(x, matrix, shift), width)

        turned, (cosine, sine) = [], waves
        for kind, factor in ((0, width**-0.5), (1, 1.0)):
            u, v = (part(number, kind, factor, width // 2) for number in (0, 1))
            real = self.add("Sub", self.add("Mul", u, cosine), self.add("Mul", v, sine))
            other = self.add("Add", self.add("Mul", v, cosine), self.add("Mul", u, sine))
            turned.append(self.add("Concat", real, other, axis=2))
        queries, keys = turned
        values = part(slice(None), 2, 1.0, width)
        logits = self.add("MatMul", queries, self.add("Transpose", keys, perm=[0, 2, 1]))
        message = self.attention(logits, values, channels)
        message = self.layer(message, f"{name}.out_proj", channels, channels)
        return self.updated(x, message, name, channels)

    def cross_attention(self, both: list[str], name: str, channels: int) -> list[str]:
        """Let the keypoints of either image see those of the other."""
        width = channels // self.heads
        factor = np.float32(width**-0.25)
        tokens, values = [], []
        for x in both:
            projected = self.layer(x, f"{name}.to_qk", channels, channels)
            tokens.append(self.split(self.add("Mul", projected, factor), width))
            values.append(self.split(self.layer(x, f"{name}.to_v", channels, channels), width))
        logits = self.add("MatMul", tokens[0], self.add("Transpose", tokens[1], perm=[0, 2, 1]))
        across = (logits, self.add("Transpose", logits, perm=[0, 2, 1]))
        made = []
        for x, seen, value in zip(both, across, values[::-1], strict=True):
            message = self.attention(seen, value, channels)
            message = self.layer(message, f"{name}.to_out", channels, channels)
            made.append(self.updated(x, message, name, channels))
        return made


def build_lightglue(
    tensors: Tensors, *, into: int, sizes: tuple[int, int, int]
) -> tuple[Network, list[str]]:
    """Write LightGlue down for descriptors of length `into`.

    The values are logarithms of how well keypoints fit each other, (M, N), and how probable it is
    that those of either image have a partner, (M, 1) and (N, 1).
    """
    network = _LightGlue(tensors)
    channels, depth, network.heads = sizes
    both, waves = [], []
    frequencies = tensors("posenc.Wr.weight", channels // network.heads // 2, 2)
    for side in _SIDES:
        x = network.input(f"descriptors{side}", 2)
        both.append(network.layer(x, "input_proj", channels, into) if into != channels else x)
        turns = network.add("MatMul", network.input(f"points{side}", 2), frequencies.T)
        waves.append((network.add("Cos", turns), network.add("Sin", turns)))
    assigned: list[str] = []
    for k in range(depth):
        name = f"transformers.{k}"
        both = [
            network.self_attention(x, f"{name}.self_attn", own, channels)
            for x, own in zip(both, waves, strict=True)
        ]
        both = network.cross_attention(both, f"{name}.cross_attn", channels)
        # Every layer could be the last one.
        last = f"log_assignment.{k}"
        places = [network.layer(x, f"{last}.final_proj", channels, channels) for x in both]
        partner = [network.layer(x, f"{last}.matchability", 1, channels) for x in both]
        fit = network.add("MatMul", places[0], network.add("Transpose", places[1], perm=[1, 0]))
        fit = network.add("Mul", fit, np.float32(channels**-0.5))
        fits = [network.add("LogSoftmax", fit, axis=axis) for axis in (0, 1)]
        assigned = [network.add("Add", *fits), *(network.add("Sigmoid", x) for x in partner)]
        if k < depth - 1:
            # Says when to stop, which is not used.
            tensors(f"token_confidence.{k}.token.0.weight", 1, channels)
            tensors(f"token_confidence.{k}.token.0.bias", 1)
    return network, assigned

"""Matchers of two images: features or images in, matches with scores out."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from manymatch._validate import float_array, int_array, refusal
from manymatch.associate.merge import place_in_group
from manymatch.features.device import choose_device, to_device
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from manymatch.features.extractor import Features
    from manymatch.features.registry import Model

#: What a matcher gets of either image.
Takes = Literal["features", "images"]
TAKES: tuple[Takes, ...] = ("features", "images")


class PairMatcher(abc.ABC):
    """Matches two images, in place of nearest neighbours of descriptors.

    Networks are loaded when first used.

    Parameters
    ----------
    detector : str
        Name of the detector whose features it gets; empty where it takes images.
    device : str
        "auto", "cuda", "cuda:<n>", "mps" or "cpu".
    offline : bool
        Never download weights.
    """

    #: Name under which it is chosen.
    name: str
    #: Whether it gets the features of two images or the images themselves.
    takes: ClassVar[Takes] = "features"
    #: Whether it runs a network.
    needs_torch: ClassVar[bool] = True
    #: Weights by detector, where it takes features; others are refused. Empty: any will do.
    weights: ClassVar[dict[str, Model]] = {}

    def __init__(self, detector: str = "", *, device: str = "auto", offline: bool = False) -> None:
        self.detector, self.device, self.offline = detector, device, offline

    @property
    def model(self) -> Model | None:
        """Facts about the weights; None without any."""
        return self.weights.get(self.detector)

    @functools.cached_property
    def network(self) -> Any:
        """The network, loaded when first used; None where there is none."""
        from manymatch.features.weights import find_weights

        if self.model is None:
            return None
        found = find_weights(self.model, offline=self.offline)
        return to_device(self.build(found, self.model), choose_device(self.device))

    def build(self, source: Path | str, model: Model) -> Any:
        """Make the network from the file or folder of its weights."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any] | None:
        """Everything that changes a number, in JSON types; None if that is unknown.

        The matches of a matcher that does not know are not kept in a cache.
        """
        return None

    @abc.abstractmethod
    def match(self, first: Any, second: Any) -> tuple[Any, Any, Any]:
        """Match two images.

        Parameters
        ----------
        first, second : Features, or (H, W, 3) uint8 arrays
            As `takes` says, after resizing: the points of features are pixels of the resized image
            and `size` is its width and height.

        Returns
        -------
        first, second : (M,) arrays of int, or (M, 2) arrays of float
            Of features the indices of keypoints, of images the pixels (x, y).
        scores : (M,) array or None
            How probable each match is: above 0, at most 1.
        """


class FunctionMatcher(PairMatcher):
    """A function of the user that does what `PairMatcher.match` does."""

    needs_torch = False

    def __init__(self, name: str, function: Callable[..., Any], takes: Takes) -> None:
        super().__init__()
        self.name, self._function = name, function
        self.takes = takes  # type: ignore[misc]

    def match(self, first: Any, second: Any) -> tuple[Any, Any, Any]:
        """Call the function, which returns two or three arrays."""
        answer = self._function(first, second)
        if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
            raise refusal(f"the matcher {self.name!r}", "returning two or three arrays", answer)
        return (*answer, None) if len(answer) == 2 else tuple(answer)


def matcher_graph(
    matcher: PairMatcher, features0: Features, features1: Features
) -> AssociationGraph:
    """Return what a matcher finds between two images as a graph, best first.

    Its keypoints are those of the features or, where the matcher takes images, the places that it
    found, equal ones once. Scores become similarities and priors. A match has rank 1, unless a
    better one has one of its keypoints.

    Raises
    ------
    ValueError
        If the matcher returns something else than `PairMatcher.match` says.
    """
    seen = (features0.as_seen(), features1.as_seen())
    label = f"the matcher {matcher.name!r}"
    images = matcher.takes == "images"
    *found, scores = matcher.match(*((features.image for features in seen) if images else seen))
    ends: list[Any] = [
        float_array(one, f"{label}: points{side}", "an (M, 2) array of pixels", (None, 2))
        if images
        else int_array(one, f"{label}: indices{side}", "an (M,) array of keypoints", (None,))
        for side, one in enumerate(found)
    ]
    num = len(ends[0])
    if len(ends[1]) != num:
        raise ValueError(f"{label} must return pairs, got {num} and {len(ends[1])}")
    prior = None
    if scores is not None:
        prior = float_array(scores, f"{label}: scores", f"{num} numbers", (num,))
    points = [features0.points, features1.points]
    if images:
        # Pixels reach half a pixel beyond their centres.
        last = np.array([features.size for features in seen])[:, None] - 0.5
        inside = np.all((np.stack(ends) >= -0.5) & (np.stack(ends) <= last), axis=(0, 2))
        prior = None if prior is None else prior[inside]
        for side, features in enumerate((features0, features1)):
            places, index = np.unique(ends[side][inside], axis=0, return_inverse=True)
            points[side], ends[side] = features.from_seen(places), index.reshape(-1)
    edges = np.column_stack(ends)
    # Of equal scores, the first in the matcher's order.
    order = np.arange(len(edges)) if prior is None else np.argsort(-prior, kind="stable")
    edges = edges[order]
    rank = 1 + np.maximum(place_in_group(edges[:, 0]), place_in_group(edges[:, 1]))
    by_rank = np.argsort(rank, kind="stable")
    edges, rank = edges[by_rank], rank[by_rank]
    values = None if prior is None else prior[order][by_rank]
    try:
        return AssociationGraph(points[0], points[1], edges, values, rank, prior=values)
    except ValueError as error:
        raise ValueError(f"{label} must return what a graph takes: {error}") from error

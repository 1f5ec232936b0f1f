"""What a matcher of two images is: features or images in, matches with scores out."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from manymatch._validate import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

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

    Attributes
    ----------
    name : str
        Under which it is chosen.
    takes : {"features", "images"}
        Whether it gets the features of two images or the images themselves.
    needs_torch : bool
        Whether it runs a network.
    weights : dict of str to Model
        Where it takes features, its weights by detector; detectors that are not listed are
        refused. Empty if any will do.
    """

    name: str
    takes: ClassVar[Takes] = "features"
    needs_torch: ClassVar[bool] = True
    weights: ClassVar[dict[str, Model]] = {}

    def __init__(self, detector: str = "", *, device: str = "auto", offline: bool = False) -> None:
        self.detector, self.device, self.offline = detector, device, offline

    @property
    def model(self) -> Model | None:
        """Facts about the weights; None without any."""
        return self.weights.get(self.detector)

    def find(self) -> Path | str:
        """Find the weights, or download them."""
        from manymatch.features.weights import find_weights

        if self.model is None:
            raise refusal("detector", f"one of {', '.join(self.weights)}", self.detector)
        return find_weights(self.model, offline=self.offline)

    @property
    def network(self) -> torch.nn.Module | None:
        """The network, if there is one."""
        return None

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

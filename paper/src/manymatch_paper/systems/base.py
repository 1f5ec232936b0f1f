"""What a complete matcher is: two images in, correspondences in pixels out."""

from __future__ import annotations

import abc
import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import FloatArray, float_array, read_only, refusal
from manymatch.features.weights import WeightsError, find_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from manymatch.features.registry import Model

_PIXELS = "an (M, 2) array of pixels"


@dataclasses.dataclass(frozen=True, eq=False)
class Correspondences:
    """Pairs of points, best first.

    Attributes
    ----------
    points0, points1 : (M, 2) float64 ndarray
        Pixels (x, y) of the two images as they were given; the centre of the top-left pixel is
        (0, 0).
    scores : (M,) float64 ndarray
        How sure the matcher is, falling; comparable within one pair only.
    """

    points0: FloatArray
    points1: FloatArray
    scores: FloatArray

    def __post_init__(self) -> None:
        points0 = float_array(self.points0, "points0", _PIXELS, (None, 2))
        count = len(points0)
        points1 = float_array(self.points1, "points1", f"{count} pixels, as points0", (count, 2))
        scores = float_array(self.scores, "scores", f"{count} numbers, as points0", (count,))
        order = np.argsort(-scores, kind="stable")
        for name, array in (("points0", points0), ("points1", points1), ("scores", scores)):
            object.__setattr__(self, name, read_only(array[order]))

    def __len__(self) -> int:
        return len(self.points0)

    def head(self, count: int | None) -> Correspondences:
        """Keep the first ones, all of them if `count` is None."""
        return Correspondences(self.points0[:count], self.points1[:count], self.scores[:count])


class System(abc.ABC):
    """A matcher with everything it needs, loaded when it is first used.

    Parameters
    ----------
    device : str
        "auto", "cuda", "cuda:<n>", "mps" or "cpu".
    offline : bool
        Never download.

    Attributes
    ----------
    name, title : str
        Under which it is chosen, and as tables show it.
    paper : str
        Its row in the paper's table; empty where the paper does not have it.
    specialist : bool
        Whether it was trained for one kind of pair (visible and thermal) and is therefore left out
        of a ranking.
    keep : int or None
        So many correspondences, the best, go to the pose estimator; None for all.
    """

    name: str
    title: str
    paper: str = ""
    specialist: bool = False
    keep: int | None = None
    #: Packages that run it, as Python imports them.
    packages: Sequence[str] = ()

    def __init__(self, device: str = "auto", *, offline: bool = False) -> None:
        self.device = device
        self.offline = offline

    @property
    def models(self) -> Sequence[Model]:
        """Weights it needs."""
        return ()

    def missing(self, *, fetch: bool = False) -> str | None:
        """Say in one sentence what is not here and how to get it; None if all is here.

        Parameters
        ----------
        fetch : bool
            Download weights that are missing, unless the system is offline.
        """
        for package in self.packages:
            if not is_installed(package):
                return self.without(package)
        for model in self.models:
            try:
                find_weights(model, offline=self.offline or not fetch)
            except WeightsError as error:
                return str(error)
        return None

    def without(self, package: str) -> str:
        """Say how to install a package that is missing."""
        extra = "images" if package == "cv2" else "features"
        return f'{self.title} needs {package}: pip install "manymatch[{extra}]"'

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that changes a number, apart from the images; JSON types."""

    def match(self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]) -> Correspondences:
        """Match two images.

        Parameters
        ----------
        image0, image1 : (H, W, 3) uint8 ndarray
            RGB, at the size at which they are to be matched.

        Returns
        -------
        Correspondences
            Inside both images.
        """
        for name, image in (("image0", image0), ("image1", image1)):
            shape, kind = np.shape(image), getattr(image, "dtype", None)
            if len(shape) != 3 or shape[2] != 3 or kind != np.uint8:
                raise refusal(name, "an (H, W, 3) array of bytes", image)
        points0, points1, scores = self._match(image0, image1)
        inside = _inside(points0, image0) & _inside(points1, image1)
        return Correspondences(
            np.asarray(points0)[inside], np.asarray(points1)[inside], np.asarray(scores)[inside]
        )

    @abc.abstractmethod
    def _match(
        self, image0: NDArray[np.uint8], image1: NDArray[np.uint8]
    ) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        """Return (M, 2), (M, 2) pixels in this package's convention and (M,) scores."""


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _inside(points: ArrayLike, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether points lie on the image, whose pixels reach half a pixel beyond their centres."""
    array = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    size = np.array([image.shape[1], image.shape[0]])
    return np.asarray(np.all((array >= -0.5) & (array <= size - 0.5), axis=1))

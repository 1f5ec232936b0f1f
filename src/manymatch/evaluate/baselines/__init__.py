"""Other estimators behind one signature, for comparisons; each needs its own optional package.

``poselib.estimate``, ``opencv.estimate`` and ``pycolmap.estimate`` take a graph, two cameras and
`Options`, treat every edge as an independent correspondence, and return a `BaselineResult`.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manymatch.geometry.pose import RelativePose

__all__ = ["BaselineResult", "require"]

#: Edges that any of the estimators needs at least.
MINIMAL_SET = 5


@dataclasses.dataclass(frozen=True)
class BaselineResult:
    """What another estimator found.

    Attributes
    ----------
    pose : RelativePose or None
        Camera 0 to camera 1; None if no pose was found.
    seconds : float
        Wall-clock time of the estimator alone, without the conversion of the input.
    iterations : int or None
        Iterations it ran, where it tells.
    """

    pose: RelativePose | None
    seconds: float
    iterations: int | None


def require(module: str, package: str) -> Any:
    """Import an optional module, or say which package has to be installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this baseline needs the package {package}, which is not installed: "
            f"pip install 'manymatch[baselines]'"
        ) from error

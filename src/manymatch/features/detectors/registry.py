"""The detectors that can be asked for by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manymatch._validate import refusal, suggest
from manymatch.features.catalogue import MODELS
from manymatch.features.detectors.aliked import Aliked
from manymatch.features.detectors.disk import Disk
from manymatch.features.detectors.grid import Grid
from manymatch.features.detectors.selection import Selection
from manymatch.features.detectors.sift import Sift
from manymatch.features.detectors.superpoint import SuperPoint
from manymatch.features.detectors.xfeat import XFeat

if TYPE_CHECKING:
    from manymatch.features.detectors._network import NetworkDetector
    from manymatch.features.detectors.base import Detector

_NETWORKS: dict[str, type[NetworkDetector]] = {
    "superpoint": SuperPoint,
    "aliked-n16": Aliked,
    "aliked-n16rot": Aliked,
    "aliked-n32": Aliked,
    "aliked-t16": Aliked,
    "disk": Disk,
    "xfeat": XFeat,
}
_SHORT = {"aliked": "aliked-n16"}

#: Names that `load_detector` takes; "grid:<n>" is a grid of n pixels.
DETECTORS = ("sift", *_NETWORKS, *_SHORT, "grid")


def load_detector(
    name: str,
    *,
    max_keypoints: int = 2048,
    nms_radius: int | None = None,
    border: int = 4,
    threshold: float | None = None,
    weights: object = None,
    offline: bool = False,
) -> Detector:
    """Make a detector and load its weights.

    Parameters
    ----------
    name : str
        One of `DETECTORS`: "sift", "superpoint", "aliked" (the variant n16), "aliked-n16",
        "aliked-n16rot", "aliked-n32", "aliked-t16", "disk", "xfeat", or "grid" (patches of 16
        pixels), "grid:<n>" (of n pixels).
    max_keypoints : int
        At most so many, those of the largest scores.
    nms_radius : int, optional
        No two keypoints within this many pixels along both axes. By default that of the published
        code: 4 for SuperPoint, 2 for ALIKED, DISK and XFeat, 0 (repeated positions only) for SIFT.
    border : int
        Pixels along the image's edge without keypoints.
    threshold : float, optional
        Scores must be larger. By default 0.02 for SIFT (contrast), 0.0005 for SuperPoint, 0.2 for
        ALIKED, 0 for DISK (a logit), 0.05 for XFeat.
    weights : path or "random", optional
        A file or folder; by default they are looked for where `manymatch models` says.
    offline : bool
        Never download.

    Raises
    ------
    ValueError
        If there is no such detector, a setting is out of range or has no meaning for it, or weights
        are missing, damaged or of another network.
    ModuleNotFoundError
        If a package is missing; the sentence says how to install it.
    """
    if not isinstance(name, str):
        raise refusal("detector", "a name", name)
    kind, colon, stride = name.partition(":")
    full = _SHORT.get(name, name)
    if kind == "grid" and (not colon or stride.isdecimal()):
        _without(name, nms_radius=nms_radius, threshold=threshold, weights=weights)
        selection = Selection.checked(max_keypoints, 0, border, 0.0)
        return Grid(selection, int(stride)) if colon else Grid(selection)
    if full == "sift":
        _without(name, weights=weights)
        return Sift(_selection(Sift, max_keypoints, nms_radius, border, threshold))
    if full not in _NETWORKS:
        raise ValueError(
            f"detector must be one of {', '.join(DETECTORS)}{suggest(name, DETECTORS)}, "
            f"got {name!r}"
        )
    network = _NETWORKS[full]
    selection = _selection(network, max_keypoints, nms_radius, border, threshold)
    return network(MODELS[full], selection, weights, offline)


def _selection(
    kind: type[Sift | NetworkDetector],
    max_keypoints: object,
    nms_radius: object,
    border: object,
    threshold: object,
) -> Selection:
    """Check settings, those left out being the detector's."""
    return Selection.checked(
        max_keypoints,
        kind.default_nms_radius if nms_radius is None else nms_radius,
        border,
        kind.default_threshold if threshold is None else threshold,
    )


def _without(detector: str, **settings: object) -> None:
    """Refuse settings that a detector does not have."""
    for name, value in settings.items():
        if value is not None:
            raise refusal(name, f"left out for the detector {detector!r}", value)

"""Complete matchers to compare with, by name: two images in, correspondences out."""

from __future__ import annotations

import functools
from collections.abc import Callable

from manymatch_lab.checks import suggest
from manymatch_lab.systems.base import (
    Correspondences,
    EfficientLoftrSystem,
    LightGlueSystem,
    NativeSystem,
    System,
)
from manymatch_lab.systems.vismatch import Mast3r, OmniGlue, RoMa, XoFTR

__all__ = ["PAPER_SYSTEMS", "SYSTEMS", "Correspondences", "System", "load_system"]

#: Systems by name: those of the paper in its order, then further ones.
SYSTEMS: dict[str, Callable[..., System]] = {
    "superpoint-mnn": functools.partial(NativeSystem, "superpoint", "SuperPoint + MNN", "sp"),
    "superpoint-lightglue": functools.partial(
        LightGlueSystem, "superpoint", "SuperPoint + LightGlue", "sp-lg"
    ),
    "efficient-loftr": functools.partial(EfficientLoftrSystem),
    **{system.name: system for system in (OmniGlue, Mast3r, XoFTR, RoMa)},
    "aliked-lightglue": functools.partial(LightGlueSystem, "aliked-n16", "ALIKED + LightGlue"),
    "aliked-n16-mnn": functools.partial(NativeSystem, "aliked-n16", "ALIKED + MNN"),
    "xfeat-mnn": functools.partial(NativeSystem, "xfeat", "XFeat + MNN"),
    "sift-mnn": functools.partial(NativeSystem, "sift", "SIFT + MNN"),
}

#: Those of the paper, in its order.
PAPER_SYSTEMS = tuple(SYSTEMS)[: tuple(SYSTEMS).index("roma")]


def load_system(name: str, *, device: str = "auto", offline: bool = False) -> System:
    """Make a system by its name in `SYSTEMS`; nothing is loaded yet."""
    if name not in SYSTEMS:
        raise ValueError(
            f"system must be one of {', '.join(SYSTEMS)}{suggest(name, SYSTEMS)}, got {name!r}"
        )
    return SYSTEMS[name](device=device, offline=offline)

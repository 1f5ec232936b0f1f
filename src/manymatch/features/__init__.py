"""Keypoints and descriptors: every representation of the paper, and any that is registered.

Submodules are imported when one of the names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manymatch.features.backbone import Backbone
    from manymatch.features.check import BackboneReport, check_backbone
    from manymatch.features.config import FEATURE_PRESETS, FeatureConfig
    from manymatch.features.debias import PositionalBasis
    from manymatch.features.extractor import Extractor, FeatureCache, Features
    from manymatch.features.maps import FeatureMap, dense_maps
    from manymatch.features.matchers.base import PairMatcher
    from manymatch.features.registry import (
        backbone_names,
        load_backbone,
        matcher_names,
        register_backbone,
        register_matcher,
    )
    from manymatch.features.resize import Resize

_MODULES = {
    "FEATURE_PRESETS": "config",
    "Backbone": "backbone",
    "BackboneReport": "check",
    "Extractor": "extractor",
    "FeatureCache": "extractor",
    "FeatureConfig": "config",
    "FeatureMap": "maps",
    "Features": "extractor",
    "PairMatcher": "matchers.base",
    "PositionalBasis": "debias",
    "Resize": "resize",
    "backbone_names": "registry",
    "check_backbone": "check",
    "dense_maps": "maps",
    "load_backbone": "registry",
    "matcher_names": "registry",
    "register_backbone": "registry",
    "register_matcher": "registry",
}

__all__ = [
    "FEATURE_PRESETS",
    "Backbone",
    "BackboneReport",
    "Extractor",
    "FeatureCache",
    "FeatureConfig",
    "FeatureMap",
    "Features",
    "PairMatcher",
    "PositionalBasis",
    "Resize",
    "backbone_names",
    "check_backbone",
    "dense_maps",
    "load_backbone",
    "matcher_names",
    "register_backbone",
    "register_matcher",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Keypoints and descriptors: every representation of the paper, and any that is registered."""

from manymatch.features.backbones import Backbone
from manymatch.features.check import BackboneReport, check_backbone
from manymatch.features.debias import PositionalBasis
from manymatch.features.extractor import Extractor, Features
from manymatch.features.feature_cache import FeatureCache
from manymatch.features.feature_config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.maps import FeatureMap, dense_maps
from manymatch.features.matchers import PairMatcher
from manymatch.features.registry import (
    backbone_names,
    load_backbone,
    matcher_names,
    register_backbone,
    register_matcher,
)
from manymatch.features.resize import Resize

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

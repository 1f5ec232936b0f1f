"""Keypoints and descriptors: every representation of the paper, and a door for the next one."""

from manymatch.features.backbone import Backbone
from manymatch.features.cache import FeatureCache
from manymatch.features.check import BackboneReport, check_backbone
from manymatch.features.config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.debias import PositionalBasis
from manymatch.features.dense import dense_maps
from manymatch.features.extractor import Extractor
from manymatch.features.feature_map import FeatureMap
from manymatch.features.image_features import Features
from manymatch.features.registry import backbone_names, load_backbone, register_backbone
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
    "PositionalBasis",
    "Resize",
    "backbone_names",
    "check_backbone",
    "dense_maps",
    "load_backbone",
    "register_backbone",
]

"""Complete matchers to compare with: two images in, correspondences out."""

from manymatch.baselines.systems.base import Correspondences, System
from manymatch.baselines.systems.registry import SYSTEMS, load_system

__all__ = ["SYSTEMS", "Correspondences", "System", "load_system"]

"""Complete matchers to compare with: two images in, correspondences out."""

from manymatch_paper.systems.base import Correspondences, System
from manymatch_paper.systems.registry import SYSTEMS, load_system

__all__ = ["SYSTEMS", "Correspondences", "System", "load_system"]

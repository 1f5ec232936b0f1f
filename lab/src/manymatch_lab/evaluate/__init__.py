"""Pose errors, their area under the curve, and intervals."""

from manymatch.geometry.pose import (
    FAILURE_DEG,
    pose_auc,
    pose_error_deg,
    rotation_error_deg,
    translation_error_deg,
)
from manymatch_lab.evaluate.statistics import (
    Interval,
    bootstrap_interval,
    paired_bootstrap_interval,
)

__all__ = [
    "FAILURE_DEG",
    "Interval",
    "bootstrap_interval",
    "paired_bootstrap_interval",
    "pose_auc",
    "pose_error_deg",
    "rotation_error_deg",
    "translation_error_deg",
]

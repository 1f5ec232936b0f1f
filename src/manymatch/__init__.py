"""Many-to-many robust relative pose: keep several candidates per keypoint, let geometry resolve."""

from manymatch import datasets, evaluate, io
from manymatch.associate import associate
from manymatch.camera import Camera
from manymatch.estimate import (
    Estimate,
    Score,
    estimate_relative_pose,
    estimate_relative_poses,
    score_pose,
)
from manymatch.frontend import Candidates, candidates
from manymatch.gms import GmsResult, gms_filter
from manymatch.graph import AssociationGraph
from manymatch.merge import merge_coincident
from manymatch.options import Options
from manymatch.pose import RelativePose

__version__ = "0.1.0"

__all__ = [
    "AssociationGraph",
    "Camera",
    "Candidates",
    "Estimate",
    "GmsResult",
    "Options",
    "RelativePose",
    "Score",
    "__version__",
    "associate",
    "candidates",
    "datasets",
    "estimate_relative_pose",
    "estimate_relative_poses",
    "evaluate",
    "gms_filter",
    "io",
    "merge_coincident",
    "score_pose",
]

"""Many-to-many robust relative pose: keep several candidates per keypoint, let geometry resolve."""

from manymatch import datasets, evaluate, features, io
from manymatch.associate import associate
from manymatch.camera import Camera
from manymatch.confidence import Confidence, assess
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
from manymatch.match_result import MatchResult
from manymatch.matcher_config import MatcherConfig
from manymatch.merge import merge_coincident
from manymatch.options import Options
from manymatch.pipeline import Matcher, match
from manymatch.pose import RelativePose

__version__ = "0.1.0"

__all__ = [
    "AssociationGraph",
    "Camera",
    "Candidates",
    "Confidence",
    "Estimate",
    "GmsResult",
    "MatchResult",
    "Matcher",
    "MatcherConfig",
    "Options",
    "RelativePose",
    "Score",
    "__version__",
    "assess",
    "associate",
    "candidates",
    "datasets",
    "estimate_relative_pose",
    "estimate_relative_poses",
    "evaluate",
    "features",
    "gms_filter",
    "io",
    "match",
    "merge_coincident",
    "score_pose",
]

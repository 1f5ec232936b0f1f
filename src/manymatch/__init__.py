"""Many-to-many robust relative pose: keep several candidates per keypoint, let geometry resolve."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from manymatch.associate.candidates import Candidates, candidates
from manymatch.associate.gms import GmsResult, gms_filter
from manymatch.associate.merge import merge_coincident
from manymatch.associate.neighbours import associate
from manymatch.estimate.confidence import Confidence, assess
from manymatch.estimate.homography import estimate_homography
from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import (
    estimate_relative_pose,
    estimate_relative_poses,
    score_pose,
)
from manymatch.estimate.result import Estimate, Score
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from manymatch import datasets, evaluate, features, io
    from manymatch.matcher.config import MatcherConfig
    from manymatch.matcher.matcher import Matcher, match
    from manymatch.matcher.result import MatchResult

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
    "estimate_homography",
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

# Imported when they are first used: the estimator and the command line start without them.
_LAZY = {
    "datasets": "datasets",
    "evaluate": "evaluate",
    "features": "features",
    "io": "io",
    "MatchResult": "matcher.result",
    "Matcher": "matcher.matcher",
    "MatcherConfig": "matcher.config",
    "match": "matcher.matcher",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LAZY[name]}")
    value = module if name == _LAZY[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

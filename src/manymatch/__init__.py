"""Many-to-many robust relative pose: keep several candidates per keypoint, let geometry resolve.

Two images::

    result = manymatch.match("a.jpg", "b.jpg")      # or manymatch.Matcher() for many pairs
    print(result)                                   # verdict, pose in words, numbers
    result.pose, result.matches, result.report("ab.html")

Keypoints and descriptors of your own::

    found = manymatch.candidates(points0, points1, desc0, desc1, size0, size1)
    estimate = manymatch.estimate_relative_pose(found, K0, K1, seed=1)

Thousands of pairs, as ``manymatch batch`` does it::

    manymatch.run_batch("pairs.txt", "images", "out/batch", formats=["parquet"])
    store = manymatch.read_matches("out/batch")
    store[17], store.by_names("a.jpg", "b.jpg")     # while it runs or afterwards

Matches of your own::

    graph = manymatch.AssociationGraph.from_matches(points0, points1)
    estimate = manymatch.estimate_relative_pose(graph, K0, K1)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from manymatch.associate.candidates import Candidates, candidates
from manymatch.associate.gms import GmsResult, gms_filter
from manymatch.associate.merge import merge_coincident, merge_graphs
from manymatch.associate.neighbours import associate
from manymatch.estimate.absolute_pose import AbsolutePoseEstimate, estimate_absolute_pose
from manymatch.estimate.confidence import Confidence, assess
from manymatch.estimate.fundamental import FundamentalEstimate, estimate_fundamental
from manymatch.estimate.homography import HomographyEstimate, estimate_homography
from manymatch.estimate.many import estimate_many
from manymatch.estimate.relative_pose import (
    RelativePoseEstimate,
    estimate_relative_pose,
    score_pose,
)
from manymatch.estimate.result import Alternative, Estimate, Score
from manymatch.estimate.rigid import (
    RigidEstimate,
    SimilarityEstimate,
    estimate_rigid_transform,
    estimate_similarity,
)
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import AbsolutePose, RelativePose, pose_auc, pose_error_deg
from manymatch.graph import AssociationGraph
from manymatch.options import Options

if TYPE_CHECKING:
    import os

    from manymatch import compat, features, io, viz
    from manymatch.batch.batch import run_batch
    from manymatch.batch.outputs import read_matches
    from manymatch.matcher.align import Alignment, align
    from manymatch.matcher.config import MatcherConfig, SourceConfig
    from manymatch.matcher.match_result import MatchResult
    from manymatch.matcher.matcher import Matcher, match
    from manymatch.reconstruct.localize import LocalizedImage, localize
    from manymatch.reconstruct.reconstruct import reconstruct
    from manymatch.reconstruct.reconstruction import Reconstruction

__version__ = "0.3.0"

__all__ = [
    "AbsolutePose",
    "AbsolutePoseEstimate",
    "Alignment",
    "Alternative",
    "AssociationGraph",
    "Camera",
    "Candidates",
    "Confidence",
    "Estimate",
    "FundamentalEstimate",
    "GmsResult",
    "HomographyEstimate",
    "LocalizedImage",
    "MatchResult",
    "Matcher",
    "MatcherConfig",
    "Options",
    "Reconstruction",
    "RelativePose",
    "RelativePoseEstimate",
    "RigidEstimate",
    "Score",
    "SimilarityEstimate",
    "SourceConfig",
    "__version__",
    "align",
    "assess",
    "associate",
    "candidates",
    "compat",
    "estimate_absolute_pose",
    "estimate_fundamental",
    "estimate_homography",
    "estimate_many",
    "estimate_relative_pose",
    "estimate_rigid_transform",
    "estimate_similarity",
    "features",
    "gms_filter",
    "io",
    "localize",
    "match",
    "merge_coincident",
    "merge_graphs",
    "pose_auc",
    "pose_error_deg",
    "read_matches",
    "reconstruct",
    "run_batch",
    "score_pose",
    "viz",
]

# Imported when they are first used: the estimator and the command line start without them.
_LAZY = {
    "align": "matcher.align",
    "compat": "compat",
    "features": "features",
    "io": "io",
    "Alignment": "matcher.align",
    "LocalizedImage": "reconstruct.localize",
    "MatchResult": "matcher.match_result",
    "Matcher": "matcher.matcher",
    "MatcherConfig": "matcher.config",
    "SourceConfig": "matcher.config",
    "Reconstruction": "reconstruct.reconstruction",
    "localize": "reconstruct.localize",
    "match": "matcher.matcher",
    "read_matches": "batch.outputs",
    "reconstruct": "reconstruct.reconstruct",
    "run_batch": "batch.batch",
    "viz": "viz",
}

# The folder of the reconstruction has the name of its function. Importing a folder binds its name
# here, which happens once: now, so that the name is free for the function.
importlib.import_module(f"{__name__}.reconstruct")
globals().pop("reconstruct", None)


def _save(graph: AssociationGraph, path: str | os.PathLike[str]) -> None:
    """Write the graph to one .npz file, exactly under this name, without pickled objects.

    The file appears under its name only when it is complete, so a reader never sees half of it and
    an older file survives a failed write.
    """
    from manymatch.io.graphs import save_graph

    save_graph(graph, path)


def _load(path: str | os.PathLike[str]) -> AssociationGraph:
    """Read a graph that `save` wrote, checking it like any other input.

    Raises
    ------
    ValueError
        If the file does not exist, is damaged or is something else.
    """
    from manymatch.io.graphs import load_saved_graph

    return load_saved_graph(path)


# The core does not touch files, so the graph's two methods for them are attached here.
AssociationGraph.save = _save  # type: ignore[method-assign,assignment]
AssociationGraph.load = staticmethod(_load)  # type: ignore[method-assign]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    module = importlib.import_module(f"{__name__}.{_LAZY[name]}")
    value = module if name == _LAZY[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

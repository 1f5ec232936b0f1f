"""What the estimators of all problems return."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _core
from manymatch._validate import BoolArray, FloatArray, IndexArray, count, read_only
from manymatch.estimate.prepare import nothing_to_match
from manymatch.options import core_options, num_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from manymatch._validate import Method
    from manymatch.estimate.prepare import PreparedPair
    from manymatch.geometry.camera import Camera
    from manymatch.geometry.pose import AbsolutePose, RelativePose
    from manymatch.options import Options

    Model = RelativePose | AbsolutePose | FloatArray

#: Images determine a focal length if they leave this share of the prior's standard deviation.
FOCAL_DETERMINED = 0.5

# Fields of an `Estimate` that are taken from the result of the core as they are.
_FIELDS_OF_CORE = (
    *("success", "hcm", "cardinality", "num_inliers"),
    *("iterations", "refinements", "pooled", "worst_pooled"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Alternative:
    """Another model that may be the right one.

    Two poses show a plane alike, and a repeated facade fits to itself shifted by a period.

    Attributes
    ----------
    model : RelativePose, AbsolutePose or float64 ndarray
        A pose, homography, fundamental matrix or transform, as in `Estimate`.
    probability : float
        Probability that this is the right model, if one of those found is; the chosen model has
        what those of all alternatives leave of 1.
    cardinality : int
        Number of its matches.
    matches : (M, 2) int64 ndarray
        Its 1-to-1 correspondences, as in `Estimate`.
    support : float
        How much speaks for it, as in `Estimate`. The probability leaves out what the motion
        filter says: of two motions that each agree in themselves it keeps one.
    focals_px : tuple of float
        Of a relative pose with an unknown focal length: focal lengths of the two cameras in pixels
        that go with it. Empty otherwise.
    """

    model: Model
    probability: float
    cardinality: int
    matches: IndexArray
    support: float
    focals_px: tuple[float, ...] = ()

    def __repr__(self) -> str:
        model = "matrix" if isinstance(self.model, np.ndarray) else repr(self.model)
        return (
            f"Alternative({model}; probability {self.probability:.2f}, "
            f"{count(self.cardinality, 'match', 'matches')})"
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """What an estimator found: a model of the geometry, and the matches that agree with it.

    Attributes
    ----------
    success : bool
        Whether there is a model.
    failure : str
        Why there is none; empty on success.
    problem : str
        What was estimated: "relative", "homography", ...
    pose : RelativePose, AbsolutePose or None
        Of `estimate_relative_pose`: maps camera-0 to camera-1 coordinates, ``x1 = R @ x0 + t`` with
        ``|t| = 1``. Of `estimate_absolute_pose`: maps world to camera coordinates,
        ``x_cam = R @ X + t``.
    homography : (3, 3) float64 ndarray or None
        Of `estimate_homography`: maps pixels of image 0 to pixels of image 1, ``x1 ~ H x0`` with
        ``H[2, 2] = 1``.
    fundamental : (3, 3) float64 ndarray or None
        Of `estimate_fundamental`: ``x1^T F x0 = 0`` in pixels, with Frobenius norm one.
    transform : (4, 4) float64 ndarray or None
        Of `estimate_rigid_transform` and `estimate_similarity`: ``x1 = transform @ x0`` in
        homogeneous coordinates.
    scale : float
        Of `estimate_similarity`: that of the transform. NaN for other problems.
    camera0, camera1 : Camera or None
        Cameras of a pose, with the focal lengths found where they were unknown; an absolute pose
        has one, `camera0`. Without a pose they are as given.
    focal_sd_px : tuple of float
        Of a pose with an unknown focal length: standard deviation in pixels of the focal length
        of each camera, 0 for a known one. Empty if all are known, or without a pose.
    focal_determined : bool
        Whether the images say what the unknown focal lengths are, all of them; if not, they are
        those of their priors for the most part. True if all are known.
    inliers : (E,) bool ndarray
        Edges consistent with the model: error below the threshold and, for a pose, both depths
        positive.
    matches : (M, 2) int64 ndarray
        Resolved 1-to-1 correspondences ``(index into points0, index into points1)``: a maximum
        matching of the inlier edges, of all maximum ones that with the least sum of squared
        residuals; with method "auto" what is known of an edge counts beside its residual. In the
        order of the graph's edges.
    match_probability : (M,) float64 ndarray or None
        Probability that each of the matches is right, aligned with `matches`; None for methods
        other than "auto".
    hcm : float
        Score of the model by harmonic consensus maximization (HCM).
    cardinality : int
        Size of the maximum matching, the score of matching cardinality maximization (MCM).
    num_inliers : int
        Number of inlier edges.
    threshold_px : float
        Inlier threshold that was used: that of the options, or the one chosen for this pair.
    noise_px, noise_sd_px : float
        Of method "auto": standard deviation of a coordinate of a keypoint in pixels, estimated from
        the residuals around the model, and the standard deviation of that estimate. It is at most
        three thresholds. NaN if unknown.
    support : float
        Of method "auto": logarithm of the likelihood that the residuals of the best matching have
        under this model and noise, over that by chance; NaN for other methods.
    alternatives : tuple of Alternative
        Of method "auto": other models that may be the right one, the likeliest first, down to a
        probability of 0.01.
    source_trust : (S,) float64 ndarray
        Of method "auto" on a graph with several sources: how far each of them was trusted, relative
        to the best (1), as a factor on the priors of its edges. Empty otherwise.
    parallax_deg : float
        Median angle between the two rays of a resolved match, in degrees; NaN without a pose.
    low_parallax : bool
        Of a pose, whether that angle is so small against the threshold (below four times its
        angle) that the direction of `pose.t` means little. The rotation can still be good.
    iterations : int
        Minimal samples drawn.
    refinements : int
        Local refinements run, both stages together.
    pooled : int
        Raw seeds that stage 1 handed to stage 2; 0 for a single mechanism.
    worst_pooled : float
        Least HCM score among them. A model would have entered the pool if it was not full
        (``pooled < options.pool_size``) or if its score is strictly larger.
    method : str
        Method that was used.
    options : Options
        Options that were used.
    timing : dict of str to float
        Seconds by stage: setup, search, local_refine, select, polish, resolve, total.
    """

    success: bool
    failure: str
    problem: str
    pose: RelativePose | None = None
    homography: FloatArray | None = None
    fundamental: FloatArray | None = None
    transform: FloatArray | None = None
    scale: float = math.nan
    camera0: Camera | None = None
    camera1: Camera | None = None
    focal_sd_px: tuple[float, ...] = ()
    focal_determined: bool = True
    inliers: BoolArray
    matches: IndexArray
    match_probability: FloatArray | None = None
    hcm: float
    cardinality: int
    num_inliers: int
    parallax_deg: float = math.nan
    low_parallax: bool = False
    threshold_px: float
    noise_px: float = math.nan
    noise_sd_px: float = math.nan
    support: float = math.nan
    alternatives: tuple[Alternative, ...] = ()
    source_trust: FloatArray = dataclasses.field(default_factory=lambda: read_only(np.zeros(0)))
    iterations: int
    refinements: int
    pooled: int
    worst_pooled: float
    method: str
    options: Options
    timing: dict[str, float]
    # What it was made from and the model of the core, for `assess`.
    _pair: PreparedPair
    _model: Any
    # The function of the core that found it.
    _solver: str
    # Edges (E,) that the motion filter keeps; empty if it did not run.
    _kept: BoolArray
    # The support of the best other model, 0 if there is none; mean share of the inliers of the
    # pooled seeds that the model has too.
    _second_support: float = 0.0
    _pool_agreement: float = 0.0

    def __repr__(self) -> str:
        effort = f"{count(self.iterations, 'iteration')}, {1e3 * self.timing['total']:.1f} ms"
        if not self.success:
            return f"Estimate({self.method}: failed, {self.failure}; {effort})"
        model = self.problem if self.pose is None else repr(self.pose)
        weak = f"; low parallax ({self.parallax_deg:.2f} deg)" if self.low_parallax else ""
        return (
            f"Estimate({self.method}: {model}; {count(self.inliers.size, 'candidate')} -> "
            f"{count(self.num_inliers, 'inlier')} -> "
            f"{count(self.cardinality, 'match', 'matches')}{weak}; {effort})"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
    """Exact scores of one model, in float64.

    Attributes
    ----------
    hcm : float
        Score of harmonic consensus maximization (HCM); larger is better, 0 without an inlier.
    cardinality : int
        Size of a maximum matching of the inlier edges, the score of matching cardinality
        maximization (MCM).
    num_inliers : int
        Number of inlier edges.
    inliers : (E,) bool ndarray
        Edges consistent with the model, as in `Estimate`.
    """

    hcm: float
    cardinality: int
    num_inliers: int
    inliers: BoolArray

    def __repr__(self) -> str:
        return (
            f"Score(hcm={self.hcm:.6g}, cardinality={self.cardinality}, "
            f"num_inliers={self.num_inliers} of {self.inliers.size})"
        )


@dataclasses.dataclass(frozen=True)
class GeometricProblem:
    """What the functions for all problems need to know of one.

    Attributes
    ----------
    name : str
        As in `Estimate.problem`.
    core : str or pair of str
        Name of the core's function: (pairs, method, options, threads) to results. Of two, the
        second is for pairs with parameters.
    prepare : callable
        (graph, what else the problem takes, options, proposals, where) to a `PreparedPair`.
    finish : callable
        (pair, result of the core, method) to an `Estimate`.
    """

    name: str
    core: str | tuple[str, str]
    prepare: Callable[..., PreparedPair]
    finish: Callable[[PreparedPair, Any, str], Estimate]

    def core_of(self, pair: PreparedPair) -> str:
        """Name of the core's function for a pair."""
        return self.core if isinstance(self.core, str) else self.core[pair.parameters is not None]

    def run(self, pairs: Sequence[PreparedPair], method: Method, threads: int) -> list[Estimate]:
        """Estimate all pairs; one pair uses the threads within, several use one each."""
        names = [self.core_of(pair) for pair in pairs]
        estimates: list[Estimate | None] = [None] * len(pairs)
        for name in dict.fromkeys(names):
            chosen = [i for i, other in enumerate(names) if other == name]
            results = getattr(_core, name)(
                [pairs[i].for_core() for i in chosen],
                method,
                [core_options(pairs[i].options) for i in chosen],
                num_threads(threads),
            )
            for i, result in zip(chosen, results, strict=True):
                estimates[i] = self.finish(pairs[i], result, method)
        return [estimate for estimate in estimates if estimate is not None]


def common_fields(
    problem: GeometricProblem,
    prepared: PreparedPair,
    result: Any,
    public_model: Callable[[Any], Model],
    method: str,
) -> dict[str, Any]:
    """Take the fields of an `Estimate` that all problems have from the result of the core.

    `public_model` turns a model of the core into one of the public interface.
    """
    edges = prepared.graph.edges
    known = method == "auto" and result.success and result.noise > 0.0
    pixels = prepared.threshold_px / prepared.eps if known else math.nan
    return {
        "problem": problem.name,
        **{name: getattr(result, name) for name in _FIELDS_OF_CORE},
        "failure": nothing_to_match(prepared.graph) or result.failure,
        "inliers": read_only(result.inliers),
        "matches": read_only(edges[result.matched]),
        "threshold_px": prepared.threshold_px,
        "noise_px": pixels * result.noise,
        "noise_sd_px": pixels * result.noise_deviation,
        "support": result.support if known else math.nan,
        "alternatives": tuple(
            Alternative(
                public_model(model), probability, len(matched), read_only(edges[matched]), support
            )
            for model, probability, support, matched in result.alternatives
        ),
        "source_trust": read_only(result.trust),
        "method": method,
        "options": prepared.options,
        "timing": dict(result.timing),
        "_pair": prepared,
        "_model": result.model,
        "_solver": problem.core_of(prepared),
        "_kept": read_only(result.kept),
        "_second_support": result.second_support,
        "_pool_agreement": result.pool_agreement,
    }


def without_model(pair: PreparedPair, reason: str) -> dict[str, Any]:
    """Fields of an `Estimate` whose model does not stand, in place of those of `common_fields`."""
    return {
        "success": False,
        "failure": reason,
        "inliers": read_only(np.zeros(pair.graph.num_edges, dtype=np.bool_)),
        "matches": read_only(np.zeros((0, 2), dtype=np.int64)),
        **dict.fromkeys(("hcm", "cardinality", "num_inliers"), 0),
        "alternatives": (),
    }

"""What the estimators of all problems return."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from manymatch._validate import BoolArray, FloatArray, IndexArray, count, read_only
from manymatch.geometry.pose import AbsolutePose, RelativePose

if TYPE_CHECKING:
    from manymatch.estimate.problem import PreparedPair
    from manymatch.geometry.camera import Camera
    from manymatch.options import Options

Model: TypeAlias = RelativePose | AbsolutePose | FloatArray

# Lengths of an estimate; in pixels their names end with "_px".
LENGTHS = ("threshold", "noise", "noise_sd")
#: Images determine a focal length if they leave this share of the prior's standard deviation.
FOCAL_DETERMINED = 0.5
# A focal length with a larger standard deviation, relative to itself, leaves much of a pose open.
_VAGUE = 0.1


@dataclasses.dataclass(frozen=True, eq=False)
class Alternative:
    """Another model that may be the right one, such as the second pose of a plane.

    Attributes
    ----------
    model, cardinality, matches, support
        As in `Estimate`.
    probability : float
        Probability that this is the right model, if one of those found is; all and that of the
        chosen model add up to 1. It does not use the motion filter, which keeps only one of two
        consistent motions.
    focals_px : tuple of float
        For a relative pose with an unknown focal length, the focal lengths of both cameras in
        pixels. Empty otherwise.
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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Estimate:
    """What an estimator found: a model of the geometry, and the matches that agree with it.

    Every problem has a subclass with fields of its own, such as `RelativePoseEstimate.pose`.

    Attributes
    ----------
    success, failure, problem : bool, str and str
        Whether there is a model, why there is none, and its kind: "relative", "homography", ...
    model : RelativePose, AbsolutePose, float64 ndarray or None
        The pose, matrix or transform that was estimated; None without success.
    inliers : (E,) bool ndarray
        Edges consistent with the model: error below the threshold and, for a pose, both depths
        positive.
    matches : (M, 2) int64 ndarray
        Resolved 1-to-1 correspondences ``(index into points0, index into points1)``: a maximum
        matching of the inlier edges, of all maximum ones that with the least sum of squared
        residuals; with method "auto" the prior of an edge counts beside its residual. In the order
        of the graph's edges.
    match_probability : (M,) float64 ndarray or None
        Probability that each of the matches is right, aligned with `matches`; None for methods
        other than "auto".
    hcm, cardinality, num_inliers : float, int, int
        Score by harmonic consensus maximization (HCM); size of the maximum matching, the score of
        matching cardinality maximization (MCM); number of inlier edges.
    support : float
        Of method "auto": logarithm of the likelihood that the residuals of the best matching have
        under this model and noise, over that by chance; NaN for other methods.
    alternatives : tuple of Alternative
        Of method "auto": other models that may be the right one, the likeliest first, down to a
        probability of 0.01.
    source_trust : (S,) float64 ndarray
        Of method "auto" on a graph with several sources: how far each of them was trusted, relative
        to the best (1), as a factor on the priors of its edges. Empty otherwise.
    iterations, refinements : int
        Minimal samples drawn, and local refinements run in both stages together.
    pooled, worst_pooled : int and float
        Raw seeds that stage 1 handed to stage 2, 0 for a single mechanism, and the least HCM score
        among them; a model with a larger score would have entered the pool.
    method, options, timing : str, Options and dict of str to float
        Those used; seconds by stage: setup, search, local_refine, select, polish, resolve, total.

    Notes
    -----
    Estimates from images have `threshold_px`, `noise_px` and `noise_sd_px`, those from points in
    space `threshold`, `noise` and `noise_sd` in their unit: the inlier threshold that was used, and
    with method "auto" the standard deviation of a coordinate of a point (at most three thresholds,
    NaN if unknown), with the standard deviation of that estimate.
    """

    success: bool
    failure: str
    problem: str
    model: Model | None = None
    inliers: BoolArray
    matches: IndexArray
    match_probability: FloatArray | None = None
    hcm: float
    cardinality: int
    num_inliers: int
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
    # For `assess`: the prepared pair, the model of the core, the edges (E,) that the motion filter
    # keeps (empty if it did not run), the support of the best other model, and the mean share of
    # the inliers of the pooled seeds that the model has too.
    _pair: PreparedPair
    _model: Any
    _kept: BoolArray

    # Name of the model in files, and what names of lengths end with.
    model_name: ClassVar[str] = "model"
    length_suffix: ClassVar[str] = "_px"

    def __repr__(self) -> str:
        effort = f"{count(self.iterations, 'iteration')}, {1e3 * self.timing['total']:.1f} ms"
        name = type(self).__name__
        if not self.success:
            return f"{name}({self.method}: failed, {self.failure}; {effort})"
        model = self.problem if isinstance(self.model, np.ndarray) else repr(self.model)
        return (
            f"{name}({self.method}: {model}; {count(self.inliers.size, 'candidate')} -> "
            f"{count(self.num_inliers, 'inlier')} -> "
            f"{count(self.cardinality, 'match', 'matches')}; {effort})"
        )

    def refused(self, reason: str) -> Self:
        """Return the estimate without model, inliers and matches, as if the search had failed."""
        return dataclasses.replace(
            self,
            success=False,
            failure=reason,
            model=None,
            inliers=read_only(np.zeros_like(self.inliers)),
            matches=self.matches[:0],
            match_probability=None,
            hcm=0.0,
            cardinality=0,
            num_inliers=0,
            alternatives=(),
        )

    def length(self, name: str) -> float:
        """Return "threshold", "noise" or "noise_sd" in pixels, or in the unit of the points."""
        return float(getattr(self, f"{name}{self.length_suffix}"))

    @property
    def mean_probability(self) -> float | None:
        """Mean probability that a match is right; None if unknown or without matches."""
        probability = self.match_probability
        return None if probability is None or probability.size == 0 else float(probability.mean())

    def by_source(self) -> dict[str, dict[str, Any]]:
        """Return candidates, inliers, matches and trust of every source; empty without sources."""
        graph, edges = self._pair.graph, self._pair.graph.edges
        kinds = {"candidates": edges, "inliers": edges[self.inliers], "matches": self.matches}
        counts = {kind: graph.count_by_source(pairs) for kind, pairs in kinds.items()}
        if len(self.source_trust):
            trust = self.source_trust.tolist()
            counts["trust"] = dict(zip(graph.source_names, trust, strict=True))
        return {
            name: {kind: column[name] for kind, column in counts.items()}
            for name in graph.source_names
        }

    def _scalars(self) -> dict[str, Any]:
        """Return what `to_dict` and `to_row` have in common."""
        lengths = [f"{name}{self.length_suffix}" for name in LENGTHS]
        others = ("support", "hcm", "cardinality", "iterations", "refinements")
        scalars = {
            "success": self.success,
            "failure": self.failure or None,
            "candidates": self.inliers.size,
            "inliers": self.num_inliers,
            "matches": len(self.matches),
            "mean_probability": self.mean_probability,
            **{name: getattr(self, name) for name in (*lengths, *others)},
            **self._own(),
        }
        return {name: plain(value) for name, value in scalars.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the model and all numbers for JSON, None where not finite, and counts of edges."""
        sources = self.by_source()
        return {
            "problem": self.problem,
            self.model_name: plain(self.model),
            **self._scalars(),
            "alternatives": [
                {
                    self.model_name: plain(other.model),
                    **{
                        n: plain(getattr(other, n))
                        for n in ("probability", "cardinality", "support")
                    },
                    "matches": len(other.matches),
                }
                for other in self.alternatives
            ],
            **({"sources": sources} if sources else {}),
            "timing_s": plain(self.timing),
        }

    def to_row(self) -> dict[str, Any]:
        """Return the scalars of the estimate, flat, for a row of a table; None where unknown.

        A pose has the columns R00 to R22 and t0 to t2, a matrix its name with row and column.
        """
        by_source = self._pair.graph.count_by_source(self.matches)
        scalars = self._scalars().items()
        return {
            **{name: value for name, value in scalars if not isinstance(value, list)},
            **_entries(self.model_name, self.model),
            "matches_by_source": ";".join(f"{name}:{n}" for name, n in by_source.items()) or None,
            "alternatives": len(self.alternatives),
            "second_probability": max((a.probability for a in self.alternatives), default=None),
            "method": self.method,
            "seed": self.options.seed,
            "estimate_seconds": self.timing["total"],
        }

    def _own(self) -> dict[str, Any]:
        """Return the fields of the problem beside its model, for `to_dict` and `to_row`."""
        return {}


def plain(value: Any) -> Any:
    """Turn poses, arrays and numbers into values for JSON, and infinite ones and NaN into None."""
    if isinstance(value, RelativePose | AbsolutePose):
        return {"R": value.R.tolist(), "t": value.t.tolist()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _entries(name: str, model: Model | None) -> dict[str, float]:
    """Return the numbers of a model by the names of their columns."""
    if model is None:
        return {}
    if isinstance(model, np.ndarray):
        return {f"{name}{i}{j}": float(value) for (i, j), value in np.ndenumerate(model)}
    R = {f"R{i}{j}": float(value) for (i, j), value in np.ndenumerate(model.R)}
    return {**R, **{f"t{i}": float(value) for i, value in enumerate(model.t)}}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PixelEstimate(Estimate):
    """An estimate whose threshold and noise are in pixels."""

    threshold_px: float
    noise_px: float = math.nan
    noise_sd_px: float = math.nan


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PoseEstimate(PixelEstimate):
    """An estimate of a pose, whose cameras may have had unknown focal lengths.

    Attributes
    ----------
    camera0 : Camera
        The (first) camera, with the focal length found if it was unknown; as given without a pose.
    focal_sd_px : tuple of float
        With an unknown focal length: standard deviation in pixels of the focal length of each
        camera, 0 for a known one. Empty if all are known, or without a pose.
    focal_determined : bool
        Whether the matches determine all unknown focal lengths; if not, those found are mostly
        those of the priors. True if all are known.
    """

    camera0: Camera
    focal_sd_px: tuple[float, ...] = ()
    focal_determined: bool = True

    model_name: ClassVar[str] = "pose"

    @property
    def cameras(self) -> tuple[Camera, ...]:
        """The cameras of the pose, with the focal lengths found where they were unknown."""
        return (self.camera0,)

    @property
    def focal_vague(self) -> bool:
        """Whether neither the matches nor the prior determine an unknown focal length to 10 %."""
        known = zip(self.focal_sd_px, self.cameras, strict=False)
        return not self.focal_determined and any(sd > _VAGUE * c.focal for sd, c in known)

    def _own(self) -> dict[str, Any]:
        if not self.focal_sd_px:
            return {}
        return {
            "focal_px": [camera.focal for camera in self.cameras],
            "focal_sd_px": self.focal_sd_px,
            "focal_determined": self.focal_determined,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
    """Exact scores of one model in float64; the attributes are those of `Estimate`."""

    hcm: float
    cardinality: int
    num_inliers: int
    inliers: BoolArray

    def __repr__(self) -> str:
        return (
            f"Score(hcm={self.hcm:.6g}, cardinality={self.cardinality}, "
            f"num_inliers={self.num_inliers} of {self.inliers.size})"
        )

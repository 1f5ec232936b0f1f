"""The settings of the estimator, in one place."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from manymatch._validate import INT32_MAX, describe, integer, real, refusal, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

#: Parts of method "auto" that `Options.without` can leave out, and what each of them is. In the
#: order of the bits in ``cpp/include/manymatch/options.h``.
INGREDIENTS: dict[str, str] = {
    "filter": "An edge that the GMS filter does not keep is worth less, instead of being removed.",
    "ranks": "An edge is worth less the higher its rank.",
    "mixture": "Most samples are drawn from the edges that are worth most.",
    "stopping": "The search ends by the chance that this sampler draws inliers only.",
    "narrow": "The search sees the 384 edges that are worth most, the selection all 2048.",
    "distinct": "Seeds that share their inliers with a refined pose are not refined again.",
    "weights": "The heaviest matching selects the pose, not the largest.",
    "polish": "The last polish reaches beyond the threshold, again until the inliers stay.",
}


def _refuse_unknown_fields(cls: type[T]) -> type[T]:
    """Make the constructor of a dataclass raise `ValueError` for a field it does not have.

    The generated ``__init__`` would raise `TypeError`, which says "programming error"; a setting
    that comes out of a file or a command line with a misspelt name is bad input instead.
    """
    original = cls.__init__
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(original)
    def checked(self: T, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                raise ValueError(
                    f"{name} is no field of {cls.__name__}{suggest(name, known)}; "
                    f"the fields are {', '.join(known)}"
                )
        original(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


@_refuse_unknown_fields
@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of `estimate_relative_pose`, checked when made and never changed.

    Together with the graph and the cameras they decide the result; `threads` decides only how
    long it takes.

    Parameters
    ----------
    threshold_px : float
        Inlier threshold on the Sampson error, in pixels, above 0. It is carried to the normalised
        plane as ``eps = 0.5 (1/f0 + 1/f1) threshold_px`` with the mean focal lengths f0 and f1.
    min_iterations : int
        Iterations that always run (T_min), from 1 to `max_iterations`.
    max_iterations : int
        Iterations after which the search ends (T_max), up to 2**31 - 1.
    confidence : float
        Wanted probability, in (0, 1), to have drawn one sample of inliers only (eta).
    safety : float
        Factor on the number of iterations that `confidence` asks for (kappa), above 0.
    pool_size : int
        Raw hypotheses that stage 1 of the two-stage method keeps for stage 2, at least 1.
    q : float
        Prior probability, in (0, 1), that a keypoint has a true candidate; the prior of an edge is
        ``p_ij = q / (2 d_i) + q / (2 d_j)`` with the degrees d of its two keypoints.
    delta : float
        Probability, in (0, 1), that a wrong candidate agrees with a pose by chance.
    guidance : float
        Share, in [0, 1], of the minimal samples that is drawn from rank-one edges only; needs
        `AssociationGraph.rank` when above 0. With 0 the sampler is the paper's.
    seed : int
        Key of the random numbers, from 0 to 2**64 - 1.
    threads : int
        Threads to use, 0 for all cores. The result does not depend on it.
    without : tuple of str
        Parts of method "auto" that are left out, names of `INGREDIENTS`, to see what they are
        worth. Other methods have none of them.

    Raises
    ------
    ValueError
        If a field is unknown, of another type or out of its range.

    Examples
    --------
    >>> Options(threshold_px=2.0).replace(seed=7).seed
    7
    """

    threshold_px: float = 1.0
    min_iterations: int = 1_000
    max_iterations: int = 100_000
    confidence: float = 0.9999
    safety: float = 3.0
    pool_size: int = 100
    q: float = 0.3
    delta: float = 0.01
    guidance: float = 0.0
    seed: int = 0
    threads: int = 0
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "threshold_px": real(self.threshold_px, "threshold_px", 0.0),
            "min_iterations": integer(self.min_iterations, "min_iterations", 1, INT32_MAX),
            "max_iterations": integer(self.max_iterations, "max_iterations", 1, INT32_MAX),
            "confidence": real(self.confidence, "confidence", 0.0, 1.0),
            "safety": real(self.safety, "safety", 0.0),
            "pool_size": integer(self.pool_size, "pool_size", 1, INT32_MAX),
            "q": real(self.q, "q", 0.0, 1.0),
            "delta": real(self.delta, "delta", 0.0, 1.0),
            "guidance": real(self.guidance, "guidance", 0.0, 1.0, closed=True),
            "seed": integer(self.seed, "seed", 0, 2**64 - 1),
            "threads": integer(self.threads, "threads", 0, INT32_MAX),
            "without": _ingredients(self.without),
        }
        if checked["min_iterations"] > checked["max_iterations"]:
            raise ValueError(
                f"min_iterations must be at most max_iterations, got min_iterations="
                f"{checked['min_iterations']} and max_iterations={checked['max_iterations']}"
            )
        # Plain Python numbers are stored, so that NumPy scalars given neither leak into JSON nor
        # make two equal settings print differently.
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Options:
        """Make options from a mapping of field names to values, the inverse of `to_dict`.

        Parameters
        ----------
        values : mapping
            Fields that are absent keep their defaults; an unknown one raises `ValueError`.
        """
        try:
            fields = dict(values)
        except (TypeError, ValueError):
            raise ValueError(
                f"values must be a mapping of field names to values, got {describe(values)}"
            ) from None
        if not all(isinstance(name, str) for name in fields):
            raise ValueError(f"values must have field names as keys, got {list(fields)}")
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a new dict of plain numbers and a list of names, ready for JSON."""
        return {**dataclasses.asdict(self), "without": list(self.without)}

    def replace(self, **changes: Any) -> Options:
        """Return a copy with some fields changed, checked again as a whole."""
        return dataclasses.replace(self, **changes)


def _ingredients(names: object) -> tuple[str, ...]:
    """Check names of `INGREDIENTS` and bring them into its order, each once."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise refusal("without", f"a sequence of names among {', '.join(INGREDIENTS)}", names)
    given = list(names)
    for name in given:
        if not isinstance(name, str) or name not in INGREDIENTS:
            known = ", ".join(INGREDIENTS)
            hint = suggest(name, INGREDIENTS)
            raise ValueError(f"without must hold names among {known}, got {name!r}{hint}")
    return tuple(name for name in INGREDIENTS if name in given)

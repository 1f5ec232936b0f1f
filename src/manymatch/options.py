"""Classes of settings, documented by the metadata of their fields, and those of the estimator.

The command line makes its flags of the metadata, so that the help of a setting is written once::

    @settings
    @dataclasses.dataclass(frozen=True)
    class Resize:
        '''How images are resized.'''

        longest: int = setting(1024, "Length of the longer edge in pixels.", panel="Images")
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import textwrap
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from manymatch import _core
from manymatch._validate import INT32_MAX, choice, integer, real, refusal, suggest

T = TypeVar("T")
_current = threading.local()


def setting(
    default: T,
    help: str,  # noqa: A002
    *,
    panel: str = "",
    choices: Iterable[str] = (),
    compare: bool = True,
) -> T:
    """Make a field of a settings class with an immutable default.

    The docstring and the flag show the help: the effect of the field, in sentences with unit and
    range. The panel is the group of flags that it belongs to; `choices` are the texts that it can
    be, if it is a text with few possible values. Without `compare` it has no part in equality.
    """
    metadata = {"help": help, "panel": panel, "choices": tuple(choices)}
    field: Any = dataclasses.field(default=default, compare=compare, metadata=metadata)
    return field  # type: ignore[no-any-return]


def settings(cls: type[T]) -> type[T]:
    """Complete a dataclass of settings.

    Its docstring gets the section "Parameters" from the metadata of its fields. Its constructor
    raises `ValueError`, not `TypeError`, for an unknown field: a misspelt name in a file or on a
    command line is bad input.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    original = cls.__init__

    @functools.wraps(original)
    def checked(self: T, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                raise ValueError(
                    f"{name} is not a field of {cls.__name__}{suggest(name, known)}; "
                    f"the fields are {', '.join(known)}"
                )
        original(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]
    if cls.__doc__:
        cls.__doc__ = _with_parameters(inspect.cleandoc(cls.__doc__), fields)
    return cls


def _with_parameters(doc: str, fields: tuple[dataclasses.Field[Any], ...]) -> str:
    """Insert the section "Parameters" before the first section of a docstring."""
    lines = ["Parameters", "----------"]
    for field in fields:
        kind = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
        if choices := field.metadata.get("choices"):
            several = "tuple of " if kind.startswith("tuple") else ""
            kind = f"{several}{{{', '.join(map(repr, choices))}}}"
        lines.append(f"{field.name} : {kind}")
        lines.append(textwrap.indent(textwrap.fill(field.metadata["help"], 96), "    "))
    heading = re.search(r"^\w+\n-{3,}$", doc, flags=re.MULTILINE)
    at = heading.start() if heading else len(doc)
    return f"{doc[:at].rstrip()}\n\n" + "\n".join(lines) + f"\n\n{doc[at:]}".rstrip() + "\n"


#: Parts of method "auto" that `Options.disable` can switch off, in the order of the bits in
#: ``cpp/include/manymatch/options.h``.
AUTO_PARTS: dict[str, str] = {
    "filter": "An edge that GMS does not keep gets a lower prior instead of being removed.",
    "ranks": "An edge gets a lower prior the higher its rank.",
    "mixture": "Most samples are drawn from the edges with the highest priors.",
    "stopping": "The search ends by the chance of inliers only, or once a model was found often.",
    "narrow": "The search sees the 384 edges with the highest priors, the selection all 2048.",
    "distinct": "Seeds that share their inliers with a refined pose are not refined again.",
    "weights": "The heaviest matching selects the pose, not the largest.",
    "polish": "The last polish uses edges beyond the threshold, until the inliers stay the same.",
    "residuals": "New samples near the pose, and a choice by residuals at the scale of the noise.",
    "trust": "A source that supports no pose beyond chance gets lower priors than the others.",
    "overlap": "Points of two clouds, matched or not, speak for a transform that overlays them.",
}

#: Value of `threshold_px` with which the estimator chooses the threshold.
AUTO = "auto"

# More threads than this only cost memory; the result is the same.
_MOST_THREADS = 256

# Far beyond any image, and small enough to be squared in the core's units.
THRESHOLDS_PX = (1e-9, 1e9)
# Smallest probability that is accepted; its logarithm is still an ordinary number.
_IMPOSSIBLE = 1e-12
_PANEL, _ADVANCED = "Estimation", "Estimation, advanced"


@settings
@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of the estimator, checked when made and never changed.

    Together with the graph and the cameras they decide the result; `threads` decides only how
    long it takes.

    Examples
    --------
    >>> Options(threshold_px=2.0).replace(seed=7).seed
    7
    """

    threshold_px: float | Literal["auto"] = setting(
        1.0,
        "Inlier threshold in pixels, from 1e-9 to 1e9. For a relative pose it bounds the Sampson "
        "error and is carried to the normalised plane as 0.5 (1/f0 + 1/f1) threshold_px with the "
        'mean focal lengths f0 and f1. "auto": chosen for every pair by the noise of its '
        "keypoints, from 1 to 4 pixels of the size at which they were found.",
        panel=_PANEL,
    )
    min_iterations: int = setting(
        1_000, "Iterations that always run (T_min), from 1 to max_iterations.", panel=_PANEL
    )
    max_iterations: int = setting(
        100_000, "Iterations after which the search ends (T_max), up to 2**31 - 1.", panel=_PANEL
    )
    confidence: float = setting(
        0.9999,
        "Wanted probability, in (0, 1), to have drawn one sample of inliers only (eta).",
        panel=_ADVANCED,
    )
    safety: float = setting(
        3.0,
        "Factor, above 0, on the number of iterations that the confidence asks for (kappa).",
        panel=_ADVANCED,
    )
    pool_size: int = setting(
        100,
        "Raw hypotheses that stage 1 of the two-stage methods keeps for stage 2, at least 1.",
        panel=_ADVANCED,
    )
    q: float = setting(
        0.3,
        "Prior probability, in (1e-12, 1), that a keypoint has a true candidate. The methods of "
        "the paper give an edge the prior q / (2 d_i) + q / (2 d_j) with the degrees d of its two "
        'keypoints. "auto" gives it q / rank, with the rank from both sides, 5 at most, times 0.3 '
        "if the motion filter does not keep it; without ranks and similarities it starts from the "
        "prior of the paper.",
        panel=_ADVANCED,
    )
    delta: float = setting(
        0.01,
        "Probability, in (1e-12, 1), that a wrong candidate agrees with a model by chance.",
        panel=_ADVANCED,
    )
    guidance: float = setting(
        0.0,
        "Share, in [0, 1], of the minimal samples that is drawn from rank-one edges only; above 0 "
        'the graph must have ranks. 0 is the sampler of the paper. "auto" does not use it.',
        panel=_ADVANCED,
    )
    seed: int = setting(0, "Key of the random numbers, from 0 to 2**64 - 1.", panel=_PANEL)
    threads: int = setting(
        0, "Threads, 0 for all cores. The result does not depend on it.", panel=_PANEL
    )
    disable: tuple[str, ...] = setting(
        (),
        'Parts of method "auto" that are switched off, to measure what they contribute. Other '
        "methods have none of them.",
        panel=_ADVANCED,
        choices=tuple(AUTO_PARTS),
    )

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "threshold_px": _threshold(self.threshold_px),
            "min_iterations": integer(self.min_iterations, "min_iterations", 1, INT32_MAX),
            "max_iterations": integer(self.max_iterations, "max_iterations", 1, INT32_MAX),
            "confidence": real(self.confidence, "confidence", 0.0, 1.0),
            "safety": real(self.safety, "safety", 0.0),
            "pool_size": integer(self.pool_size, "pool_size", 1, INT32_MAX),
            "q": real(self.q, "q", _IMPOSSIBLE, 1.0),
            "delta": real(self.delta, "delta", _IMPOSSIBLE, 1.0),
            "guidance": real(self.guidance, "guidance", 0.0, 1.0, closed=True),
            "seed": integer(self.seed, "seed", 0, 2**64 - 1),
            "threads": integer(self.threads, "threads", 0, INT32_MAX),
            "disable": _auto_parts(self.disable),
        }
        if checked["min_iterations"] > checked["max_iterations"]:
            raise ValueError(
                f"min_iterations must be at most max_iterations, got min_iterations="
                f"{checked['min_iterations']} and max_iterations={checked['max_iterations']}"
            )
        # Plain Python numbers are stored, so that NumPy scalars do not reach JSON and texts.
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Options:
        """Make options from a mapping of some fields to values, the inverse of `to_dict`."""
        given: Any = values
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise refusal("values", "a mapping of field names to values", values)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a new dict of plain numbers and a list of names, ready for JSON."""
        return {**dataclasses.asdict(self), "disable": list(self.disable)}

    def replace(self, **changes: Any) -> Options:
        """Return a copy with some fields changed, checked again as a whole."""
        return dataclasses.replace(self, **changes)

    def with_pixels(self, size: float) -> Options:
        """Return a copy whose threshold, unless automatic, counts pixels of another size."""
        if isinstance(self.threshold_px, str):
            return self
        return self.replace(threshold_px=self.threshold_px * size)

    def changed(self, **changes: Any) -> Options:
        """Return a copy with the fields that a user gave.

        If only `max_iterations` is given and it is below the default minimum, the minimum is
        lowered to it.
        """
        if not changes:
            return self
        most = changes.get("max_iterations")
        chosen = "min_iterations" in changes or self.min_iterations != Options.min_iterations
        if not chosen and isinstance(most, int) and 0 < most < self.min_iterations:
            changes["min_iterations"] = most
        return self.replace(**changes)


class OptionChanges(TypedDict, total=False):
    """Types of the fields of `Options` where they are keywords of a function, all but `threads`."""

    threshold_px: float | Literal["auto"]
    min_iterations: int
    max_iterations: int
    confidence: float
    safety: float
    pool_size: int
    q: float
    delta: float
    guidance: float
    seed: int
    disable: Iterable[str]


class OptionKeywords(OptionChanges, total=False):
    """Types of all fields of `Options` where they are keywords of a function."""

    threads: int


def checked_options(
    options: object, changes: Mapping[str, object] | None = None, name: str = "options"
) -> Options:
    """Return the given options, or the defaults for None, with some fields changed.

    `changes` are keywords of a function, whose own arguments are suggested for an unknown one.
    """
    known = [field.name for field in dataclasses.fields(Options)]
    for keyword in changes or ():
        if keyword not in known:
            hint = suggest(keyword, [*known, "method", "options", "proposals"])
            raise ValueError(
                f"{keyword} is neither an argument of this function nor a field of Options{hint}; "
                f"the fields are {', '.join(known)}"
            )
    if options is not None and not isinstance(options, Options):
        raise refusal(name, "an Options or None", options)
    return (options or Options()).changed(**(changes or {}))


def options_for_each(
    options: object, count: int, changes: Mapping[str, object] | None = None
) -> list[Options]:
    """Spread one Options over `count` problems, or check that there is one for each."""
    if options is None or isinstance(options, Options):
        return [checked_options(options, changes)] * count
    if not isinstance(options, Sequence) or isinstance(options, str) or len(options) != count:
        raise refusal("options", f"an Options, None or a sequence of {count} Options", options)
    return [checked_options(entry, changes, f"options[{i}]") for i, entry in enumerate(options)]


def _threshold(value: object) -> float | str:
    if not isinstance(value, str):
        return real(value, "threshold_px", *THRESHOLDS_PX, closed=True)
    if value != AUTO:
        raise refusal("threshold_px", 'a number of pixels or "auto"', value)
    return AUTO


def _auto_parts(names: object) -> tuple[str, ...]:
    """Check names of `AUTO_PARTS` and bring them into its order, each once."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise refusal("disable", f"a sequence of names among {', '.join(AUTO_PARTS)}", names)
    given = [choice(name, "disable", AUTO_PARTS) for name in names]
    return tuple(name for name in AUTO_PARTS if name in given)


def core_options(options: Options) -> _core.Options:
    """Convert for the core; the threshold and the threads are passed beside them."""
    core = _core.Options()
    core.disable = sum(1 << list(AUTO_PARTS).index(part) for part in options.disable)
    for field in dataclasses.fields(options):
        if field.name not in ("disable", "threshold_px", "threads"):
            setattr(core, field.name, getattr(options, field.name))
    core.automatic_threshold = options.threshold_px == AUTO
    return core


def num_threads(wanted: int) -> int:
    """Return the number of threads to start; 0 means every core that this process may use."""
    return min(wanted, _MOST_THREADS) if wanted > 0 else usable_cores()


def usable_cores() -> int:
    """Return the number of cores that this thread may use: all of the process, or its share."""
    several = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if several else os.cpu_count() or 1
    return max(1, cores // getattr(_current, "workers", 1))


def share_cores(workers: int) -> None:
    """Divide the cores of the process by the number of workers that compute at once."""
    _current.workers = workers

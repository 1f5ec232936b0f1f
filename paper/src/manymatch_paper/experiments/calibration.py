"""Calibration: whether the matches of "auto" hold as often as their probabilities say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import integer, real, suggest
from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.evaluate.run import RunConfig
from manymatch_paper.experiments._match_runs import run_matches
from manymatch_paper.experiments._runs import missing_list, run_folder, settings_of
from manymatch_paper.experiments.calibration_figure import FIGURES
from manymatch_paper.experiments.calibration_tables import notes, tables
from manymatch_paper.measures.calibration import reliability

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from manymatch._validate import BoolArray
    from manymatch.evaluate.sources import GraphSource
    from manymatch_paper.experiments._match_runs import SetMatches

    # A set with its matches.
    Entry = tuple[GraphSource, SetMatches]
    Judge = Callable[[SetMatches], BoolArray]

__all__ = ["FIGURES", "notes", "run", "tables"]

# Folder of a set's matches beside the runs of other experiments.
_FOLDER = "auto-matches"
# A pose up to this error counts as right, in degrees.
_POSE_DEG = 5.0
# Poses count as coarse if matches of right ones are further than this share of the threshold of the
# epipolar truth from their lines, in the median.
_COARSE = 0.5
# Other thresholds of the epipolar truth that are looked at, in pixels at working size.
_OTHER_PX = (1.0, 2.0, 3.0, 5.0)


def run(
    sources: Sequence[GraphSource],
    folder: Path,
    *,
    seeds: int = 1,
    min_iterations: int = 1_000,
    max_iterations: int = 100_000,
    truth_px: float = 3.0,
    bins: int = 10,
    tuned_on: Sequence[str] = (),
    limit: int | None = None,
    workers: int = 0,
    progress: Any = None,
    missing: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Run "auto" on every source, or go on with a run that was stopped, and judge its matches.

    Parameters
    ----------
    sources : sequence of GraphSource
        Sets of pairs, each in one or more representations.
    folder : Path
        Where the runs are kept. They do not depend on `truth_px` and `bins`.
    seeds : int
        Repetitions. Those of one pair have nearly the same matches, so one says almost as much
        as many.
    min_iterations, max_iterations : int
        Budget.
    truth_px : float
        Where nobody knows the true matches, one is taken for true if its Sampson distance under
        the true pose is below this, in pixels at working size, and both depths are positive.
    bins : int
        Bins of the probability.
    tuned_on : sequence of str
        Names of sets that the probabilities were fitted on. What is pooled is then also given
        over these, and over the others.
    limit : int, optional
        Only the first pairs of each set.
    workers : int
        Pairs worked on at the same time; 0 is one per core.
    progress : callable, optional
        As `run_set` takes it.
    missing : sequence of {"set", "why"}
        Sets that were asked for and are not here.

    Returns
    -------
    dict
        What `tables` and the figure need, as JSON types.

    Raises
    ------
    ValueError
        If an argument is out of its range, or no set has a name of `tuned_on`.
    """
    tuned = _checked(tuned_on, [*(s.name for s in sources), *(m["set"] for m in missing)])
    truth_px, bins = real(truth_px, "truth_px", 0.0), integer(bins, "bins", 1)
    options = Options(min_iterations=min_iterations, max_iterations=max_iterations)
    association = Association().for_method("auto")
    config = RunConfig(estimator="auto", association=association, options=options, seeds=seeds)
    found: dict[str, list[Entry]] = {}
    for source in sources:
        matches = run_matches(
            source,
            config,
            run_folder(folder, source) / _FOLDER,
            workers=workers,
            limit=limit,
            progress=progress,
        )
        found.setdefault(source.representation, []).append((source, matches))
    return {
        "settings": {
            **settings_of(options, seeds, limit),
            "front": association.to_dict(),
            "truth_px": truth_px,
            "bins": bins,
            "tuned_on": tuned,
            "pose_deg": _POSE_DEG,
            "coarse_px": _COARSE * truth_px,
        },
        "runs": [
            {"representation": representation, **_measured(entries, tuned, truth_px, bins)}
            for representation, entries in found.items()
        ],
        "all": _all(
            [entry for entries in found.values() for entry in entries], tuned, truth_px, bins
        ),
        "missing": missing_list(missing),
    }


def _checked(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names of `tuned_on` without repetitions; all of them must exist."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"tuned_on must be one of {', '.join(dict.fromkeys(known))}, got "
                f"{name!r}{suggest(name, known)}"
            )
    return list(dict.fromkeys(names))


def _measured(
    entries: Sequence[Entry], tuned: Sequence[str], truth_px: float, bins: int
) -> dict[str, Any]:
    """Judge the sets of one representation, each by itself and together."""
    judge = _judge(truth_px)
    sets = []
    for source, matches in entries:
        own = [(source, matches)]
        about: dict[str, Any] = {
            "name": source.name,
            "title": source.title,
            "pairs": matches.pairs,
            "unreadable": matches.unreadable,
            "unmatched": matches.unmatched,
            "truth": _kind(matches),
            "median_px": _median_px(matches),
            "coarse": _coarse(matches, truth_px),
            "reliability": _reliability(own, judge, bins),
        }
        if matches.known is not None:
            about["epipolar"] = _reliability(own, _epipolar(truth_px), bins)
        sets.append(about)
    return {
        "sets": sets,
        **_pooled(entries, tuned, judge, bins),
        "parts": _parts(entries, truth_px, bins),
    }


def _pooled(
    entries: Sequence[Entry], tuned: Sequence[str], judge: Judge, bins: int
) -> dict[str, Any]:
    """Judge sets together, and apart those that the probabilities were fitted on."""
    splits = {
        "tuned on": [entry for entry in entries if entry[0].name in tuned],
        "others": [entry for entry in entries if entry[0].name not in tuned],
    }
    return {
        "pairs": sum(matches.pairs for _, matches in entries),
        "pooled": _reliability(entries, judge, bins),
        "splits": [
            {
                "label": label,
                "pairs": sum(matches.pairs for _, matches in members),
                "reliability": _reliability(members, judge, bins),
            }
            for label, members in splits.items()
            if tuned and members
        ],
    }


def _parts(entries: Sequence[Entry], truth_px: float, bins: int) -> list[dict[str, Any]]:
    """Judge parts of the matches, and all of them by other thresholds."""
    judge = _judge(truth_px)

    def wrong(matches: SetMatches) -> BoolArray:
        return ~_right(matches)

    parts = [
        (f"pose error below {_POSE_DEG:g}°", _reliability(entries, judge, bins, _right)),
        (f"pose error of {_POSE_DEG:g}° or more", _reliability(entries, judge, bins, wrong)),
    ]
    fine = [entry for entry in entries if not _coarse(entry[1], truth_px)]
    if 0 < len(fine) < len(entries):
        parts.append(("sets without coarse poses", _reliability(fine, judge, bins)))
    lined = [entry for entry in entries if entry[1].known is None]
    for pixels in _OTHER_PX if lined else ():
        if pixels != truth_px:
            label = f"epipolar truth at {pixels:g} px"
            parts.append((label, _reliability(lined, _epipolar(pixels), bins)))
    return [{"label": label, "reliability": found} for label, found in parts]


def _all(
    entries: Sequence[Entry], tuned: Sequence[str], truth_px: float, bins: int
) -> list[dict[str, Any]]:
    """Judge everything together, what is known apart from what only the pose tells."""
    result = []
    for kind in dict.fromkeys(_kind(matches) for _, matches in entries):
        mine = [entry for entry in entries if _kind(entry[1]) == kind]
        result.append({"truth": kind, **_pooled(mine, tuned, _judge(truth_px), bins)})
    return result


def _reliability(
    entries: Sequence[Entry],
    judge: Judge,
    bins: int,
    part: Judge | None = None,
) -> dict[str, Any] | None:
    """Pool matches of sets, or a part of them; None without any.

    All that is said of a pair, by any repetition and representation, is resampled together, within
    its set.
    """
    columns: list[list[Any]] = [[], [], [], []]
    names = list(dict.fromkeys(source.name for source, _ in entries))
    for source, matches in entries:
        kept = np.ones(len(matches), np.bool_) if part is None else part(matches)
        stratum = np.full(len(matches), names.index(source.name))
        values = (matches.probability, judge(matches), matches.pair, stratum)
        for column, value in zip(columns, values, strict=True):
            column.append(value[kept])
    probability, truth, groups, strata = (np.concatenate(column) for column in columns)
    if not len(probability):
        return None
    return reliability(probability, truth, bins, groups=groups, strata=strata).to_dict()


def _kind(matches: SetMatches) -> str:
    return "epipolar" if matches.known is None else "exact"


def _right(matches: SetMatches) -> BoolArray:
    """Tell the matches of poses that count as right."""
    return matches.error_deg < _POSE_DEG


def _median_px(matches: SetMatches) -> float | None:
    """Median distance of the matches of right poses from their true lines; None without any."""
    distances = matches.distance_px[_right(matches)]
    median = float(np.median(distances)) if len(distances) else np.inf
    return median if np.isfinite(median) else None


def _coarse(matches: SetMatches, truth_px: float) -> bool:
    """Whether the set's own poses are too coarse to judge matches by their lines."""
    median = _median_px(matches)
    return matches.known is None and median is not None and median > _COARSE * truth_px


def _judge(truth_px: float) -> Judge:
    """Take what is known, else the epipolar truth."""
    epipolar = _epipolar(truth_px)

    def judge(matches: SetMatches) -> BoolArray:
        return epipolar(matches) if matches.known is None else matches.known

    return judge


def _epipolar(truth_px: float) -> Judge:
    def judge(matches: SetMatches) -> BoolArray:
        return matches.distance_px < truth_px

    return judge

"""Calibration: whether the matches of "auto" hold as often as their probabilities say."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np

from manymatch.associate.candidates import Association
from manymatch.options import Options
from manymatch_lab import style
from manymatch_lab.cells import dim, listed, set_table
from manymatch_lab.checks import BoolArray, FloatArray, IndexArray, integer, real
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.run_tables import budget_text, seeds_text
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.flags import Seeds
from manymatch_lab.measures.reliability import reliability
from manymatch_lab.pose_runs import PoseSets, Results, TunedOn, left_out

if TYPE_CHECKING:
    Entry: TypeAlias = "tuple[GraphReader, SetMatches]"
    Rows = list[Sequence[str | Cell]]

QUESTION = "Do matches hold as often as their probabilities say?"
EXAMPLE = "manymatch-lab calibration synthetic:easy synthetic:ordering --out out/calibration"

# Folder of a set's matches beside the runs of other experiments.
_FOLDER = "auto-matches"
# A pose up to this error counts as right, in degrees.
_POSE_DEG = 5.0
# Poses count as coarse if matches of right ones are further than this share of the threshold of the
# epipolar truth from their lines, in the median.
_COARSE = 0.5
# Other thresholds of the epipolar truth that are looked at, in pixels at working size.
_OTHER_PX = (1.0, 2.0, 3.0, 5.0)
_POOLED, _MEAN = "pooled", "mean of its sets"
_NUMBERS = ["matches", "mean probability", "share true", "ECE [95 %]", "Brier"]
# Of the figure.
_COLUMNS = 4
_PANEL_CM = 4.4
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_FITTED, _UNSEEN = "tuned on", "others"
_STYLES = {
    "pooled": {"color": style.COLOURS[0], "marker": "o"},
    _UNSEEN: {"color": style.COLOURS[0], "marker": "o"},
    _FITTED: {"color": style.COLOURS[7], "marker": "s"},
}


def run(
    sets: PoseSets,
    *,
    seeds: Seeds = 1,
    truth_px: Annotated[
        float,
        "Where the true matches are not known, a match counts as true if its Sampson distance "
        "under the true pose is below this, in pixels at working size, and both depths are "
        "positive.",
    ] = 3.0,
    bins: Annotated[int, "Bins of the probability."] = 10,
    tuned_on: TunedOn = (),
    options: Options | None = None,
) -> dict[str, Any]:
    """Compare the match probabilities of "auto" with what is true: reliability diagram, ECE.

    Several presets, or folders of graphs by representation, become one panel each. The runs do
    not depend on the threshold of the truth and on the number of bins. The repetitions of a pair
    have nearly the same matches, so that several seeds hardly add information.
    """
    tuned = sets.checked(tuned_on, "tuned_on")
    truth_px, bins = real(truth_px, "truth_px", 0.0), integer(bins, "bins", 1)
    options = options or Options()
    association = Association().for_method("auto")
    every: list[Entry] = []

    def of_set(source: GraphReader, results: Results) -> dict[str, Any]:
        matches = SetMatches.of(results[_FOLDER])
        own = [(source, matches)]
        about = {
            "unreadable": matches.unreadable,
            "unmatched": matches.unmatched,
            "truth": _kind(matches),
            "median_px": _median_px(matches),
            "coarse": _coarse(matches, truth_px),
            "reliability": _reliability(own, truth_px, bins),
        }
        if matches.known is not None:
            about["epipolar"] = _reliability(own, truth_px, bins, epipolar=True)
        return about

    def of_all(entries: Sequence[tuple[GraphReader, Results]]) -> dict[str, Any]:
        own = [(source, SetMatches.of(results[_FOLDER])) for source, results in entries]
        every.extend(own)
        return {**_pooled(own, tuned, truth_px, bins), "parts": _parts(own, truth_px, bins)}

    settings = sets.settings(
        options,
        seeds,
        association=association.to_dict(),
        truth_px=truth_px,
        bins=bins,
        tuned_on=tuned,
        pose_deg=_POSE_DEG,
        coarse_px=_COARSE * truth_px,
    )
    config = RunConfig("auto", association, options, seeds, matches=True)
    data = sets.run({_FOLDER: config}, settings, of_set, of_all)
    # Everything together, exact truth and epipolar truth apart.
    kinds: dict[str, list[Entry]] = {}
    for entry in every:
        kinds.setdefault(_kind(entry[1]), []).append(entry)
    together = [{"truth": k, **_pooled(own, tuned, truth_px, bins)} for k, own in kinds.items()]
    return {**data, "all": together}


@dataclasses.dataclass(frozen=True, eq=False)
class SetMatches:
    """Matches of all pairs and repetitions of a set, one entry a match."""

    pairs: int  # that were run
    unreadable: int  # of them
    unmatched: int  # estimates without a match
    pair: IndexArray  # of the match
    error_deg: FloatArray  # of the pose of its estimate
    probability: FloatArray
    #: Sampson distance under the true pose in pixels at working size; infinity behind a camera.
    distance_px: FloatArray
    known: BoolArray | None  # whether it is true; None where that is not known

    @classmethod
    def of(cls, result: RunResult) -> SetMatches:
        """Put the matches of all trials of a run one after the other."""
        trials = [(r["index"], t) for r in result.records if "error" not in r for t in r["trials"]]
        sizes = [len(trial["probability"]) for _, trial in trials]

        def joined(name: str, kind: type) -> Any:
            return np.array([value for _, trial in trials for value in trial[name]], dtype=kind)

        distance = joined("distance_px", np.float64)
        known = bool(trials) and all(trial["known"] is not None for _, trial in trials)
        return cls(
            pairs=len(result),
            unreadable=sum(reason.count for reason in result.not_run),
            unmatched=sizes.count(0),
            pair=np.repeat(np.array([index for index, _ in trials], dtype=np.int64), sizes),
            error_deg=np.repeat(np.array([trial["error_deg"] for _, trial in trials]), sizes),
            probability=joined("probability", np.float64),
            # None became NaN.
            distance_px=np.where(np.isnan(distance), np.inf, distance),
            known=joined("known", np.bool_) if known else None,
        )


def _pooled(
    entries: Sequence[Entry], tuned: Sequence[str], truth_px: float, bins: int
) -> dict[str, Any]:
    """Judge sets together, and apart those that the probabilities were fitted on."""

    def judged(members: Sequence[Entry], name: str) -> dict[str, Any]:
        pairs = sum(matches.pairs for _, matches in members)
        return {"pairs": pairs, name: _reliability(members, truth_px, bins)}

    splits = {
        _FITTED: [entry for entry in entries if entry[0].name in tuned],
        _UNSEEN: [entry for entry in entries if entry[0].name not in tuned],
    }
    apart = [
        {"label": label, **judged(members, "reliability")}
        for label, members in splits.items()
        if tuned and members
    ]
    return {**judged(entries, "pooled"), "splits": apart}


def _parts(entries: Sequence[Entry], truth_px: float, bins: int) -> list[dict[str, Any]]:
    """Judge parts of the matches, and all of them by other thresholds."""
    right = _reliability(entries, truth_px, bins, part=_right)
    wrong = _reliability(entries, truth_px, bins, part=lambda matches: ~_right(matches))
    parts = {
        f"pose error below {_POSE_DEG:g}°": right,
        f"pose error of {_POSE_DEG:g}° or more": wrong,
    }
    fine = [entry for entry in entries if not _coarse(entry[1], truth_px)]
    if 0 < len(fine) < len(entries):
        parts["sets without coarse poses"] = _reliability(fine, truth_px, bins)
    lined = [entry for entry in entries if entry[1].known is None]
    for pixels in _OTHER_PX if lined else ():
        if pixels != truth_px:
            parts[f"epipolar truth at {pixels:g} px"] = _reliability(lined, pixels, bins)
    return [{"label": label, "reliability": found} for label, found in parts.items()]


def _reliability(
    entries: Sequence[Entry],
    pixels: float,
    bins: int,
    *,
    epipolar: bool = False,
    part: Callable[[SetMatches], BoolArray] | None = None,
) -> dict[str, Any] | None:
    """Pool matches of sets, or a part of them; None without any.

    Truth is the known one, or where that is unknown or not wanted the `epipolar` one. The matches
    of a pair, of all repetitions and representations, are resampled together, within its set.
    """
    rows: list[list[Any]] = []
    names = list(dict.fromkeys(source.name for source, _ in entries))
    for source, matches in entries:
        size = len(matches.pair)
        kept = np.ones(size, np.bool_) if part is None else part(matches)
        stratum = np.full(size, names.index(source.name))
        on_line = matches.distance_px < pixels
        true = on_line if epipolar or matches.known is None else matches.known
        values = (matches.probability, true, matches.pair, stratum)
        rows.append([value[kept] for value in values])
    probability, true, groups, strata = map(np.concatenate, zip(*rows, strict=True))
    if not len(probability):
        return None
    return reliability(probability, true, bins, groups=groups, strata=strata).to_dict()


def _kind(matches: SetMatches) -> str:
    return "epipolar" if matches.known is None else "exact"


def _right(matches: SetMatches) -> BoolArray:
    """Mask of the matches whose pose counts as right."""
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


def tables(data: dict[str, Any]) -> list[Table]:
    """Calibration of every set, and of parts of each representation."""
    return [_set_table(data), _part_table(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, what counts as true, and what follows."""
    settings = data["settings"]
    every = [(run["representation"], entry) for run in data["runs"] for entry in run["sets"]]
    kinds = {entry["truth"] for _, entry in every}
    sentences = [
        f'Matches of "auto" on the first {settings["association"]["max_edges"]} edges, unfiltered: '
        f"{budget_text(settings)}, {seeds_text(settings)} a pair."
    ]
    if "exact" in kinds:
        sentences.append(
            "Exact truth: the two keypoints are images of the same 3D point, which synthetic "
            "scenes know."
        )
    if "epipolar" in kinds:
        sentences.append(
            f"Epipolar truth: the Sampson distance under the true pose is below "
            f"{settings['truth_px']:g} px at working size and both depths are positive. A wrong "
            "match that lies on the line by chance counts as true, and where the true poses are "
            "coarse, right matches count as wrong."
        )
    sentences += [
        f"The expected calibration error (ECE) is the mean distance between probability and share "
        f"true over {settings['bins']} bins of equal width, by their matches. Intervals resample "
        "pairs of images within their set, as matches of a pair are not independent. Chance makes "
        "an ECE larger, never smaller: with few pairs it is rather too high.",
        "In pooled numbers every match has the same weight, so that sets with too high and with "
        "too low probabilities cancel; in the mean of the sets' own ECE they do not. A constant "
        "probability equal to the share true s has a Brier score of s (1 - s).",
    ]
    if names := [f"{entry['title']} ({name})" for name, entry in every if entry["coarse"]]:
        sentences.append(
            f"Coarse poses: on {listed(names)} even matches of poses within "
            f"{settings['pose_deg']:g}° are more than {settings['coarse_px']:g} px from their "
            "lines in the median. Their share true depends on the true poses more than on the "
            "matches; the second table also has the numbers pooled without them."
        )
    unmatched = sum(entry["unmatched"] for _, entry in every)
    if unmatched:
        sentences.append(f"Estimates without a match, about which nothing is said: {unmatched}.")
    if settings["tuned_on"]:
        sentences.append(
            f"The probabilities were fitted on {listed(settings['tuned_on'])}; numbers pooled over "
            '"others" leave these sets out.'
        )
    return sentences + left_out(data)


def _set_table(data: dict[str, Any]) -> Table:
    """One row a set; its epipolar truth beside where the exact one is known."""
    header = ["Representation", "Set", "pairs", "truth", "median px", *_NUMBERS]
    rows: Rows = []
    tuned = data["settings"]["tuned_on"]
    for run in data["runs"]:
        name = run["representation"]
        for entry in run["sets"]:
            title = entry["title"] + ("†" if entry["name"] in tuned else "")
            median = "–" if entry["median_px"] is None else f"{entry['median_px']:.2f}"
            about = [name, title, str(entry["pairs"]), entry["truth"], median]
            rows.append([*about, *_numbers(entry["reliability"])])
            if "epipolar" in entry:
                rows.append(dim(["", "", "", "epipolar", "", *_numbers(entry["epipolar"])]))
            name = ""
        if len(run["sets"]) > 1:
            kinds = {entry["truth"] for entry in run["sets"]}
            rows += _pooled_rows("", run, kinds.pop() if len(kinds) == 1 else "each its own")
            known = [e["reliability"] for e in run["sets"] if e["reliability"] is not None]
            means = [
                f"{sum(one[key] for one in known) / len(known):.3f}" if known else "–"
                for key in ("ece", "brier")
            ]
            rows.append(["", _MEAN, *[""] * 6, *means])
    if len(data["runs"]) > 1:
        for i, entry in enumerate(data["all"]):
            rows += _pooled_rows("" if i else "all", entry, entry["truth"])
    remarks = [
        "Median px: distance of the matches of poses within "
        f"{data['settings']['pose_deg']:g}° from their epipolar lines under the true pose."
    ]
    remarks += ["† The probabilities were fitted on this set."] if tuned else []
    return set_table("Calibration of match_probability", header, rows, remarks, data)


def _pooled_rows(first: str, entry: dict[str, Any], truth: str) -> Rows:
    """Make the rows of all sets pooled, of the sets fitted on, and of the other sets."""
    rows: Rows = [[first, _POOLED, str(entry["pairs"]), truth, "", *_numbers(entry["pooled"])]]
    for split in entry["splits"]:
        label = f"{_POOLED}, {split['label']}"
        rows.append(["", label, str(split["pairs"]), truth, "", *_numbers(split["reliability"])])
    return rows


def _part_table(data: dict[str, Any]) -> Table:
    """Show what the calibration depends on: whether the pose is right, and what counts as true."""
    header = ["Representation", "part", *_NUMBERS]
    rows: Rows = []
    for run in data["runs"]:
        rows.append([run["representation"], "all matches", *_numbers(run["pooled"])])
        rows += [["", part["label"], *_numbers(part["reliability"])] for part in run["parts"]]
    note = (
        "A probability is about the match, whether or not the pose is right: matches of wrong "
        "poses count. One pair alone has no interval, [–]."
    )
    return Table("Calibration by pose error and by truth", header, rows, [note])


def _numbers(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["0", "–", "–", "–", "–"]
    means = [f"{found[name]:.3f}" for name in ("mean_probability", "mean_truth")]
    return [f"{found['total']:,}", *means, _ece(found), f"{found['brier']:.3f}"]


def _ece(found: dict[str, Any]) -> str:
    if found["ece_interval"] is None:
        return f"{found['ece']:.3f} [–]"
    low, high = found["ece_interval"]
    return f"{found['ece']:.3f} [{low:.3f}, {high:.3f}]"


def diagrams(data: dict[str, Any]) -> style.Figure:
    """Draw the share of true matches against the probability, one panel a representation.

    A hollow mark is a bin that only one pair is in. Where some sets were fitted on, they and the
    others are two lines; error and histogram are of the others.
    """
    runs = data["runs"]
    rows = max(1, -(-len(runs) // _COLUMNS))
    # Five panels are better as three and two.
    columns = max(1, -(-len(runs) // rows))
    figure = style.new_figure(min(style.PAGE_CM, 2.0 + _PANEL_CM * columns), 6.6 * rows)
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=[3, 1] * rows)
    drawn: dict[str, Any] = {}
    for i, run in enumerate(runs):
        row, column = 2 * (i // columns), i % columns
        upper = figure.add_subplot(grid[row, column])
        lower = figure.add_subplot(grid[row + 1, column], sharex=upper)
        # All sets together, or those fitted on and the others.
        splits = {split["label"]: split["reliability"] for split in run["splits"]}
        shown = splits or {"pooled": run["pooled"]}
        lines = {label: one for label, one in shown.items() if one is not None}
        name = next((name for name in ("pooled", _UNSEEN, _FITTED) if name in lines), "")
        ece = f"ECE {_ece(lines[name]).removesuffix(' [–]')}" if lines else ""
        fitted = ", tuned on" if name == _FITTED else ""
        upper.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.8, linestyle="--", zorder=1)
        upper.set_title(f"{run['representation']}{fitted}\n{ece}")
        upper.set(xlim=(0.0, 1.0), ylim=(-0.02, 1.02))
        upper.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        upper.tick_params(axis="x", labelbottom=False)
        for label, found in lines.items():
            drawn[label] = _line(upper, label, found)
        if lines:
            edges, counts = lines[name]["edges"], lines[name]["count"]
            widths = [b - a for a, b in itertools.pairwise(edges)]
            look: dict[str, Any] = {"color": style.LIGHT, "edgecolor": style.GREY, "linewidth": 0.5}
            lower.bar(edges[:-1], counts, widths, align="edge", **look)
            # Most matches are in the last bin; the others would not be seen.
            lower.set_yscale("log")
            lower.set_ylim(0.7, 2.0 * max(counts))
            lower.minorticks_off()
        else:
            upper.text(0.5, 0.5, "no match", ha="center", va="center", color=style.GREY)
        lower.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        lower.grid(visible=False, axis="x")
        if column == 0:
            upper.set_ylabel("share true")
            lower.set_ylabel("matches")
    figure.supxlabel("match_probability", fontsize=7.5, color=style.INK)
    if set(drawn) & {_FITTED, _UNSEEN}:
        style.legend_above(figure, list(drawn.values()))
    return figure


def _line(axis: Any, label: str, found: dict[str, Any]) -> Any:
    keys = ("probability", "share", "low", "high")
    bins = [
        values
        for values in zip(*(found[key] for key in keys), strict=True)
        if values[0] is not None
    ]
    # A bin of one pair has no interval; a hollow mark keeps it from looking certain.
    lone = [values for values in bins if values[2] is None]
    if lone:
        places = list(zip(*lone, strict=True))[:2]
        hollow = {"linestyle": "none", "markerfacecolor": "white", "zorder": 4}
        axis.plot(*places, clip_on=False, **hollow, **_STYLES[label])
    said, share = ([values[i] for values in bins] for i in range(2))
    # A percentile interval need not hold the value.
    ends = [
        [0.0 if v[i] is None else max(0.0, sign * (v[1] - v[i])) for v in bins]
        for i, sign in ((2, 1.0), (3, -1.0))
    ]
    look = {"linestyle": "-", "linewidth": 0.9, "elinewidth": 0.9, "capsize": 1.8}
    return axis.errorbar(
        said, share, yerr=ends, clip_on=False, label=label, **look, **_STYLES[label]
    )


FIGURES = {"calibration_reliability": diagrams}

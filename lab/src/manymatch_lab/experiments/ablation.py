"""Ablation: "auto" against rank-one and the two-stage estimator, and without each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from manymatch.associate.candidates import Association
from manymatch.options import AUTO_PARTS, Options, num_threads
from manymatch_lab import cells, style
from manymatch_lab.checks import count
from manymatch_lab.evaluate.run import RunConfig, RunResult
from manymatch_lab.evaluate.run_tables import association_text, budget_text, seeds_text
from manymatch_lab.evaluate.statistics import THRESHOLDS, macro_difference, macro_spread
from manymatch_lab.evaluate.tables import Cell, Table
from manymatch_lab.experiments.q3_rank_one import pipelines
from manymatch_lab.flags import Seeds
from manymatch_lab.pose_runs import (
    Entry,
    Gms,
    PoseSets,
    TunedOn,
    checked_names,
    left_out,
    mean_column,
)

QUESTION = "Is auto better than rank-one and two-stage, and what is each of its parts worth?"
EXAMPLE = "manymatch-lab ablation graphs/effnet graphs/sift --tuned-on kitti_vo"

#: What the pipelines are called in tables and figures.
TITLES = {"rank-one": "MNN + CM", "many": "m-to-m + HCM→MCM", "auto": "auto"}
#: What "auto" is compared with.
OTHERS = ("rank-one", "many")
#: Points below the better of the two others that are still counted as equal.
SLACK = 1.0

# The threshold at which every set is looked at.
_TEN = THRESHOLDS.index(10)
_INTERVALS = (
    "ΔA is auto minus what the row names, paired with the same seeds on both sides, and its 95 % "
    "interval when pairs are resampled within each set; bold where that excludes zero. Sets weigh "
    "equally."
)
_COST = (
    "Milliseconds and iterations are means over all trials of all pairs, so that a relative time "
    "is that of the whole."
)


def run(
    sets: PoseSets,
    *,
    ablation: Annotated[bool, "Also run auto without its parts."] = True,
    only: Annotated[
        Sequence[str],
        f"Leave out this part only, one of {', '.join(AUTO_PARTS)}; may be repeated. By default "
        "each in turn.",
    ] = (),
    tuned_on: TunedOn = (),
    seeds: Seeds = 5,
    gms: Gms = True,
    options: Options | None = None,
) -> dict[str, Any]:
    """Compare auto with rank-one matching and the two-stage estimator, and leave parts of it out.

    Several presets, or folders of graphs by representation, become one panel each. The runs of
    the first two pipelines are the same as in q3, so that their folders can be copied.
    """
    if only and not ablation:
        raise ValueError(f"only must be empty without the ablation, got {', '.join(only)}")
    parts = checked_names(only or list(AUTO_PARTS), list(AUTO_PARTS), "only") if ablation else []
    tuned = sets.checked(tuned_on, "tuned_on")
    options = options or Options()
    association, unfiltered = Association(gms=gms), Association().for_method("auto")
    configs = {
        **pipelines(association, options, seeds),
        "auto": RunConfig("auto", unfiltered, options, seeds),
    }
    for name in parts:
        configs[f"without-{name}"] = RunConfig(
            "auto", unfiltered, options.replace(disable=(name,)), seeds
        )
    settings = sets.settings(
        options,
        seeds,
        association=association.to_dict(),
        auto_association=unfiltered.to_dict(),
        workers=num_threads(sets.workers),
        parts={name: AUTO_PARTS[name] for name in parts},
        tuned_on=tuned,
    )
    return sets.run(
        configs,
        settings,
        lambda _, results: _measured([results]),
        lambda entries: {"groups": _groups(entries, tuned)},
    )


def tables(data: dict[str, Any]) -> list[Table]:
    """Averages by pipeline, every set, and what each part of "auto" brings."""
    made = [_comparison_table(measured, data) for measured in data["runs"]]
    made.append(_set_table(data))
    if data["settings"]["parts"]:
        made += [_part_table(measured, data) for measured in data["runs"]]
    return made


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, and where "auto" stands."""
    settings = data["settings"]
    seen, own = settings["association"], settings["auto_association"]
    side_by_side = "one after the other, ours on all cores"
    if settings["workers"] > 1:
        side_by_side = f"{settings['workers']} side by side on one thread each"
    sentences = [
        f"Rank-one: mutual nearest neighbours, the first {seen['keep']}, PoseLib's LO-RANSAC. "
        f"Two-stage: {association_text(seen)}, HCM→MCM. Auto: mutual {own['k']} nearest "
        f"neighbours, the first {own['max_edges']} edges, unfiltered. All run "
        f"{budget_text(settings)} with the same seeds.",
        "Times are of the estimator alone. The filter of the two-stage pipeline runs before it and "
        "is not counted; the filter of auto runs inside it and is. Times can be compared only if "
        "all pipelines of a pair ran one after the other in one run. In the last run, pairs were "
        f"worked on {side_by_side}.",
    ]
    if settings["tuned_on"]:
        sentences.append(
            f"Looked at while choosing: {', '.join(settings['tuned_on'])}. Averages over “others” "
            "leave these sets out."
        )
    if settings["parts"]:
        parts = (f"{name}: {sentence}" for name, sentence in settings["parts"].items())
        sentences.append(f"Auto also ran without one of its parts at a time. {' '.join(parts)}")
    return sentences + _summary(data) + left_out(data)


def _groups(entries: Sequence[Entry], tuned: Sequence[str]) -> list[dict[str, Any]]:
    """Averages over all sets, over those that were looked at, and over the others."""
    kept = {"all": entries}
    if tuned:
        kept["tuned on"] = [entry for entry in entries if entry[0].name in tuned]
        kept["others"] = [entry for entry in entries if entry[0].name not in tuned]
    return [
        {
            "name": name,
            "sets": [source.name for source, _ in members],
            **_measured([results for _, results in members]),
        }
        for name, members in kept.items()
        if members
    ]


def _measured(results: Sequence[Mapping[str, RunResult]]) -> dict[str, Any]:
    """AUC by pipeline, what "auto" has more than each other one, and what a pair costs.

    Accuracy is averaged over sets, each with the same weight; times and iterations over pairs, so
    that the ratio of two times is the ratio of the total times.
    """
    errors = {name: [entry[name].errors for entry in results] for name in results[0]}
    return {
        "auc": {name: macro_spread(values).to_dict() for name, values in errors.items()},
        "delta": {
            name: macro_difference(errors["auto"], values).to_dict()
            for name, values in errors.items()
            if name != "auto"
        },
        **{
            column: {
                name: mean_column([entry[name] for entry in results], column) for name in errors
            }
            for column in ("seconds", "iterations")
        },
    }


def _comparison_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of averages over sets, a row a pipeline."""
    header = ["Sets", "Pipeline", *cells.columns("AUC"), *cells.columns("ΔA")]
    header += ["ms a pair", "iterations", "time / two-stage"]
    rows: list[Sequence[str | Cell]] = []
    for group in measured["groups"]:
        best = _highest([group["auc"][name]["mean"] for name in TITLES])
        for name, title in TITLES.items():
            auc = group["auc"][name]
            texts = zip(cells.auc_texts(auc), auc["mean"], best, strict=True)
            values = [Cell(text, bold=mean == top) for text, mean, top in texts]
            gains = [""] * len(values) if name == "auto" else gain_cells(group["delta"][name])
            label = group_title(group) if name == "rank-one" else ""
            rows.append([label, title, *values, *gains, *_cost(group, name, "many")])
    title = cells.run_title("Ablation: averages over sets, pose AUC (%)", data, measured)
    note = "AUC: mean ± sd over seeds, bold is the highest unrounded mean."
    return Table(title, header, rows, [note, _INTERVALS, _COST])


def _set_table(data: dict[str, Any]) -> Table:
    """Make the table of AUC@10° of every set: "auto" against the better of the two others."""
    tuned = data["settings"]["tuned_on"]
    header = ["Representation", "Set", *(["tuned on"] if tuned else []), "pairs", *TITLES.values()]
    header += ["auto minus the better", "95 % over pairs", "time / two-stage"]
    rows: list[Sequence[str | Cell]] = []
    for measured in data["runs"]:
        for i, entry in enumerate(measured["sets"]):
            row: list[str | Cell] = ["" if i else measured["representation"], entry["title"]]
            if tuned:
                row.append("yes" if entry["name"] in tuned else "")
            row.append(str(entry["pairs"]))
            best = _highest([entry["auc"][name]["mean"] for name in TITLES])[_TEN]
            row += [
                Cell(cells.auc_texts(auc)[_TEN], bold=auc["mean"][_TEN] == best)
                for auc in (entry["auc"][name] for name in TITLES)
            ]
            better, gain = against_better(entry)
            row.append(cells.signed(gain) + (" †" if gain < -SLACK else ""))
            row.append(cells.interval_texts(entry["delta"][better])[_TEN])
            row.append(_cost(entry, "auto", "many")[-1])
            rows.append(row)
    title = f"Ablation: AUC@10° (%) of every set, {seeds_text(data['settings'])}"
    note = (
        "Mean ± sd over seeds, bold is the highest. The better is the one of the two others "
        "with the higher mean on that set, and the interval is of the paired difference to it; "
        f"† is more than {SLACK:g} point below."
    )
    return cells.set_table(title, header, rows, [note], data)


def _part_table(measured: dict[str, Any], data: dict[str, Any]) -> Table:
    """Make the table of what "auto" loses without each of its parts."""
    header = ["Sets", "Left out", *cells.columns("ΔA"), "ms a pair", "iterations", "time / auto"]
    rows: list[Sequence[str | Cell]] = []
    for group in measured["groups"]:
        rows.append([group_title(group), "nothing", "", "", "", *_cost(group, "auto", "auto")])
        for name in data["settings"]["parts"]:
            key = f"without-{name}"
            rows.append(["", name, *gain_cells(group["delta"][key]), *_cost(group, key, "auto")])
    title = cells.run_title("Ablation: points that each part of auto brings", data, measured)
    return Table(title, header, rows, [f"{_INTERVALS} Above zero, the part helps.", _COST])


def _summary(data: dict[str, Any]) -> list[str]:
    """Say on how many sets "auto" is below the better of the two others."""
    every = [(run["representation"], entry) for run in data["runs"] for entry in run["sets"]]
    sentences = [_deficits("", every)]
    tuned = data["settings"]["tuned_on"]
    others = [(name, entry) for name, entry in every if entry["name"] not in tuned]
    if tuned and others:
        sentences.append(_deficits("Without the sets that were looked at, ", others))
    return sentences


def against_better(entry: Mapping[str, Any]) -> tuple[str, float]:
    """Name of the better of the two others at 10 degrees, and "auto" minus it in points."""
    means = {name: entry["auc"][name]["mean"][_TEN] for name in (*OTHERS, "auto")}
    better = max(OTHERS, key=lambda name: means[name])
    return better, means["auto"] - means[better]


def gain_cells(spread: dict[str, Any]) -> list[Cell]:
    """Write a paired difference as ``mean [low, high]``, bold where the interval excludes zero."""
    texts = zip(spread["mean"], cells.interval_texts(spread), spread["interval"], strict=True)
    return [
        Cell(f"{cells.signed(mean)} {text}", bold=_excludes_zero(ends))
        for mean, text, ends in texts
    ]


def group_title(group: Mapping[str, Any]) -> str:
    """Name a group of sets with how many it has."""
    return f"{group['name']}, {count(len(group['sets']), 'set')}"


def _cost(entry: Mapping[str, Any], name: str, reference: str) -> list[str]:
    """Milliseconds, iterations, and time relative to a reference, as texts."""
    seconds, iterations = entry["seconds"][name], entry["iterations"][name]
    unit = entry["seconds"][reference]
    return [
        cells.milliseconds(seconds),
        "" if iterations is None else f"{iterations:,.0f}",
        "" if seconds is None or not unit else f"{seconds / unit:.2f}",
    ]


def _deficits(begin: str, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Count the sets on which "auto" is more than the slack below the better of the others."""
    gains = [(f"{name} {entry['title']}", against_better(entry)[1]) for name, entry in entries]
    below = [f"{label} ({cells.signed(gain)})" for label, gain in gains if gain < -SLACK]
    level = sum(gain >= 0 for _, gain in gains)
    text = (
        f"{begin}AUC@10° of auto is at least that of the better of the two others in {level} of "
        f"{len(gains)} cells (a representation and a set each), and more than {SLACK:g} point "
        f"below it in {len(below)}"
    )
    return f"{text}: {', '.join(below)}." if below else f"{text}."


def _highest(means: Sequence[Sequence[float]]) -> list[float | None]:
    """Return the highest number of each column; None where several rows share it."""
    columns = [list(column) for column in zip(*means, strict=True)]
    return [max(column) if column.count(max(column)) == 1 else None for column in columns]


def _excludes_zero(ends: Sequence[float]) -> bool:
    return ends[0] > 0 or ends[1] < 0


def gains(data: dict[str, Any]) -> style.Figure:
    """Draw means and intervals over pairs, averaged over all sets, a row a pipeline."""
    labels = {name: TITLES[name] for name in OTHERS}
    labels |= {f"without-{name}": f"without {name}" for name in data["settings"]["parts"]}

    def points(run: dict[str, Any]) -> list[tuple[int, dict[str, Any], list[list[float]]]]:
        spreads = [run["groups"][0]["delta"][name] for name in labels]
        return [(row, spread, spread["interval"]) for row, spread in enumerate(spreads)]

    return style.gain_panels(
        data["runs"],
        list(labels.values()),
        points,
        lambda run: f"{run['representation']}\n{group_title(run['groups'][0])}",
        text="ΔA, auto minus each (points)",
        shaded=(-0.6, len(OTHERS) - 0.5),
        columns=4,
        panel_cm=4.2,
        head_cm=2.4,
    )


FIGURES = {"ablation_gains": gains}

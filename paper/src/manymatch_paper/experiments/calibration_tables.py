"""Calibration as tables and sentences, from its data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.evaluate.tables import Cell, Table
from manymatch_paper.experiments._cells import dim, listed, missing_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = list[Sequence[str | Cell]]

_POOLED, _MEAN = "pooled", "mean of its sets"
_NUMBERS = ["matches", "mean probability", "share true", "ECE [95 %]", "Brier"]
# Said and true shares closer than this are called the same.
_SAME = 0.005


def tables(data: dict[str, Any]) -> list[Table]:
    """Calibration of every set, and of parts of each representation."""
    return [_set_table(data), _part_table(data)]


def notes(data: dict[str, Any]) -> list[str]:
    """Say what was run, what counts as true, and what follows."""
    settings = data["settings"]
    options, seeds = settings["options"], settings["seeds"]
    kinds = {entry["truth"] for run in data["runs"] for entry in run["sets"]}
    sentences = [
        f'Matches of "auto" on the first {settings["front"]["max_edges"]} edges, unfiltered: '
        f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations at "
        f"{options['threshold_px']:g} px, {seeds} seed{'s' if seeds > 1 else ''} a pair."
    ]
    if "exact" in kinds:
        sentences.append(
            "Exact truth: the two keypoints are images of the same 3D point, which made scenes "
            "know."
        )
    if "epipolar" in kinds:
        sentences.append(
            f"Epipolar truth: the Sampson distance under the true pose is below "
            f"{settings['truth_px']:g} px at working size and both depths are positive. It calls "
            "a wrong match true that happens to lie on the line, and sets with coarse poses make "
            "right ones wrong."
        )
    sentences += [
        f"The expected calibration error (ECE) is the mean distance between probability and share "
        f"true over {settings['bins']} bins of equal width, by their matches. Intervals resample "
        "pairs of images within their set, as matches of a pair are not independent. Chance makes "
        "an ECE larger, never smaller: with few pairs it is rather too high.",
        "Where every match counts the same (pooled), sets that are too sure and sets that are too "
        "careful cancel; the mean of the sets' own ECE does not let them. Always saying the share "
        "true s has a Brier score of s (1 - s).",
        *_fitted(settings["tuned_on"]),
        *(_verdict(run) for run in data["runs"]),
        *_coarse(data),
        *_left_out(data),
    ]
    if settings["limit"]:
        sentences.append(f"Only the first {settings['limit']} pairs of each set were run.")
    sentences += [f"{entry['set']} was not run: {entry['why']}." for entry in data["missing"]]
    return sentences


def _fitted(tuned: Sequence[str]) -> list[str]:
    if not tuned:
        return []
    return [
        f"The probabilities were fitted on {listed(tuned)}; what is pooled over “others” leaves "
        "these sets out."
    ]


def _coarse(data: dict[str, Any]) -> list[str]:
    """Name the sets whose poses cannot tell what is true."""
    names = [
        f"{entry['title']} ({run['representation']})"
        for run in data["runs"]
        for entry in run["sets"]
        if entry["coarse"]
    ]
    if not names:
        return []
    settings = data["settings"]
    return [
        f"Coarse poses: on {listed(names)} even matches of poses within {settings['pose_deg']:g}° "
        f"are more than {settings['coarse_px']:g} px from their lines in the median. Their share "
        "true says more about the true poses than about the matches; the second table also has "
        "what is pooled without them."
    ]


def _verdict(run: dict[str, Any]) -> str:
    found = run["pooled"]
    if found is None:
        return f"{run['representation']}: no match."
    gap = found["mean_probability"] - found["mean_truth"]
    words = "too sure" if gap > 0 else "too careful"
    verdict = "as it says" if abs(gap) < _SAME else f"{words} by {abs(gap):.3f}"
    return (
        f"{run['representation']}: {found['mean_probability']:.3f} said and "
        f"{found['mean_truth']:.3f} true on average, {verdict}; ECE {_ece(found)}."
    )


def _left_out(data: dict[str, Any]) -> list[str]:
    """Count what could not be judged."""
    entries = [entry for run in data["runs"] for entry in run["sets"]]
    unreadable = sum(entry["unreadable"] for entry in entries)
    unmatched = sum(entry["unmatched"] for entry in entries)
    sentences = []
    if unreadable:
        sentences.append(f"Pairs that could not be read and are left out: {unreadable}.")
    if unmatched:
        sentences.append(f"Estimates without a match, about which nothing is said: {unmatched}.")
    return sentences


def _set_table(data: dict[str, Any]) -> Table:
    """One row a set; its epipolar truth beside where the exact one is known."""
    header = ["Representation", "Set", "pairs", "truth", "median px", *_NUMBERS]
    rows: Rows = []
    tuned = data["settings"]["tuned_on"]
    for run in data["runs"]:
        name = run["representation"]
        for entry in run["sets"]:
            about = [name, entry["title"], str(entry["pairs"]), entry["truth"]]
            about[1] += "†" if entry["name"] in tuned else ""
            median = "–" if entry["median_px"] is None else f"{entry['median_px']:.2f}"
            rows.append([*about, median, *_numbers(entry["reliability"])])
            if "epipolar" in entry:
                also = ["", "", "", "epipolar", "", *_numbers(entry["epipolar"])]
                rows.append(dim(also))
            name = ""
        if len(run["sets"]) > 1:
            rows += _pooled_rows("", run, _kinds(run))
            rows.append(["", _MEAN, *[""] * 6, *_means(run)])
    if len(data["runs"]) > 1:
        for i, entry in enumerate(data["all"]):
            rows += _pooled_rows("" if i else "all", entry, entry["truth"])
    rows += missing_rows(data, len(header))
    about = [
        "Median px: distance of the matches of poses within "
        f"{data['settings']['pose_deg']:g}° from their epipolar lines under the true pose."
    ]
    about += ["† The probabilities were fitted on this set."] if tuned else []
    return Table("Calibration of match_probability", header, rows, about)


def _pooled_rows(first: str, entry: dict[str, Any], truth: str) -> Rows:
    """Make the row of what is pooled, and those of the sets fitted on and of the others."""
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
    return Table(
        "Calibration by pose error and by truth",
        header,
        rows,
        [
            "A probability is that of a match, whether or not the pose is right: what is said of "
            "the matches of wrong poses counts. One pair alone has no interval, [–]."
        ],
    )


def _numbers(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["0", "–", "–", "–", "–"]
    return [
        f"{found['total']:,}",
        f"{found['mean_probability']:.3f}",
        f"{found['mean_truth']:.3f}",
        _ece(found),
        f"{found['brier']:.3f}",
    ]


def _means(run: dict[str, Any]) -> list[str]:
    """Mean ECE and Brier score of the sets that have matches."""
    found = [entry["reliability"] for entry in run["sets"] if entry["reliability"] is not None]
    if not found:
        return ["–", "–"]
    return [f"{sum(one[name] for one in found) / len(found):.3f}" for name in ("ece", "brier")]


def _ece(found: dict[str, Any]) -> str:
    if found["ece_interval"] is None:
        return f"{found['ece']:.3f} [–]"
    low, high = found["ece_interval"]
    return f"{found['ece']:.3f} [{low:.3f}, {high:.3f}]"


def _kinds(run: dict[str, Any]) -> str:
    kinds = {entry["truth"] for entry in run["sets"]}
    return kinds.pop() if len(kinds) == 1 else "each its own"

"""The table of a run, and sentences that say what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manymatch.features.feature_config import NO_DETECTOR
from manymatch_lab.checks import count
from manymatch_lab.evaluate.run import RunResult
from manymatch_lab.evaluate.statistics import THRESHOLDS, macro_spread
from manymatch_lab.evaluate.tables import Cell, Table

#: Columns of the AUC.
AUC_HEADER = [f"AUC@{limit}°" for limit in THRESHOLDS]
#: Beginning of a note on intervals.
INTERVAL = "In brackets the 95 % interval when pairs are resampled; "
_SHARED_FOCAL = {
    "pair": "each pair finds its own",
    "image": "each image has one in all of its pairs",
    "folder": "images of one size in a folder have one",
    "all": "all images of one size have one",
}


def run_table(runs: Mapping[tuple[str, str], RunResult], *notes: str) -> Table:
    """Pose AUC of one configuration by (representation, set), with bins and macro averages.

    Title and notes say what was run: features, method, iterations and seeds, and what failed.
    """
    rows: list[list[str | Cell]] = []
    representations = list(dict.fromkeys(representation for representation, _ in runs))
    several = len(representations) > 1
    config = next(iter(runs.values())).header["config"]
    hidden = config.get("unknown_focal", False)
    empty = [""] * (3 if hidden else 2)
    for (representation, _), run in runs.items():
        label = run.header["title"]
        summary = run.summary()
        seconds = summary["mean_seconds"]
        row = [f"{representation}, {label}" if several else label, str(summary["pairs"])]
        row += [*_auc_texts(summary["auc"]), str(summary["failed_trials"])]
        row.append("" if seconds is None else f"{1e3 * seconds:.0f}")
        if hidden:
            # A trial without a pose has found no focal length.
            quartiles = summary.get("focal_error_quartiles", ())
            row.append(" / ".join("-" if e is None else f"{100.0 * e:.1f}" for e in quartiles))
        rows.append([*row])
        for name, entry in summary["bins"].items():
            texts = [f"  {name}", str(entry["pairs"]), *_auc_texts(entry)]
            rows.append([*(Cell(text, dim=True) for text in texts), *empty])
    for representation in representations:
        own = [run for (other, _), run in runs.items() if other == representation]
        if len(own) > 1:
            spread = macro_spread([run.errors for run in own]).to_dict()
            label = f"{representation}, macro" if several else "macro"
            rows.append([label, str(sum(map(len, own))), *_auc_texts(spread), *empty])
    seeds = config["seeds"]
    association = config["association"]
    seen = "rank-one" if association["k"] == 1 else f"mutual {association['k']}-nearest"
    seen += f" candidates{', GMS,' if association['gms'] else ''}"
    title = f"{config['estimator']} on {seen} of {', '.join(representations)}"
    note = f"mean over {seeds} repetitions." if seeds > 1 else "one repetition."
    header = ["set", "pairs", *AUC_HEADER, "failed", "ms a pair"]
    header += ["focal error %, quartiles"] if hidden else []
    faults = [sentence for run in runs.values() for sentence in run.fault_sentences()]
    about = _run_notes(list(runs.values()))
    return Table(title, header, rows, [*faults, *about, INTERVAL + note, *notes])


def _run_notes(runs: Sequence[RunResult]) -> list[str]:
    """Say with what runs of one configuration were made, from their headers."""
    config = runs[0].header["config"]
    sources = [run.header["source"] for run in runs]
    # Where they are not the preset's.
    sizes = []
    for source in sources:
        lengths = (
            f"{n} px" if n else "as it is" if n == 0 else "" for n in source.get("longest", ())
        )
        sides = [f"image {side} {text}" for side, text in enumerate(lengths) if text]
        sizes += [f"{' and '.join(sides)} in {source['set']}"] if sides else []
    # Sources of one graph may be cut in different ways.
    each = (config["association"], *config.get("further", ()))
    seen = dict.fromkeys(map(association_text, each))
    hidden = []
    if config.get("unknown_focal", False):
        shared = _SHARED_FOCAL[config["camera_per"]]
        hidden = [f"Cameras are hidden; of the focal lengths, {shared}."]
    return [
        *dict.fromkeys(map(_features_text, sources)),
        f"Method {config['estimator']}: {' or '.join(seen)}; "
        f"{budget_text(config)}; {seeds_text(config)}.",
        *hidden,
        *([f"Working size by set: {'; '.join(dict.fromkeys(sizes))}."] if sizes else []),
    ]


def _source_text(source: Mapping[str, Any]) -> str:
    """Say what one of several sources is, by its settings."""
    matcher, longest = source.get("matcher"), source["longest"]
    if source["detector"] == NO_DETECTOR:
        made = str(matcher)
    else:
        made = f"{source['detector']} + {matcher or source['descriptor']}"
        made += f", at most {source['max_keypoints']:,} keypoints"
    return f"{made}, longer edge {longest} px" if longest else made


def _features_text(source: Mapping[str, Any]) -> str:
    """Say where the candidates of a run come from; a source of a user's own may hold anything."""
    name = source.get("representation", "another source")
    if "scene" in source:
        return "Candidates of synthetic scenes."
    features = source.get("features")
    if features is None and isinstance(source.get("sources"), list):
        return f"Candidates of {name}: {'; '.join(map(_source_text, source['sources']))}."
    if features is None:
        return f"Candidates of {name}."
    parts = [f"{features['detector']} + {features['descriptor']}"]
    parts += [] if features["layer"] is None else [f"layer {features['layer']}"]
    parts += [f"at most {count(features['max_keypoints'], 'keypoint')}"]
    longest = features["longest"]
    parts += [f"longer edge {longest} px" if longest else "images in their own size"]
    return f"Preset {name}: {', '.join(parts)}."


def association_text(association: Mapping[str, Any]) -> str:
    """Say what the estimator sees of the candidates, from the settings of an `Association`."""
    parts = [f"mutual {association['k']} nearest neighbours"]
    if association["max_edges"] is not None:
        parts.append(f"the first {association['max_edges']} edges")
    parts.append("many-to-many GMS" if association["gms"] else "no GMS")
    if association["keep"] is not None:
        parts.append(f"the first {association['keep']}")
    return ", ".join(parts)


def budget_text(settings: Mapping[str, Any]) -> str:
    """Say iterations and threshold of a run."""
    options = settings["options"]
    threshold = options["threshold_px"]
    at = "an automatic threshold" if isinstance(threshold, str) else f"{threshold:g} px"
    return f"{options['min_iterations']:,} to {options['max_iterations']:,} iterations at {at}"


def seeds_text(settings: Mapping[str, Any]) -> str:
    """Say how many seeds a run has."""
    return count(settings["seeds"], "seed")


def _auc_texts(spread: Mapping[str, Any]) -> list[str]:
    ends = zip(spread["mean"], spread["interval"], strict=True)
    return [f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, (low, high) in ends]

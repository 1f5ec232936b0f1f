"""Experiments by name, and how to make tables and figures again from their data."""

from __future__ import annotations

import importlib
import json
from typing import Any

from manymatch._files import read_bytes, unreadable
from manymatch._validate import suggest
from manymatch_paper.experiments.report import ExperimentReport

#: Names of all experiments and what each asks. A module of that name has `tables(data)`,
#: `notes(data)` and `FIGURES`.
EXPERIMENTS: dict[str, str] = {
    "diagnose": "How much of the truth do several candidates keep, by layer and debias rank?",
    "operators": "Mutual, one-way or union: which association keeps most truth per edge?",
    "q1": "Do candidates beyond rank one help when the minimal samples stay the same?",
    "q2": "CM, HCM, MCM and two-stage on the same graphs",
    "q3": "Rank-one matching against preserve-then-resolve, within each representation",
    "q4": "Complete systems",
    "sensitivity": "How much do q and δ matter?",
    "ablation": "Auto against rank-one and two-stage, and without each of its ingredients",
    "calibration": "Do matches hold as often as their probabilities say?",
    "epipolar": "An inlier of the true pose is not always a true match",
    "toy": "The likelihood of a small graph, enumerated",
    "qualitative": "What layer and debias rank do to features, as colours",
    "teaser": "True matches below rank one",
}


def report_of(name: str, data: dict[str, Any]) -> ExperimentReport:
    """Make tables and figures from the data of an experiment."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(
            f"experiment must be one of {known}, got {name!r}{suggest(name, EXPERIMENTS)}"
        )
    module = importlib.import_module(f"manymatch_paper.experiments.{name}")
    return ExperimentReport(
        name=name,
        title=EXPERIMENTS[name],
        data=data,
        tables=module.tables(data),
        figures=module.FIGURES,
        notes=module.notes(data),
    )


def load_report(path: object) -> ExperimentReport:
    """Read the JSON of an experiment and make its tables and figures again."""
    want = "the JSON of an experiment"
    try:
        data = json.loads(read_bytes(path, want))
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            raise unreadable(path, want, "it is no JSON") from error
        raise
    if not isinstance(data, dict) or not isinstance(data.get("experiment"), str):
        raise unreadable(path, want, "it does not say which experiment it is of")
    name = data.pop("experiment")
    try:
        return report_of(name, data)
    except (KeyError, TypeError, IndexError) as error:
        raise unreadable(path, want, f"it lacks {error}") from error

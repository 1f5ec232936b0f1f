"""Experiments by name, and the files that each writes: data as JSON, tables, figures.

An experiment is one module in `manymatch_lab.experiments` with

- ``QUESTION`` and ``EXAMPLE``: one sentence each, the second a command line;
- ``run(...)``: computes and returns everything as JSON types; its signature makes the flags of
  the command (see `manymatch_lab.command`);
- ``tables(data)`` and ``notes(data)``: tables and sentences, from the data alone;
- ``FIGURES``: by file name, functions from the data to a matplotlib figure.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from manymatch.io.files import as_path, read_bytes, unreadable, write_whole
from manymatch_lab.checks import suggest
from manymatch_lab.evaluate.protocol import protocol_sentence
from manymatch_lab.evaluate.tables import Table
from manymatch_lab.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Module of every experiment, by its name on the command line and in the names of its files.
EXPERIMENTS = {
    "diagnose": "diagnose",
    "operators": "operators",
    "q1": "q1_more_candidates",
    "q2": "q2_scores",
    "q3": "q3_rank_one",
    "q4": "q4_systems",
    "sensitivity": "sensitivity",
    "ablation": "ablation",
    "calibration": "calibration",
    "epipolar": "epipolar",
    "toy": "toy",
    "qualitative": "qualitative",
    "teaser": "teaser",
}

#: Experiments that the paper does not have.
NOT_IN_PAPER = ("ablation", "calibration")

_DPI = 200
_WANT = "the JSON of an experiment"


@dataclasses.dataclass(frozen=True)
class ExperimentReport:
    """Tables, figures and notes of one experiment, and the data (JSON types) they are made of."""

    name: str
    title: str
    data: Mapping[str, Any]
    tables: Sequence[Table]
    figures: Mapping[str, Callable[[dict[str, Any]], Figure]]
    notes: Sequence[str]

    def markdown(self) -> str:
        """Return the whole report as Markdown."""
        parts = [f"# {self.title}", *self.notes, *(table.markdown() for table in self.tables)]
        return "\n\n".join(part.rstrip() for part in parts) + "\n"

    def latex(self) -> str:
        """Return all tables as LaTeX."""
        return "\n".join(table.latex() for table in self.tables)

    def write(self, folder: object) -> list[Path]:
        """Write ``<name>.json``, ``.md`` and ``.tex``, and every figure as PDF and PNG.

        Every file appears whole or not at all. The JSON alone is enough to draw again:
        ``manymatch-lab draw <name>.json``.
        """
        target = as_path(folder, "out")
        target.mkdir(parents=True, exist_ok=True)
        document = {"experiment": self.name, **self.data}
        text = json.dumps(document, indent=1, allow_nan=False)
        contents = {
            f"{self.name}.json": f"{text}\n".encode(),
            f"{self.name}.md": self.markdown().encode(),
            f"{self.name}.tex": self.latex().encode(),
        }
        for name, draw in self.figures.items():
            # The figures are drawn from the data as the JSON holds them.
            for suffix, image in render(draw, json.loads(text)).items():
                contents[f"{name}.{suffix}"] = image
        for name, content in contents.items():
            write_whole(target / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
        return [target / name for name in contents]


def experiment(name: str) -> ModuleType:
    """Import the module of an experiment."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(
            f"experiment must be one of {known}, got {name!r}{suggest(name, EXPERIMENTS)}"
        )
    return importlib.import_module(f"manymatch_lab.experiments.{EXPERIMENTS[name]}")


def report_of(name: str, data: dict[str, Any]) -> ExperimentReport:
    """Make tables and figures from the data of an experiment."""
    module = experiment(name)
    about = ["The paper does not have this experiment."] if name in NOT_IN_PAPER else []
    if "differs_from_paper" in data:
        about.append(protocol_sentence(data["differs_from_paper"], data.get("assumed", ())))
    return ExperimentReport(
        name=name,
        title=module.QUESTION,
        data=data,
        tables=module.tables(data),
        figures=module.FIGURES,
        notes=[*about, *module.notes(data)],
    )


def load_report(path: object) -> ExperimentReport:
    """Read the JSON of an experiment and make its tables and figures again."""
    try:
        data = json.loads(read_bytes(path, _WANT))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, _WANT, "it is not JSON") from error
    if not isinstance(data, dict) or not isinstance(data.get("experiment"), str):
        raise unreadable(path, _WANT, "it does not say which experiment it is of")
    name = data.pop("experiment")
    try:
        return report_of(name, data)
    except (KeyError, TypeError, IndexError) as error:
        raise unreadable(path, _WANT, f"it lacks {error}") from error


def render(draw: Callable[[dict[str, Any]], Figure], data: dict[str, Any]) -> dict[str, bytes]:
    """Draw a figure, as bytes of a PDF and of a PNG."""
    images = {}
    with styled():
        figure = draw(data)
        for suffix, settings in (
            ("pdf", {"metadata": {"CreationDate": None}}),
            ("png", {"dpi": _DPI}),
        ):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, **settings)
            images[suffix] = buffer.getvalue()
    return images

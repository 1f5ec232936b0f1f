"""What an experiment leaves behind: tables, figures and the data they are made from."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING, Any

from manymatch._files import as_path, write_whole
from manymatch_paper.experiments.style import styled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from manymatch.evaluate.tables import Table

_DPI = 200


@dataclasses.dataclass(frozen=True)
class ExperimentReport:
    """Tables and figures of one experiment.

    Parameters
    ----------
    name : str
        Name of the experiment, and of its files.
    title : str
        What it asks.
    data : dict
        Everything the tables and figures are made from, in JSON types.
    tables : sequence of Table
        In reading order.
    figures : mapping of str to callable
        By file name, from the data to a matplotlib figure.
    notes : sequence of str
        What one should know, one sentence each.
    """

    name: str
    title: str
    data: Mapping[str, Any]
    tables: Sequence[Table]
    figures: Mapping[str, Callable[[dict[str, Any]], Figure]] = dataclasses.field(
        default_factory=dict
    )
    notes: Sequence[str] = ()

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
        ``manymatch experiment draw <name>.json``.
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
            # What is drawn is what was written: the data after a trip through JSON.
            for suffix, image in render(draw, json.loads(text)).items():
                contents[f"{name}.{suffix}"] = image
        for name, content in contents.items():
            write_whole(target / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
        return [target / name for name in contents]


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

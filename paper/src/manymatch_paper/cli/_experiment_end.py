"""How every experiment ends: files written, tables shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch.cli._console import out, print_json, show_table
from manymatch_paper.experiments.registry import report_of

if TYPE_CHECKING:
    from pathlib import Path


def finish(name: str, data: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    """Write tables, figures and data of an experiment, and show the tables."""
    report = report_of(name, data)
    files = report.write(folder)
    if as_json:
        print_json({"experiment": name, **data, "files": [str(path) for path in files]})
        return
    console = out()
    for table in report.tables:
        show_table(table)
        console.print()
    for note in report.notes:
        console.print(note, style="dim", markup=False)
    for path in files:
        console.print(f"Written: {path}", markup=False, soft_wrap=True)

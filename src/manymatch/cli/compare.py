"""``manymatch compare``: two runs of ``manymatch eval``, pair by pair."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated

import typer

from manymatch._files import write_text
from manymatch.cli.console import Json, print_json, print_plain, show_table
from manymatch.evaluate.compare import compare_runs
from manymatch.evaluate.tables import comparison_table

EXAMPLE = "Example: manymatch compare out/eval/effnet/fox/hcm-mcm out/eval/effnet/fox/cm"


def run(
    first: Annotated[Path, typer.Argument(help="Folder of a run, or of runs on several sets.")],
    second: Annotated[Path, typer.Argument(help="The other one; it is subtracted.")],
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table to this Markdown file.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Also write the table to this LaTeX file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs on the same pairs: differences of the AUC with intervals."""
    comparison = compare_runs(first, second)
    table = comparison_table(comparison)
    for path, text in ((markdown, table.markdown()), (latex, table.latex())):
        if path is not None:
            write_text(path, text)
    if as_json:
        print_json(comparison.to_dict())
        return
    show_table(table)
    for one in comparison.sets:
        for name0, name1, a, b in one.largest_changes(3):
            print_plain(f"{one.title}: {name0} - {name1}: {a:.1f}° against {b:.1f}°")

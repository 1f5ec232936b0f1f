"""``manymatch compare``: two runs of ``manymatch eval``, pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manymatch.cli.console import Json, check_file, print_json, print_plain
from manymatch.io.files import make_folder, output_file, write_text
from manymatch_lab.evaluate.compare import compare_runs, comparison_table
from manymatch_lab.evaluate.tables import show_table

EXAMPLE = "Example: manymatch compare out/eval --method auto --method rank-one-poselib"


def run(
    first: Annotated[Path, typer.Argument(help="Folder of a run, or of runs on several sets.")],
    second: Annotated[
        Path | None,
        typer.Argument(
            help="The other one; it is subtracted. By default the same, of which --method or "
            "--preset, given twice, names two runs.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method that is compared, such as auto or rank-one-poselib, where a folder has "
            "several; given twice, that of the first and of the second."
        ),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="The same for the preset, such as classic.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table to this Markdown file.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Also write the table to this LaTeX file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs on the same pairs: differences of the AUC with intervals.

    All sets that both folders have are compared, each pair by pair; the macro average weights sets
    equally.
    """
    for folder, name in ((first, "first"), (second, "second")):
        if folder is not None:
            check_file(folder, name, "a folder of manymatch eval")
    methods, presets = _two(method, "--method"), _two(preset, "--preset")
    if second is None and methods[0] == methods[1] and presets[0] == presets[1]:
        raise ValueError(
            "second must be another folder, or --method or --preset be given twice with two names, "
            f"got {str(first)!r} alone"
        )
    for path, name in ((markdown, "--markdown"), (latex, "--latex")):
        if path is not None:
            output_file(path, name)
    comparison = compare_runs(
        first, first if second is None else second, methods=methods, presets=presets
    )
    table = comparison_table(comparison)
    if as_json:
        print_json(comparison.to_dict())
    else:
        show_table(table)
        for one in comparison.sets:
            for name0, name1, a, b in one.largest_changes(3):
                print_plain(f"{one.title}: {name0} - {name1}: {a:.1f}° against {b:.1f}°")
    for path, text in ((markdown, table.markdown()), (latex, table.latex())):
        if path is not None:
            make_folder(path.parent)
            write_text(path, text)


def _two(given: list[str] | None, flag: str) -> tuple[str | None, str | None]:
    """Return what is asked for of the first and of the second run."""
    if given is not None and len(given) > 2:
        raise ValueError(f"{flag} must be given once or twice, got it {len(given)} times")
    return (given[0], given[-1]) if given else (None, None)

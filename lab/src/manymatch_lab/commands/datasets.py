"""``manymatch datasets``: what can be evaluated, where to get it, and whether it is all here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch.cli.console import BAD_INPUT, Json, print_json, print_plain, print_table, working
from manymatch.io.files import as_folder
from manymatch_lab.checks import count
from manymatch_lab.datasets import registry
from manymatch_lab.datasets.dataset import DatasetInfo
from manymatch_lab.datasets.registry import SetSettings
from manymatch_lab.datasets.synthetic import CONFIGS

EXAMPLE = "Example: manymatch datasets folder --root photos"


def run(
    name: Annotated[
        str | None,
        typer.Argument(help="A data set, for all about it; or a folder or set to check."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            help="Folder of the data set, or one that has it, to check for all that is needed.",
        ),
    ] = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="NAVI: folder of the pair lists, if elsewhere.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List data sets, where to get them, and whether a folder has all of one."""
    if name is None:
        if splits is not None:
            raise ValueError("--splits must come with the name of a data set, got none")
        folder = None if root is None else as_folder(root, "--root")
        records = [_record(registry.info(known), folder) for known in registry.names()]
        if as_json:
            print_json({"datasets": records, "faults": list(registry.faults())})
        else:
            _print_all(records, root)
        return
    chosen = _chosen(name, root)
    entry = registry.info(chosen.dataset)
    if splits is not None and "splits" not in entry.options:
        raise ValueError(f"--splits must come with a NAVI data set, got {name}")
    if chosen.root is None:
        record = _record(entry)
    else:
        place = Path(str(chosen.root))
        if splits is not None:
            chosen = dataclasses.replace(chosen, options={**chosen.options, "splits": splits})
        with working(f"looking at {place}", quiet=as_json):
            missing = chosen.check()
            notes = [] if missing else list(chosen.load().notes)
            record = _record(entry, *(path for path in (place, splits) if path is not None))
        record |= {"root": str(place), "missing": missing, "notes": notes}
    if as_json:
        print_json(record)
    else:
        _print_one(record)
    if record.get("missing"):
        raise typer.Exit(BAD_INPUT)


def _chosen(name: str, root: Path | None) -> SetSettings:
    """Take a data set by its name, or a set by what ``manymatch eval`` takes it by."""
    if name in registry.names():
        return registry.settings_of(name, root)
    if name.split(":")[0] == "synthetic":
        raise ValueError(
            f"name must be a set with files, got {name!r}, whose scenes manymatch eval computes"
        )
    # For a folder without a list the missing parts are shown; any other name is refused.
    kind = "folder" if Path(name).is_dir() else name
    found = registry.find(name) or registry.settings_of(kind, Path(name))
    if root is not None:
        given = f"{str(root)!r} with {name!r}"
        raise ValueError(f"--root must come with the name of a data set, got {given}")
    return found


def _record(entry: DatasetInfo, *roots: Path | None) -> dict[str, Any]:
    """All about a data set; with roots that are folders, also which of its parts are there."""
    layout = entry.layout
    folders = [root for root in roots if root is not None and root.is_dir()]
    found = layout.found(*folders) if folders else None
    return {
        **{name: getattr(entry, name) for name in ("name", "title", "about", "get")},
        "pairs": entry.num_pairs,
        "options": list(entry.options),
        "folders": list(layout.folders),
        "parts": layout.records() if found is None else found,
        "tree": layout.tree(found),
    }


def _print_all(records: list[dict[str, Any]], root: Path | None) -> None:
    columns = {"name": "left", "pairs": "right", "about": "left"}
    if root is not None:
        # Columns of their own: which parts of each set are below the folder.
        columns = {"": "left", **columns, "lacks": "left"}
    rows = []
    for record in records:
        pairs = "any" if record["pairs"] is None else f"{record['pairs']:,}"
        row = [record["name"], pairs, f"{record['title']}: {record['about']}"]
        if root is not None:
            needed = [part for part in record["parts"] if not part["optional"]]
            lacks = [part["what"] for part in needed if part["found"] is None]
            missing = "everything" if len(lacks) == len(needed) else ", ".join(lacks)
            row = ["✗" if lacks else "✓", *row, missing]
        rows.append(row)
    print_table(columns, rows)
    for fault in registry.faults():
        print_plain(f"\n{fault[0].upper()}{fault[1:]}.", style="red")
    print_plain("\nWithout any file, scenes for manymatch eval: synthetic:NAME, with a name of")
    print_plain(f"{', '.join(CONFIGS)}.\n")
    print_plain("Where to get one and what it has to contain: manymatch datasets NAME")
    print_plain("Whether a folder has all of it: manymatch datasets NAME --root DIR")


def _print_one(record: dict[str, Any]) -> None:
    pairs = "" if record["pairs"] is None else f", {count(record['pairs'], 'pair')}"
    print_plain(f"{record['title']} ({record['name']}{pairs}): {record['about']}\n")
    print_plain(f"{record['get']}\n\nExpected files:\n{record['tree']}")
    if record.get("missing"):
        print_plain(f"\nNot complete: {record['missing']}", style="red")
    elif "root" in record:
        print_plain(f"\nComplete in {record['root']}", style="green")
        for note in record["notes"]:
            print_plain(f"  {note}")

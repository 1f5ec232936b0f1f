"""``manymatch datasets``: what can be evaluated, where to get it, and whether it is all here."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch.cli.console import BAD_INPUT, Json, print_json, print_plain, print_table, working
from manymatch.datasets import registry

if TYPE_CHECKING:
    from manymatch.datasets.registry import DatasetInfo

EXAMPLE = "Example: manymatch datasets folder --root photos"


def run(
    name: Annotated[str | None, typer.Argument(help="A data set, for all about it.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder to check for everything it needs.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="NAVI: folder of the pair lists, if elsewhere.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List data sets, where to get them, and whether a folder has all of one."""
    if name is None:
        for flag, value in (("--root", root), ("--splits", splits)):
            if value is not None:
                raise ValueError(f"{flag} must come with the name of a data set, got none")
        entries = [registry.info(known) for known in registry.names()]
        if as_json:
            records = [_record(entry) for entry in entries]
            print_json({"datasets": records, "faults": list(registry.faults())})
        else:
            _print_all(entries)
        return
    entry = registry.info(name)
    if splits is not None and "splits" not in entry.options:
        raise ValueError(f"--splits must come with a NAVI data set, got {name}")
    record = _record(entry)
    if root is not None:
        options = {} if splits is None else {"splits": splits}
        with working(f"looking at {root}", quiet=as_json):
            missing = registry.check(name, root, **options)
            notes = [] if missing else list(registry.load(name, root, **options).notes)
        record |= {"root": str(root), "missing": missing, "notes": notes}
    if as_json:
        print_json(record)
    else:
        _print_one(record)
    if record.get("missing"):
        raise typer.Exit(BAD_INPUT)


def _record(entry: DatasetInfo) -> dict[str, Any]:
    names = ("name", "title", "about", "get", "tree")
    facts = {name: getattr(entry, name) for name in names}
    return {**facts, "pairs": entry.num_pairs, "options": list(entry.options)}


def _print_all(entries: list[DatasetInfo]) -> None:
    print_table(
        {"name": "left", "pairs": "right", "about": "left"},
        (
            (e.name, "any" if e.num_pairs is None else f"{e.num_pairs:,}", f"{e.title}: {e.about}")
            for e in entries
        ),
    )
    for fault in registry.faults():
        print_plain(f"\n{fault[0].upper()}{fault[1:]}.", style="red")
    print_plain("\nWhere to get one and what it has to contain: manymatch datasets NAME")
    print_plain("Whether a folder has all of it: manymatch datasets NAME --root DIR")


def _print_one(record: dict[str, Any]) -> None:
    pairs = "" if record["pairs"] is None else f", {record['pairs']:,} pairs"
    print_plain(f"{record['title']} ({record['name']}{pairs}): {record['about']}\n")
    print_plain(f"{record['get']}\n\nExpected files:\n{record['tree']}")
    if record.get("missing"):
        print_plain(f"\nNot complete: {record['missing']}", style="red")
    elif "root" in record:
        print_plain(f"\nComplete in {record['root']}", style="green")
        for note in record["notes"]:
            print_plain(f"  {note}")

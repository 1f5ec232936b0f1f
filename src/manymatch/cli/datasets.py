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
        _print_all(as_json=as_json)
        return
    entry = registry.info(name)
    if splits is not None and "splits" not in entry.options:
        raise ValueError(f"--splits must come with a NAVI data set, got {name}")
    record = _record(entry)
    if root is not None:
        with working(f"looking at {root}", quiet=as_json):
            options = {} if splits is None else {"splits": splits}
            fault = registry.check(name, root, **options)
            notes: list[str] = []
            # Sets that report their progress compute images, which is no part of a check.
            if not fault and "progress" not in entry.options:
                notes = list(registry.load(name, root, **options).notes)
        record |= {"root": str(root), "missing": fault, "notes": notes}
    if as_json:
        print_json(record)
    else:
        _print_one(entry, record)
    if record.get("missing"):
        raise typer.Exit(BAD_INPUT)


def _record(entry: DatasetInfo) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "pairs": entry.num_pairs,
        "about": entry.about,
        "get": entry.get,
        "tree": entry.tree,
        "options": list(entry.options),
    }


def _print_all(*, as_json: bool) -> None:
    entries = [registry.info(name) for name in registry.names()]
    if as_json:
        print_json({"datasets": [_record(entry) for entry in entries]})
        return
    rows = (
        (
            entry.name,
            "any" if entry.num_pairs is None else f"{entry.num_pairs:,}",
            f"{entry.title}: {entry.about}",
        )
        for entry in entries
    )
    print_table({"name": "left", "pairs": "right", "about": "left"}, rows)
    print_plain("\nWhere to get one and what it has to contain: manymatch datasets NAME")
    print_plain("Whether a folder has all of it: manymatch datasets NAME --root DIR")


def _print_one(entry: DatasetInfo, record: dict[str, Any]) -> None:
    pairs = "" if entry.num_pairs is None else f", {entry.num_pairs:,} pairs"
    print_plain(f"{entry.title} ({entry.name}{pairs}): {entry.about}\n")
    print_plain(entry.get)
    print_plain(f"\nExpected files:\n{entry.tree}")
    if "root" not in record:
        return
    if record["missing"]:
        print_plain(f"\nNot complete: {record['missing']}", style="red")
        return
    print_plain(f"\nComplete in {record['root']}", style="green")
    for note in record["notes"]:
        print_plain(f"  {note}")

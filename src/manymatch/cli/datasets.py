"""``manymatch datasets``: what can be evaluated, where to get it, and whether it is all here."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from manymatch.cli._console import BAD_INPUT, clean_exit, out, print_json, working
from manymatch.datasets import registry

if TYPE_CHECKING:
    from manymatch.datasets.registry import DatasetInfo

EXAMPLE = "Example: manymatch datasets navi-wild --root data/navi"


def datasets(
    name: Annotated[str | None, typer.Argument(help="A data set, for all about it.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder to check for everything it needs.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option("--splits", help="NAVI: folder of the pair lists, if elsewhere.")
    ] = None,
    make_split: Annotated[
        Path | None,
        typer.Option("--make-split", help="navi-wild: make image-disjoint lists in this folder."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="With --make-split.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List data sets: what they are, where to get them, and whether a folder has all of one."""
    with clean_exit():
        if name is None:
            for flag, value in (
                ("--root", root),
                ("--splits", splits),
                ("--make-split", make_split),
            ):
                if value is not None:
                    raise ValueError(f"{flag} must come with the name of a data set, got none")
            _tell_all(as_json=as_json)
            return
        entry = registry.info(name)
        if splits is not None and "splits" not in entry.options:
            raise ValueError(f"--splits must come with a NAVI data set, got {name}")
        if make_split is not None:
            _make_split(entry, root, make_split, seed, as_json=as_json)
            return
        record = _record(entry)
        if root is not None:
            with working(f"looking at {root}", quiet=as_json):
                options = {} if splits is None else {"splits": splits}
                fault = registry.check(name, root, **options)
                notes = [] if fault else _notes(entry, root, options)
            record |= {"root": str(root), "missing": fault, "notes": notes}
        if as_json:
            print_json(record)
        else:
            _tell_one(entry, record)
    if record.get("missing"):
        raise typer.Exit(BAD_INPUT)


def _notes(entry: DatasetInfo, root: Path, options: dict[str, Any]) -> list[str]:
    """Read what the data set says about itself; made ones would be made, so they are not read."""
    if "progress" in entry.options:
        return []
    return list(registry.load(entry.name, root, **options).notes)


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


def _tell_all(*, as_json: bool) -> None:
    entries = [registry.info(name) for name in registry.names()]
    if as_json:
        print_json({"datasets": [_record(entry) for entry in entries]})
        return
    console = out()
    # Narrow enough for a terminal of 80 columns.
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "pairs", "about"):
        table.add_column(column, overflow="fold", justify="right" if column == "pairs" else "left")
    for entry in entries:
        pairs = "any" if entry.num_pairs is None else f"{entry.num_pairs:,}"
        table.add_row(entry.name, pairs, f"{entry.title}: {entry.about}")
    console.print(table)
    console.print("\nWhere to get one and what it has to contain: manymatch datasets NAME")
    console.print("Whether a folder has all of it: manymatch datasets NAME --root DIR")


def _tell_one(entry: DatasetInfo, record: dict[str, Any]) -> None:
    console = out()
    pairs = "" if entry.num_pairs is None else f", {entry.num_pairs:,} pairs"
    console.print(f"[bold]{entry.title}[/] ({entry.name}{pairs}): {entry.about}\n")
    console.print(entry.get, markup=False)
    console.print("\nExpected files:")
    console.print(entry.tree, markup=False, soft_wrap=True)
    if "root" not in record:
        return
    if record["missing"]:
        console.print(f"\n[red]Not complete:[/] {_plain(record['missing'])}", soft_wrap=True)
        return
    console.print(f"\n[green]Complete[/] in {_plain(record['root'])}")
    for note in record["notes"]:
        console.print(f"  {note}", markup=False, soft_wrap=True)


def _plain(text: str) -> str:
    """Keep brackets of a file name from being read as markup."""
    return text.replace("[", r"\[")


def _make_split(
    entry: DatasetInfo, root: Path | None, target: Path, seed: int, *, as_json: bool
) -> None:
    from manymatch_paper.datasets.navi_split import make_navi_split

    if entry.name != "navi-wild":
        raise ValueError(f"--make-split must come with navi-wild, got {entry.name}")
    if root is None:
        raise ValueError("--make-split must come with --root, the folder of NAVI, got none")
    with working("choosing pairs", quiet=as_json):
        manifest = make_navi_split(root, target, seed=seed)
    if as_json:
        print_json(manifest)
        return
    console = out()
    total = 3 * manifest["pairs_per_bin"]
    console.print(f"Two lists of {total:,} pairs of {manifest['objects']} objects in {target}:")
    for finding in manifest["audit"]:
        console.print(f"  {finding['constraint']}: {'yes' if finding['holds'] else 'no'}")

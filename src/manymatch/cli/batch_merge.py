"""``manymatch batch-merge``: the shards of a batch become one batch."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated

import typer

from manymatch.batch.merge import merge_batch
from manymatch.cli import flags
from manymatch.cli.batch import FormatOption, print_summary
from manymatch.cli.console import OK, UNSOLVED, Json

EXAMPLE = "Example: manymatch batch-merge out/batch --format colmap-db"


def run(
    out_folder: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the batch, as its shards had it.")
    ],
    shards: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of shards that are elsewhere; by default OUT/shards/*."),
    ] = None,
    formats: FormatOption = "",
    as_json: Json = False,
) -> None:
    """Join the shards of a batch into one batch, as one run would have made it.

    It can be run at any time and again; what is missing is said. Exit codes: 0 if all pairs are
    there and at least one has a pose, 1 if not, 2 if the input is bad.
    """
    summary = merge_batch(out_folder, shards or (), flags.split_list(formats))
    print_summary(summary, as_json=as_json)
    whole = summary.finished == summary.total
    raise typer.Exit(OK if whole and summary.with_pose and not summary.reasons else UNSOLVED)

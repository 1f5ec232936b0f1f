"""The flag ``--protocol``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch.cli.flags import COMMON
from manymatch.io.remote import RemotePath
from manymatch_lab.evaluate.protocol import PAPER, PAPER_NAME, Protocol, checked_protocol

ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar=PAPER_NAME,
        help="paper: the paper's settings, apart from those that are given: "
        f"{PAPER.preset} features, "
        f"{PAPER.association.k} candidates, {PAPER.association.max_edges} and "
        f"{PAPER.association.keep} edges before and after the motion filter, "
        f"method {PAPER.method}, "
        f"{PAPER.options.threshold_px:g} px, {PAPER.options.min_iterations:,} to "
        f"{PAPER.options.max_iterations:,} iterations, {PAPER.seeds} seeds.",
        rich_help_panel=COMMON,
    ),
]


def protocol(name: object, settings: dict[str, Any]) -> Protocol:
    """Return a protocol by its name; a file of all settings has no place beside it."""
    checked_protocol(name)
    given = settings.get("preset")
    from_file = isinstance(given, Path | RemotePath)
    if from_file:
        raise ValueError(
            f"--protocol and --config must not be given together, got {name!r} and {str(given)!r}"
        )
    return PAPER

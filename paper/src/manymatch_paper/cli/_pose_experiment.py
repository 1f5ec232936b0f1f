"""What the experiments on pose accuracy share on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from manymatch.cli._console import working
from manymatch.evaluate.sources import FileSource
from manymatch.evaluate.sources import GraphSource, open_datasets, open_sources
from manymatch.matcher.config import PRESETS
from manymatch.viz import require_matplotlib

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Presets = Annotated[
    list[str] | None,
    typer.Option(
        "--preset",
        help=f"One of {', '.join(PRESETS)} or a .toml file, for sets of images; may be repeated. "
        "By default what is installed decides.",
        show_default=False,
    ),
]
Gms = Annotated[
    bool,
    typer.Option(
        "--gms/--no-gms",
        help="Filter candidates by grid motion statistics; made scenes have no surfaces that it "
        "could use.",
    ),
]
MinIterations = Annotated[int, typer.Option(help="Samples that are always drawn.", min=1)]
MaxIterations = Annotated[
    int, typer.Option("--max-iterations", "--iterations", help="Samples at most.", min=1)
]


def open_sets(
    sets: Sequence[str],
    presets: Sequence[str] | None,
    *,
    root: Path | None,
    k: int,
    device: str,
    offline: bool,
    cache: Path | None,
    quiet: bool,
    longest: tuple[int | None, int | None] = (None, None),
) -> tuple[list[GraphSource], list[dict[str, str]]]:
    """Open the sets that are here, and list those that are not.

    Returns
    -------
    sources, missing
        Missing sets as ``{"set", "why"}``.

    Raises
    ------
    ValueError
        If none of them is here, with the reason of the first.
    """
    # Before hours of work, not after.
    require_matplotlib()
    here, missing = [], []
    with working("Opening the sets", quiet=quiet):
        for name in sets:
            try:
                _check(name, root)
            except (ValueError, OSError) as error:
                missing.append({"set": name, "why": " ".join(str(error).split())})
            else:
                here.append(name)
        if not here:
            raise ValueError(missing[0]["why"])
        sources = open_sources(
            here,
            list(presets) if presets else [None],
            root=root,
            k=k,
            device=device,
            offline=offline,
            cache=cache,
            longest=longest,
        )
    return sources, missing


def _check(name: str, root: Path | None) -> None:
    """Raise if a set cannot be opened; cheap, as no network is loaded."""
    if not name.startswith("synthetic:") and not FileSource.find(name):
        open_datasets(name, root)

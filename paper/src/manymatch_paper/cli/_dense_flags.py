"""What the commands share that look at dense features of sets with depth."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from manymatch.cli._progress import Tracker
from manymatch.evaluate.sources import open_datasets
from manymatch.runs.runner import RunProgress
from manymatch_paper.experiments._dense_pairs import with_depth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.datasets.dataset import Dataset

_STREET = "made-street"

Sets = Annotated[
    list[str],
    typer.Argument(
        help="Data sets with depth, by name (see manymatch datasets) or NAME:FOLDER, or folders "
        "with a list of pairs and depth/; made-street needs no data.",
        show_default=False,
    ),
]
OneSet = Annotated[
    str,
    typer.Argument(
        metavar="SET",
        help="A data set by name (see manymatch datasets) or NAME:FOLDER, or a folder with a list "
        "of pairs; made-street needs no data.",
        show_default=False,
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets that are given by name only.", show_default=False),
]
Limit = Annotated[
    int | None, typer.Option(help="Only the first pairs of each set.", min=1, show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Bins = Annotated[str, typer.Option(help="Bounds of the viewpoint bins in degrees, by commas.")]
Taus = Annotated[
    str,
    typer.Option(
        "--tau", help="Distances in cm below which patches are partners; recall is averaged."
    ),
]
Longest = Annotated[
    int, typer.Option(min=0, help="Longer edge of the images in pixels; 0 is their own.")
]
Probe = Annotated[str, typer.Option(help="Image without content: black, grey or noise.")]
Weights = Annotated[
    str | None,
    typer.Option(help='File or folder of weights, or "random".', show_default=False),
]


class PairProgress:
    """Shows pairs of the parts of a run on standard error; a context manager."""

    def __init__(self) -> None:
        self._tracker = Tracker()
        self._label = ""
        self._first = (0, 0.0)

    def __enter__(self) -> Self:
        self._tracker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tracker.__exit__(*error)

    def __call__(self, label: str, finished: int, total: int) -> None:
        """Show how far a part is; the first call of each starts its clock."""
        now = time.monotonic()
        if label != self._label:
            self._label, self._first = label, (finished, now)
        done, since = finished - self._first[0], now - self._first[1]
        left = (total - finished) * since / done if done else None
        counts = {"finished": finished}
        self._tracker(RunProgress(finished, total, counts, left, label))


def opened(specs: Sequence[str], root: Path | None, folder: Path) -> list[Dataset]:
    """Open sets with depth; made photographs are kept with the results unless told otherwise."""
    return [with_depth(dataset) for spec in specs for dataset in _open(spec, root, folder)]


def opened_one(spec: str, root: Path | None, folder: Path) -> Dataset:
    """Open one set, with depth or without."""
    found = _open(spec, root, folder)
    if len(found) != 1:
        titles = ", ".join(dataset.title for dataset in found)
        raise ValueError(f"SET must be one set, got a folder of {len(found)}: {titles}")
    return found[0]


def _open(spec: str, root: Path | None, folder: Path) -> list[Dataset]:
    kept = spec == _STREET and root is None
    return open_datasets(f"{_STREET}:{folder / _STREET}" if kept else spec, root)


def real_numbers(text: str, name: str) -> list[float]:
    """Read numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from None

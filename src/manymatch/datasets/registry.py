"""All data sets by name: what they are, where to get them, how to read and to check them."""

from __future__ import annotations

import dataclasses
import functools
from importlib import metadata
from typing import TYPE_CHECKING, Any

from manymatch._validate import suggest
from manymatch.datasets import folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch.datasets.dataset import Dataset
    from manymatch.datasets.layout import Layout


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set without reading it.

    Attributes
    ----------
    name, title : str
        As commands and as papers call it.
    about : str
        What it shows, in a few words.
    get : str
        Where it comes from and under which terms.
    layout : Layout
        The files it is expected to have.
    load : callable
        ``load(root, **options)`` reads the pairs and returns a `Dataset`.
    check : callable
        ``check(root, **options)`` returns a sentence that names the first missing thing, or None.
    num_pairs : int or None
        Pairs of the complete data set.
    options : tuple of str
        Names of the options that `load` takes besides the root.
    """

    name: str
    title: str
    about: str
    get: str
    layout: Layout
    load: Callable[..., Dataset]
    check: Callable[..., str | None]
    num_pairs: int | None
    options: tuple[str, ...] = ()


_GROUP = "manymatch.datasets"
_TEXTS = (folder.NAME, folder.TITLE, folder.ABOUT, folder.GET, folder.LAYOUT)
_FOLDER = DatasetInfo(*_TEXTS, folder.load, folder.check, folder.NUM_PAIRS)


@functools.cache
def _found() -> tuple[dict[str, DatasetInfo], tuple[str, ...]]:
    """All data sets by name, and a sentence for each package whose data sets cannot be used.

    A package adds sets by an entry point of the group ``manymatch.datasets`` that names a sequence
    of `DatasetInfo`.
    """
    found: dict[str, DatasetInfo] = {}
    faults = []
    for point in metadata.entry_points(group=_GROUP):
        try:
            found.update({entry.name: entry for entry in _entries(point)})
        except Exception as error:  # noqa: BLE001 - whatever the code of another package raises
            package = point.dist.name if point.dist is not None else point.value
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            faults.append(f"the data sets of the package {package} cannot be used ({reason})")
    return {**found, folder.NAME: _FOLDER}, tuple(faults)


def _entries(point: metadata.EntryPoint) -> list[DatasetInfo]:
    entries = list(point.load())
    for entry in entries:
        if not isinstance(entry, DatasetInfo):
            raise TypeError(f"it has a {type(entry).__name__} instead of a DatasetInfo")
    return entries


def names() -> list[str]:
    """Names of all data sets, those of other installed packages first."""
    return list(_found()[0])


def faults() -> tuple[str, ...]:
    """Sentences about installed packages whose data sets cannot be used; usually none."""
    return _found()[1]


def info(name: str) -> DatasetInfo:
    """Return what is known about a data set; an unknown name is an error with a suggestion."""
    try:
        return _found()[0][name]
    except (KeyError, TypeError):
        raise ValueError(
            f"name must be one of {', '.join(names())}{suggest(name, names())}, got {name!r}"
            + "".join(f"; {fault}" for fault in faults())
        ) from None


def load(name: str, root: object = None, **options: Any) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    name : str
        One of `names`.
    root : path, optional
        The folder it is in.
    **options
        What the data set takes besides; see ``info(name).options``.

    Returns
    -------
    Dataset
        Pairs in the order of their lists. Images are not opened; use `check` to find missing
        ones.

    Raises
    ------
    ValueError
        If a list is missing or damaged, in one sentence.

    Examples
    --------
    >>> pairs = load("navi-wild", "data/navi")                       # doctest: +SKIP
    >>> pairs[0].extra["bin"]                                        # doctest: +SKIP
    '0-40'
    """
    entry = info(name)
    for option in options:
        if option not in entry.options:
            known = f"the options {', '.join(entry.options)}" if entry.options else "no option"
            raise ValueError(f"{entry.name} takes {known}, got {option}")
    return entry.load(root, **options)


def check(name: str, root: object, **options: Any) -> str | None:
    """Say in a sentence what is the first thing missing below a root, or None if nothing is.

    All lists are read; of the images a spread over the whole data set is looked for, of the depth
    a few are read.
    """
    return info(name).check(root, **options)

"""All data sets by name: what they are, where to get them, how to read and to check them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from manymatch.io.files import as_path, read_toml, reading
from manymatch_lab.checks import integer, refusal, suggest
from manymatch_lab.datasets import folder, megadepth, metu, navi, scannet
from manymatch_lab.datasets.dataset import Dataset, DatasetInfo

_GROUP = "manymatch.datasets"
_SIZES = ("longest0", "longest1")
_WANT = "the settings of a set"
_OWN = (scannet.INFO, megadepth.INFO, *navi.INFOS, *metu.INFOS)


@functools.cache
def _found() -> tuple[dict[str, DatasetInfo], tuple[str, ...]]:
    """All data sets by name, and a sentence for each package whose data sets cannot be used.

    A package adds sets by an entry point of the group ``manymatch.datasets`` that names a sequence
    of `DatasetInfo`.
    """
    found = {entry.name: entry for entry in _OWN}
    faults = []
    for point in metadata.entry_points(group=_GROUP):
        try:
            entries = list(point.load())
            for entry in entries:
                if not isinstance(entry, DatasetInfo):
                    raise TypeError(f"it has a {type(entry).__name__} instead of a DatasetInfo")  # noqa: TRY301
            found.update({entry.name: entry for entry in entries})
        except Exception as error:  # noqa: BLE001 - other packages may raise anything
            package = point.dist.name if point.dist is not None else point.value
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            faults.append(f"the data sets of the package {package} cannot be used ({reason})")
    return {**found, folder.NAME: folder.INFO}, tuple(faults)


def names() -> list[str]:
    """Names of all data sets, a folder of your own last."""
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
    """Read a data set by its name, in the folder `root`.

    A file of settings in the root applies if it is for this set (see `SetSettings`). ``**options``
    are those of ``info(name).options``. Pairs are in the order of their lists; images are not
    opened, use `check` to find missing ones. A list that is missing or damaged is a `ValueError`.

    Examples
    --------
    >>> pairs = load("navi-wild", "data/navi")                       # doctest: +SKIP
    """
    return settings_of(name, root, options).load()


def check(name: str, root: object, **options: Any) -> str | None:
    """Say in a sentence what is the first thing missing below a root, or None if nothing is."""
    info(name)
    try:
        return settings_of(name, root, options).check()
    except ValueError as error:
        return str(error)


@dataclasses.dataclass(frozen=True)
class SetSettings:
    """A set and the settings that are its own, as a TOML file holds them.

    Such a file is called ``set.toml`` in the folder of a set, or has any name and says by ``root``
    where the set is. Its keys are the attributes below and the options of the data set.
    """

    dataset: str = folder.NAME  # by default any folder with a list of pairs
    root: object = None  # in a file from the folder of the file, which is the default
    #: Working size of the first and second images where it is not the preset's; 0 keeps the
    #: images' own size.
    longest0: int | None = None
    longest1: int | None = None
    #: What the data set takes besides, such as ``pairs``, ``images`` (paths from the root) and
    #: ``name`` of a folder.
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    path: Path | None = None  # of the file

    def __post_init__(self) -> None:
        entry = info(self.dataset)
        for option in self.options:
            if option not in entry.options:
                known = f"the options {', '.join(entry.options)}" if entry.options else "no option"
                raise ValueError(f"{entry.name} takes {known}, got {option}")
        for name in _SIZES:
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)

    def load(self) -> Dataset:
        """Read the set."""
        dataset = info(self.dataset).load(self.root, **self.options)
        own = {name: v for name in _SIZES if (v := getattr(self, name)) is not None}
        if not own:
            return dataset
        said = ", ".join(f"{name} {value}" for name, value in own.items())
        note = f"{dataset.set_name}: {said} by {self.path}"
        return dataclasses.replace(dataset, **own, notes=(*dataset.notes, note))

    def check(self) -> str | None:
        """Name the first missing thing, or None."""
        return info(self.dataset).first_fault(self.root, **self.options)


def read_set_file(path: object) -> SetSettings:
    """Read a file of settings of a set; unknown keys are errors."""
    source = as_path(path)
    values = read_toml(source, _WANT)
    with reading(source, _WANT, ValueError):
        name = values.pop("dataset", folder.NAME)
        options = info(name).options
        root = values.pop("root", ".")
        own = {key: values.pop(key) for key in _SIZES if key in values}
        known = ["dataset", "root", *_SIZES, *options]
        for key, value in {"root": root, **values}.items():
            if key not in known:
                raise ValueError(
                    f"its keys must be among {', '.join(known)}{suggest(key, known)}, got {key!r}"
                )
            if isinstance(value, dict | list) or "\0" in str(value):
                raise refusal(key, "a text or a number", value)
        if not isinstance(root, str):
            raise refusal("root", "the name of a folder", root)
        return SetSettings(name, source.parent / root, **own, options=values, path=source)


def settings_of(name: str, root: object, options: Mapping[str, Any] | None = None) -> SetSettings:
    """Take a set by its name and root; a file of settings in the root applies if it is for it."""
    plain = SetSettings(name, root, options=options or {})
    if not isinstance(root, str | Path) or not (Path(root) / folder.SET_FILE).is_file():
        return plain
    own = read_set_file(Path(root) / folder.SET_FILE)
    if own.dataset != name:
        return plain
    return dataclasses.replace(own, options={**own.options, **plain.options})


def find(spec: str | Path, root: object = None) -> SetSettings | None:
    """Take a set by what a user calls it; None for a text that names none.

    That is the name of a data set, with its `root` or as ``NAME:FOLDER``; a file of settings; a
    list of pairs; or a folder that has one of these two. A `Path` is never a name.
    """
    if isinstance(spec, str):
        name, colon, place = spec.partition(":")
        if colon and name in names():
            return settings_of(name, place)
        if spec in names():
            own = None if root is None else Path(str(root)) / spec
            return settings_of(spec, own if own is not None and own.is_dir() else root)
    path = Path(spec)
    if path.is_file():
        if path.suffix == ".toml":
            return read_set_file(path)
        return SetSettings(root=path.parent, options={"pairs": path.name})
    if (path / folder.SET_FILE).is_file():
        return read_set_file(path / folder.SET_FILE)
    return SetSettings(root=path) if (path / folder.LIST).is_file() else None

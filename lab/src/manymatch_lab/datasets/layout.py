"""Where the files of a data set may be: one description for loaders, trees and error sentences."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any

from manymatch_lab.datasets.loading import root_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class LayoutPart:
    """One part of a data set's files.

    Attributes
    ----------
    what : str
        What it is, in a few words.
    places : tuple of str
        Names or patterns (``*``) of files, the preferred one first. The part is there if one of
        them is.
    homes : tuple of str
        Folders below that of the data set in which they may be, with a slash at the end; "" is
        the data set's folder itself.
    optional : bool
        Whether the data set can be used without it.
    """

    what: str
    places: tuple[str, ...]
    homes: tuple[str, ...] = ("",)
    optional: bool = False

    def find(self, folder: Path) -> Path | None:
        """Return the first file at one of the places; a place is looked for in all homes."""
        patterns = (home + place for place in self.places for home in self.homes)
        found = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
        return next(found, None)

    @property
    def where(self) -> str:
        """The places and homes in words."""
        homes = ", ".join(home or "." for home in self.homes)
        return " or ".join(self.places) + (f" in {homes}" if self.homes != ("",) else "")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a data set.

    Attributes
    ----------
    folders : tuple of str
        What the data set's folder is usually called; capital letters and ``-_.`` do not matter.
        A root may be that folder, under any name, or a folder that has one of these names in it.
    parts : tuple of LayoutPart
        What there is in it. A folder that has the first part is the data set's.
    """

    folders: tuple[str, ...]
    parts: tuple[LayoutPart, ...]

    def locate(self, root: object, name: str) -> tuple[Path, Path]:
        """Return the data set's folder and the file that is its first part.

        The folder is the root, or the first below it with one of the names.

        Raises
        ------
        ValueError
            If the root is no folder, or none of the folders has the first part; says which names
            and places it looked for.
        """
        top = root_folder(root, name)
        first = self.parts[0]
        for folder in self._candidates(top):
            path = first.find(folder)
            if path is not None:
                return folder, path
        names = f" or in a folder {' or '.join(self.folders)} of it" if self.folders else ""
        raise ValueError(
            f"root must have {first.what} ({first.where}) in it{names}, got {str(top)!r} without it"
        )

    def found(self, root: Path, *others: Path) -> list[dict[str, Any]]:
        """Describe the parts and, for each, the file by which it is found, or None.

        They are looked for in the data set's folder, or the one that has most of them, and in
        `others`.
        """
        best: list[dict[str, Any]] = []
        for folder in self._candidates(root):
            places = (folder, *others)
            records = [
                {**record, "found": next((_name(p) for f in places if (p := part.find(f))), None)}
                for record, part in zip(self.records(), self.parts, strict=True)
            ]
            if records[0]["found"]:
                return records
            if not best or _num_found(records) > _num_found(best):
                best = records
        return best

    def records(self) -> list[dict[str, Any]]:
        """Describe the parts as entries of JSON."""
        return [dataclasses.asdict(part) for part in self.parts]

    def tree(self, found: list[dict[str, Any]] | None = None) -> str:
        """Write the expected files; with the result of `found`, with a mark for each part.

        Parts that are found have a tick and the place where they are, the others a cross and all
        places where they may be; optional ones that are missing have a dash.
        """
        usual, *names = self.folders or ("folder",)
        lines = [f"{usual}/{'   (or ' + '/, '.join(names) + '/)' if names else ''}"]
        records = found if found is not None else self.records()
        for i, record in enumerate(records):
            last = i == len(records) - 1
            place = record.get("found")
            mark = "" if found is None else "✓ " if place else "– " if record["optional"] else "✗ "
            what = record["what"] + (" (optional)" if record["optional"] else "")
            lines.append(f"{'└── ' if last else '├── '}{mark}{what}")
            bar = "    " if last else "│   "
            homes = [home or "." for home in record["homes"]]
            words = [f"{'or ' if k else ''}{word}" for k, word in enumerate(record["places"])]
            words += [f"in {', '.join(homes)}"] if homes != ["."] else []
            lines += [f"{bar}    {word}" for word in ([place] if place else words)]
        return "\n".join(lines)

    def _candidates(self, root: Path, levels: int = 2) -> Iterator[Path]:
        """Give the root, the folders in it that have one of the names, and those in these."""
        yield root
        if not levels:
            return
        order = {_plain(name): i for i, name in enumerate(self.folders)}
        inner = [path for path in root.iterdir() if _plain(path.name) in order and path.is_dir()]
        for path in sorted(inner, key=lambda path: (order[_plain(path.name)], path.name)):
            yield from self._candidates(path, levels - 1)


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name.lower())


def _name(path: Path) -> str:
    return os.path.normpath(path)


def _num_found(records: list[dict[str, Any]]) -> int:
    return sum(record["found"] is not None for record in records)

"""A data set: pairs in a fixed order with true poses, the depth of their views, and its files."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manymatch.geometry.camera import Camera
from manymatch.io.files import as_folder
from manymatch.io.pairs import Pair
from manymatch_lab.checks import (
    BoolArray,
    FloatArray,
    count,
    float_array,
    integer,
    read_only,
    refusal,
)

_TOLERANCE = 1e-6
#: Images that a check looks for: enough to meet every scene, few enough for a slow disk.
_SPREAD = 200


@dataclasses.dataclass(frozen=True, eq=False)
class DepthView:
    """The surface that one image of a pair shows."""

    #: (H, W): depth z along the optical axis in metres at the pixel centres; NaN where it is
    #: unknown. Values that are not positive or not finite become NaN.
    depth: NDArray[np.float32]
    mask: BoolArray | None  # (H, W): pixels of the object; None if all count
    camera: Camera  # in pixels of the depth image, which has the size of the photograph
    #: (4, 4) rigid map of this camera's coordinates in metres to a frame that both views share.
    to_common: FloatArray

    def __post_init__(self) -> None:
        depth = np.array(self.depth, dtype=np.float32, order="C")
        if depth.ndim != 2 or not depth.size:
            raise refusal("depth", "an (H, W) array of metres", self.depth)
        with np.errstate(invalid="ignore"):
            depth[~((depth > 0.0) & np.isfinite(depth))] = np.nan
        object.__setattr__(self, "depth", read_only(depth))
        if self.mask is not None:
            mask = np.array(self.mask)
            if mask.shape != depth.shape or mask.dtype != np.bool_:
                want = f"None or an array of booleans of the depth's shape {depth.shape}"
                raise refusal("mask", want, mask)
            object.__setattr__(self, "mask", read_only(mask))
        if not isinstance(self.camera, Camera):
            raise refusal("camera", "a Camera", self.camera)
        if self.camera.width is not None and (self.camera.height, self.camera.width) != depth.shape:
            raise ValueError(
                f"camera must be of the depth's size {depth.shape[1]} x {depth.shape[0]}, "
                f"got {self.camera.width} x {self.camera.height}"
            )
        object.__setattr__(self, "to_common", read_only(rigid(self.to_common, "to_common")))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.depth.shape[1], self.depth.shape[0]

    def points(self, pixels: ArrayLike) -> FloatArray:
        """Compute the points (N, 3) of the common frame, in metres, that pixels (N, 2) show.

        The centre of the top-left pixel is (0, 0). A point is on the ray of the pixel itself, at
        the depth of the nearest pixel centre; NaN where that is outside the image or the mask, or
        has no depth.
        """
        xy = float_array(pixels, "pixels", "an (N, 2) array of pixels", (None, 2), finite=False)
        width, height = self.size
        # NaN fails both comparisons; halves go up, the last half pixel still counts.
        inside: BoolArray = np.all((xy >= -0.5) & (xy < (width - 0.5, height - 0.5)), axis=1)
        nearest = np.floor(np.where(inside[:, None], xy, 0.0) + 0.5).astype(np.int64)
        column, row = nearest[:, 0], nearest[:, 1]
        z = np.where(inside, self.depth[row, column], np.nan).astype(np.float64)
        if self.mask is not None:
            z[~self.mask[row, column]] = np.nan
        local = np.column_stack([self.camera.unproject(xy) * z[:, None], z])
        moved: FloatArray = local @ self.to_common[:3, :3].T + self.to_common[:3, 3]
        moved[~np.isfinite(moved).all(axis=1)] = np.nan
        return moved

    def __repr__(self) -> str:
        known = np.isfinite(self.depth)
        if self.mask is not None:
            known &= self.mask
        return f"DepthView({self.size[0]} x {self.size[1]}, {known.mean():.0%} with depth)"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset(Sequence[Pair]):
    """Pairs of images with known pose."""

    name: str  # as the registry calls it: lower case, hyphens
    title: str  # as papers call it
    #: In the order of the lists. ``pair.extra["seed_index"]`` counts from 1 within each list;
    #: ``extra["bin"]`` and ``extra["angle_deg"]`` are there where the data set has such bins.
    pairs: tuple[Pair, ...]
    #: Working size of the first and second images where it is not the preset's, as `Matcher.match`
    #: takes it; 0 keeps the images' own size.
    longest0: int | None = None
    longest1: int | None = None
    #: Reads the depth of image 0 or 1 of a pair; both views of a pair have the same common frame.
    depth: Callable[[Pair, int], DepthView] | None = None
    notes: tuple[str, ...] = ()  # what one should know before comparing numbers
    #: Whether the pairs are the paper's, by the SHA-256 of the list; None if that is unknown.
    paper_list: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple(self.pairs))
        object.__setattr__(self, "notes", tuple(self.notes))
        for pair in self.pairs:
            if not isinstance(pair, Pair):
                raise refusal("pairs", "a sequence of Pair", pair)
        for name in ("longest0", "longest1"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, 0)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Pair, ...]: ...
    def __getitem__(self, index: int | slice) -> Pair | tuple[Pair, ...]:
        return self.pairs[index]

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def set_name(self) -> str:
        """Name under which results are stored; for a folder, the name of that folder."""
        return self.title if self.name == "folder" else self.name

    def require_truth(self) -> None:
        """Raise `ValueError` unless every pair has its true pose."""
        without = [pair for pair in self.pairs if not pair.has_truth]
        if without:
            raise ValueError(
                f"set must have the true pose of every pair, got {self.set_name!r} without that of "
                f"{len(without):,} of {len(self.pairs):,}, the first {without[0].name0} and "
                f"{without[0].name1}; manymatch batch needs none"
            )

    def __repr__(self) -> str:
        depth = ", depth" if self.depth else ""
        return f"Dataset({self.name}: {count(len(self.pairs), 'pair')}{depth})"


def rigid(value: object, name: str) -> FloatArray:
    """Check a (4, 4) rigid transform."""
    want = "a rigid 4x4 transform"
    T = float_array(value, name, want, (4, 4))
    R = T[:3, :3]
    off = max(np.max(np.abs(R.T @ R - np.eye(3))), np.max(np.abs(T[3] - (0.0, 0.0, 0.0, 1.0))))
    if not off <= _TOLERANCE or np.linalg.det(R) < 0:
        raise ValueError(f"{name} must be {want} within {_TOLERANCE:g}, got {T.tolist()}")
    return T


@dataclasses.dataclass(frozen=True)
class LayoutPart:
    """One part of a data set's files."""

    what: str  # in a few words
    #: Names or patterns (``*``) of files, the preferred one first; one of them is enough.
    places: tuple[str, ...]
    #: Folders below that of the data set in which they may be, with a slash at the end; "" is the
    #: data set's folder itself.
    homes: tuple[str, ...] = ("",)
    optional: bool = False  # whether the data set can be used without it

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
    """The files of a data set."""

    #: What the data set's folder is usually called; capital letters and ``-_.`` do not matter. A
    #: root may be that folder, under any name, or a folder that has one of these names in it.
    folders: tuple[str, ...]
    #: What is in it. A folder that has the first part is the data set's.
    parts: tuple[LayoutPart, ...]

    def locate(self, root: object, name: str) -> tuple[Path, Path]:
        """Return the data set's folder and the file that is its first part.

        The folder is the root, or the first below it with one of the names. If none of them has
        the first part, the error says which names and places were tried.
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
        tried = []
        for folder in self._candidates(root):
            records = self.records()
            for record, part in zip(records, self.parts, strict=True):
                paths = (path for place in (folder, *others) if (path := part.find(place)))
                record["found"] = next(map(os.path.normpath, paths), None)
            if records[0]["found"]:
                return records
            tried.append(records)
        return max(tried, key=lambda records: sum(bool(part["found"]) for part in records))

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
            homes = [home or "." for home in record["homes"]]
            words = [f"{'or ' if k else ''}{word}" for k, word in enumerate(record["places"])]
            words += [f"in {', '.join(homes)}"] if homes != ["."] else []
            bar = "    " if last else "│   "
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


def root_folder(root: object, name: str) -> Path:
    """Check the folder a data set is in."""
    if root is None:
        raise ValueError(
            f"root must be the folder of {name}, got None "
            f"(`manymatch datasets {name}` says what it has to contain)"
        )
    return as_folder(root, "root")


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set without reading it."""

    name: str  # as commands call it
    title: str  # as papers call it
    about: str  # what it shows, in a few words
    get: str  # where it comes from and under which terms
    layout: Layout  # the files that it is expected to have
    load: Callable[..., Dataset]  # ``load(root, **options)`` reads the pairs
    #: ``check(root, **options)`` returns a sentence that names the first missing thing, or None. By
    #: default the lists are read, images spread over the whole data set must exist, the depth of a
    #: few pairs must be readable, and the number of pairs must be right.
    check: Callable[..., str | None] | None = None
    num_pairs: int | None = None  # of the complete data set
    options: tuple[str, ...] = ()  # that `load` takes besides the root
    other_counts: tuple[int, ...] = ()  # of pairs, in other published lists of the data set

    def first_fault(self, root: object, **options: Any) -> str | None:
        """Say in a sentence what is the first thing missing below a root, or None."""
        if self.check is not None:
            return self.check(root, **options)
        try:
            dataset = self.load(root, **options)
            for pair in spread(dataset.pairs):
                for path in (pair.path0, pair.path1):
                    if not path.is_file():
                        return f"the image {path} is missing"
            deep = [pair for pair in dataset.pairs if pair.extra.get("depth", True)]
            for pair in spread(deep, 6) if dataset.depth is not None else ():
                for side in (0, 1):
                    dataset.depth(pair, side)  # type: ignore[misc]
        except ValueError as error:
            return str(error)
        counts = (self.num_pairs, *self.other_counts)
        if self.num_pairs is None or len(dataset) in counts:
            return None
        wanted = " or ".join(f"{number:,}" for number in counts)
        return f"the lists of {dataset.title} have {len(dataset):,} pairs instead of {wanted}"


def published(family: str, load: Callable[..., Dataset]) -> tuple[DatasetInfo, ...]:
    """Make the entries of a family of data sets by ``published.toml``.

    Where a family has several sets, `load` takes the name of the set first.
    """
    path = resources.files("manymatch_lab.datasets") / "published.toml"
    facts = tomllib.loads(path.read_text(encoding="utf-8"))[family]
    infos = []
    for one in facts["sets"]:

        def named(words: Sequence[str], one: dict[str, Any] = one) -> tuple[str, ...]:
            return tuple(word.format_map(one) for word in words)

        parts = tuple(
            LayoutPart(
                part["what"],
                named(part["places"]),
                named(part.get("homes", [""])),
                part.get("optional", False),
            )
            for part in [*facts["parts"], *one.get("parts", ())]
        )
        infos.append(
            DatasetInfo(
                *(one["name"], one["title"], one["about"], facts["get"]),
                Layout(tuple(facts["folders"]), parts),
                load if len(facts["sets"]) == 1 else functools.partial(load, one["name"]),
                num_pairs=one.get("pairs"),
                options=tuple(facts.get("options", ())),
                other_counts=tuple(facts.get("other_counts", ())),
            )
        )
    return tuple(infos)


def spread(items: Sequence[Any], count: int = _SPREAD) -> list[Any]:
    """Take up to `count` items, evenly, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.unique(np.linspace(0, len(items) - 1, count).round().astype(int))]

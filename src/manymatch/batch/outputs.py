"""What is made of the parts of a batch: tables, matches by pair, files for other tools, a page."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import json
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import count, refusal, require
from manymatch.batch import CAMERA_PER
from manymatch.batch.focals import FOCAL_COLUMNS, shared_focals
from manymatch.batch.parts import FORMAT, RUN, Run, read_run
from manymatch.batch.work import (
    ARRAYS,
    COLUMNS,
    ERROR,
    ROTATION,
    TRANSLATION,
    VERDICTS,
    pair_file,
)
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch.io.files import (
    as_path,
    make_folder,
    read_text,
    reading,
    whole_file,
    write_text,
    write_whole,
)
from manymatch.io.image import load_image
from manymatch.io.matches import ImageRecord, PairMatches, alternatives_of
from manymatch.io.pairs import numbered, posed
from manymatch.matcher.match_result import FORMATS, WRITERS, check_formats
from manymatch.viz.figure import screen_image
from manymatch.viz.report import embedded_jpeg, page_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from manymatch._validate import IndexArray
    from manymatch.batch import CameraPer
    from manymatch.batch.focals import SharedFocal
    from manymatch.io.pairs import Pair
    from manymatch.matcher.config import MatcherConfig

#: Formats of the matches of a batch, and those that take any pairs.
BATCH_FORMATS = ("parquet", *FORMATS, "html")
_ANY_PAIRS = ("parquet", "npz", "html")
# Rows that become Python objects at once, and rows that are sorted at once.
_CHUNK, _STRETCH = 1024, 20_000
# Parts with matches that a reader holds.
_HELD = 32
# How a cell begins that a spreadsheet may run, and how one that was changed does.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
# Names in quotes and numbers: sentences that differ only there say the same about several pairs.
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:[.,]\d+)*")
# Pairs that the page shows, and lines of a picture.
_MOST_PAIRS, _MOST_LINES = 300, 100
# Height of the images of a picture, width of a small one, and its bytes, in a page of some MB.
_HEIGHT, _WIDTH, _BYTES = 400, 320, 16_000
_FACTS = ("name0", "name1", "verdict", "reason", "error")


def columns(*, matches: bool = False) -> dict[str, Any]:
    """Columns of the tables of a batch, or of its parts with `matches`, with their types."""
    found: dict[str, Any] = dict(COLUMNS)
    if matches:
        arrow = require("pyarrow", "a batch", "images")
        found |= {
            name: arrow.list_(arrow.type_for_alias(kind)) for name, (kind, _) in ARRAYS.items()
        }
        found |= {"source_names": arrow.list_(arrow.string()), "settings": "string"}
    return found


# --------------------------------------------------------------------------------- tables


def rows_in_order(run: Run, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Go through the rows of all parts by index; rows wait in files, one for some indices."""
    arrow = require("pyarrow", "a batch", "images")
    dataset = require("pyarrow.dataset", "a batch", "images")

    def batches() -> Iterator[Any]:
        for _, table in run.tables(names):
            stretch = arrow.array(table["index"].to_numpy() // _STRETCH)
            yield from table.append_column("stretch", stretch).to_batches()

    kept = {name: run.columns[name] for name in dict.fromkeys(["index", *names])}
    with tempfile.TemporaryDirectory(prefix="manymatch-") as place:
        dataset.write_dataset(
            batches(),
            place,
            schema=arrow.schema({**kept, "stretch": "int64"}),
            format="feather",
            partitioning=["stretch"],
            min_rows_per_group=_CHUNK,
        )
        for path in sorted(Path(place).iterdir(), key=lambda path: int(path.name)):
            rows = dataset.dataset(path, format="feather").to_table().sort_by("index")
            for start in range(0, len(rows), _CHUNK):
                yield from rows.slice(start, _CHUNK).to_pylist()


def write_tables(
    folder: Path,
    columns: Mapping[str, str],
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    header: Mapping[str, Any],
) -> list[Path]:
    """Write ``pairs.csv`` and ``pairs.parquet``, whose metadata are the header as JSON.

    Unknown values are empty or null; numbers are not rounded. A spreadsheet takes a text that
    begins with ``=``, ``+``, ``-``, ``@``, a tab or the end of a line for a formula, and names of
    files come from anywhere. In the CSV file such a text gets a ``'`` in front, and so does one
    that begins with it.
    """
    arrow = require("pyarrow", "a Parquet table", "images")
    parquet = require("pyarrow.parquet", "a Parquet table", "images")
    described = arrow.schema(dict(columns), metadata={"manymatch": json.dumps(header)})
    files = [folder / "pairs.csv", folder / "pairs.parquet"]
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(whole_file(path)) for path in files]
        text = stack.enter_context(places[0].open("x", encoding="utf-8", newline=""))
        writer = csv.writer(text, lineterminator="\n")
        table = stack.enter_context(parquet.ParquetWriter(str(places[1]), described))
        writer.writerow(columns)
        chunk: list[Mapping[str, Any]] = []
        for row in rows():
            writer.writerow([_cell(row.get(name)) for name in columns])
            chunk.append(row)
            if len(chunk) == _CHUNK:
                table.write_table(arrow.Table.from_pylist(chunk, schema=described))
                chunk = []
        table.write_table(arrow.Table.from_pylist(chunk, schema=described))
    return files


def earlier_rows(folder: Path) -> int:
    """Return how many pairs were finished when the tables of a batch were last written."""
    try:
        found = json.loads(read_text(folder / "summary.json", "a summary"))["finished"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON document for people and machines."""
    write_text(path, f"{json.dumps(record, indent=2, allow_nan=False)}\n")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why pairs failed, and how many; the sentence is that of the first of them."""

    sentence: str
    count: int


def count_reasons(sentences: Iterable[str]) -> list[Reason]:
    """Group the errors of pairs that failed, the most frequent reason first.

    Sentences that differ only in names in quotes and in numbers are one reason.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        found[_PARTICULARS.sub("", sentence)][sentence] += 1
    reasons = [
        Reason(next(iter(alike)) + " (and others alike)" * (len(alike) > 1), alike.total())
        for alike in found.values()
    ]
    return sorted(reasons, key=lambda reason: -reason.count)


def reasons_sentence(reasons: Sequence[Reason], failed: str, total: int, noun: str = "pair") -> str:
    """Say why some of a number of pairs failed: "2 of 5 pairs could not be run: no file."."""
    number = sum(reason.count for reason in reasons)
    begin = f"{number:,} of {count(total, noun)} {failed}"
    if len(reasons) == 1:
        text = f"{begin}: {reasons[0].sentence}"
    else:
        text = f"{begin}; {'; '.join(f'{count(r.count, noun)}: {r.sentence}' for r in reasons)}"
    return text if text.endswith(("?", ".")) else f"{text}."


# --------------------------------------------------------------------------------- matches


class MatchStore:
    """Matches of many pairs, each read when it is asked for.

    ``store[17]`` are the matches of the pair with this index in its batch, a `PairMatches`, and
    `by_names` those of two images. Iterating gives the indices, `items` all pairs one at a time.
    A pair that has no matches, as it could not be tried or was not finished when the store was
    opened, is a `KeyError`.
    """

    def __init__(self, run: Run, common: Mapping[str, Any], camera_per: CameraPer) -> None:
        arrow = require("pyarrow", "a batch", "images")
        self._common, self._part = common, functools.lru_cache(_HELD)(run.read)
        self._run, self._camera_per = run, camera_per
        empty = arrow.schema({"index": "int64", "name0": "string", "name1": "string"})
        found, places = [empty.empty_table()], [np.zeros((0, 2), dtype=np.int64)]
        self.rows = 0
        for block in run.finished():
            table = run.read(block, ("index", "name0", "name1", "verdict"))
            self.rows += len(table)
            tried = np.flatnonzero(np.array(table["verdict"].to_pylist()) != ERROR)
            found.append(table.take(tried).select(empty.names))
            places.append(np.column_stack([np.full(len(tried), block), tried]))
        order = np.argsort(arrow.concat_tables(found)["index"].to_numpy(), kind="stable")
        self._named = arrow.concat_tables(found).take(order).combine_chunks()
        self._places = np.concatenate(places)[order]
        #: Indices of the pairs that have matches, in increasing order.
        self.indices: IndexArray = self._named["index"].to_numpy()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({count(len(self), 'pair')})"

    @property
    def as_stored(self) -> list[int]:
        """Indices in the order of the parts, in which each part is read once."""
        return self.indices[np.lexsort(self._places.T[::-1])].tolist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices.tolist())

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int | np.integer) and index in self.indices

    def __getitem__(self, index: int) -> PairMatches:
        return self.pair(index)[1]

    def by_names(self, name0: str, name1: str) -> PairMatches:
        """Return the matches of two images, in this order; of several such pairs the first."""
        compute = require("pyarrow.compute", "a batch", "images")
        both = (
            compute.equal(self._named[f"name{side}"], n) for side, n in enumerate((name0, name1))
        )
        found = np.flatnonzero(compute.and_(*both).to_numpy())
        if not found.size:
            raise KeyError((name0, name1))
        return self[int(self.indices[found[0]])]

    def items(self) -> Iterator[tuple[int, str, str, PairMatches]]:
        """Go through index, names and matches of all pairs, one at a time."""
        for index in self:
            row, found = self.pair(index)
            yield index, row["name0"], row["name1"], found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._part.cache_clear()

    def pair(self, index: int) -> tuple[dict[str, Any], PairMatches]:
        """Return the row and the matches of a pair; its part may be damaged (`DamagedPart`)."""
        place = int(np.searchsorted(self.indices, index))
        if place == len(self) or self.indices[place] != index:
            raise KeyError(index)
        block, place = self._places[place].tolist()
        (part,) = self._part(block).slice(place, 1).to_batches()
        (row,) = part.drop_columns([*ARRAYS]).to_pylist()
        columns = {name: part[name][0].values for name in ARRAYS}
        arrays = {
            name: column.to_numpy(zero_copy_only=False).reshape(ARRAYS[name][1])
            for name, column in columns.items()
            if column is not None
        }
        R, t = ([row[name] for name in names] for names in (ROTATION, TRANSLATION))
        found = PairMatches(
            arrays["points0"],
            arrays["points1"],
            arrays["match_indices"],
            arrays.get("match_probability"),
            RelativePose(np.reshape(R, (3, 3)), np.array(t)) if row["success"] else None,
            config={**self._common, **json.loads(row.pop("settings"))},
            alternatives=alternatives_of(arrays),
            source=arrays.get("match_source"),
            source_names=tuple(row.pop("source_names") or ()),
        )
        return {name: value for name, value in row.items() if value is not None}, found

    @functools.cached_property
    def _focals(self) -> dict[str, SharedFocal]:
        return shared_focals(self._run.rows(FOCAL_COLUMNS))

    def images(self, row: Mapping[str, Any], found: PairMatches) -> list[ImageRecord]:
        """Make the records of the images of a pair, as files of other tools know them.

        An image has one camera in all of its pairs; if its focal length was unknown, that of EXIF,
        or that of `shared_focals` of all rows.
        """
        records = []
        for side, own in enumerate(_cameras(found)):
            camera, group = own, row.get(f"camera{side}_group")
            known = row.get(f"camera{side}_source") != "found"
            if group is not None:
                focal = row[f"prior_focal{side}_px"]
                if group in self._focals and not (known and self._camera_per == "pair"):
                    focal = self._focals[group].focal_px
                camera = own.with_focal(focal)
            records.append(
                ImageRecord(
                    row[f"name{side}"],
                    camera=camera,
                    focal_known=known,
                    orientation=(found.config or {})["orientations"][side],
                    camera_name=None if self._camera_per == "pair" else group,
                )
            )
        return records


def read_matches(path: object) -> MatchStore:
    """Open the matches of a batch, to read them pair by pair.

    Parameters
    ----------
    path : path
        The folder of a batch, or of a shard, that keeps its matches, which it does if any format
        was asked for; it may still be running.

    Returns
    -------
    MatchStore
        ``store[index]`` and ``store.by_names(name0, name1)`` are `PairMatches`; ``store.items()``
        goes through all pairs in bounded memory.

    Raises
    ------
    ValueError
        If there are no matches at this place, or they are damaged; the command that made the batch
        does damaged parts again.

    Examples
    --------
    >>> with read_matches("out/batch") as store:                      # doctest: +SKIP
    ...     pair = store.by_names("a.jpg", "b.jpg")
    ...     pair.keypoints0[pair.matches[:, 0]], pair.pose
    """
    folder = as_path(path)
    known = read_run(folder) if folder.is_dir() else None
    if known is None:
        raise refusal("path", "the folder of a batch that keeps its matches", str(folder))
    with reading(folder, "a batch that keeps its matches", ValueError):
        if known["format"] != FORMAT:
            raise ValueError(f"it has format {known['format']}, and this version reads {FORMAT}")
        if known.get("matches") is not True:
            raise ValueError("its batch did not keep the matches, which --format does")
        for name, kind, want in (("parts", str, "a text"), ("provenance", dict, "a dict")):
            if not isinstance(known.get(name), kind):
                raise refusal(f"{RUN}: {name!r}", want, known.get(name))
    run = Run(folder, known, None, columns(matches=True), known["parts"])
    store = MatchStore(run, known["provenance"], known.get("camera_per", CAMERA_PER[0]))
    if store.rows < (finished := earlier_rows(folder)):
        raise ValueError(
            f"path must be a whole batch, got {str(folder)!r} (its parts have {store.rows:,} of "
            f"{count(finished, 'finished pair')}; the command that made it does the others again)"
        )
    return store


# --------------------------------------------------------------------------------- formats


def checked_formats(
    formats: Iterable[str], pairs: Sequence[Pair], config: MatcherConfig | None = None
) -> tuple[str, ...]:
    """Check in which formats matches are written, and whether these can hold the pairs.

    Files of hloc and COLMAP know an image by its name and have its keypoints and its camera once.
    The names must therefore be paths below a folder, each of one file, one quarter turn and one
    camera, and keypoints must not belong to a pair.
    """
    listed, numbers = numbered(pairs)
    names = dict.fromkeys(image.name for image in listed)
    chosen = check_formats(formats, names, "pairs", BATCH_FORMATS)
    others = [form for form in chosen if form not in _ANY_PAIRS]
    if not others:
        return chosen
    for source in () if config is None else config.sources:
        if source.takes_images:
            raise ValueError(
                "formats must be parquet or npz where a source matches images without keypoints of "
                f"their own ({source.name}), as hloc and COLMAP have one list of keypoints an "
                f"image, got {others[0]!r}"
            )
    purpose = f"to be written as {' and '.join(chosen)}"

    def same(known: dict[str, Any], key: str, value: Any, what: str) -> None:
        if known.setdefault(key, value) != value:
            given = f"got {value!r} after {known[key]!r}"
            raise ValueError(f"pairs must have {what} {purpose}, {given}")

    images, flat, cameras = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for image in listed:
        same(images, image.name, image, f"one file and one quarter turn by the name {image.name!r}")
        if "h5" in chosen:
            what = "names that differ where hloc has - for /"
            same(flat, image.name.replace("/", "-"), image.name, what)
    twice = np.flatnonzero(numbers[:, 0] == numbers[:, 1])
    if twice.size:
        raise ValueError(
            f"pairs must have two images {purpose}, got {pairs[int(twice[0])].name0!r} twice"
        )
    # Where no pair has a camera there is nothing to compare.
    for pair in pairs if "colmap-db" in chosen and len(posed(pairs)) else ():
        for name, camera in ((pair.name0, pair.camera0), (pair.name1, pair.camera1)):
            same(cameras, name, camera, f"one camera of {name!r}")
            if camera is not None:
                camera.to_colmap()  # an error if COLMAP does not have it
    return chosen


def write_outputs(
    store: MatchStore,
    run: Run,
    pairs: Sequence[Pair],
    formats: Sequence[str],
) -> list[Path]:
    """Write the matches of all pairs in formats of `run_batch`; return files of several pairs."""
    folder = run.folder
    places = {"npz": folder / "matches", "colmap": folder / "colmap"}
    with contextlib.ExitStack() as stack:
        writers = []
        for form in formats:
            make_folder(places.get(form, folder))
            if form in WRITERS:
                writers.append(stack.enter_context(WRITERS[form](places.get(form, folder))))
        for index in store if writers or "npz" in formats else ():
            row, found = store.pair(index)
            if "npz" in formats:
                found.write_npz(pair_file(places["npz"], index, pairs[index], "npz"))
            if writers:
                image0, image1 = store.images(row, found)
                # Only a pose whose matches can be trusted is given to mappers.
                pose = found.pose if row["trusted"] else None
                found = dataclasses.replace(found, pose=pose, cameras=_cameras(found))
                for writer in writers:
                    writer.add(image0, image1, found)
    files = [path for writer in writers for path in writer.files.values()]
    return [*files, _write_gallery(store, run, pairs, folder)] if "html" in formats else files


def _cameras(found: PairMatches) -> tuple[Camera, Camera]:
    camera0, camera1 = map(Camera.from_dict, (found.config or {})["cameras"])
    return camera0, camera1


# --------------------------------------------------------------------------------- the page


def _write_gallery(store: MatchStore, run: Run, pairs: Sequence[Pair], folder: Path) -> Path:
    """Write ``index.html``, and ``pictures/`` to which it links.

    The pairs are sorted by verdict, best first. Of many pairs some of every verdict are shown.
    """
    counts: Counter[str] = Counter()
    shown: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_in_order(run, _FACTS):
        counts[row["verdict"]] += 1
        if len(shown[row["verdict"]]) < _MOST_PAIRS:
            shown[row["verdict"]].append(
                {n: value for n, value in row.items() if value is not None}
            )
    most = _MOST_PAIRS // max(1, len(shown))
    make_folder(folder / "pictures")
    groups = []
    for verdict in (name for name in VERDICTS if name in shown):
        rows = shown[verdict][:most]
        for row in rows if verdict != ERROR else ():
            pair, found = pairs[row["index"]], store[row["index"]]
            try:
                picture = _picture(pair, found.keypoints0, found.keypoints1, found.matches)
            except ValueError:  # an image is no longer there
                continue
            path = pair_file(folder / "pictures", row["index"], pair, "jpg")
            write_whole(path, functools.partial(picture.save, format="JPEG", quality=85))
            row["link"] = f"pictures/{path.name}"
            small = picture.resize((_WIDTH, max(1, picture.height * _WIDTH // picture.width)))
            row["small"] = embedded_jpeg(small, _BYTES)
        groups.append({"verdict": verdict, "count": counts[verdict], "rows": rows})
    page = page_template("gallery.html").render(groups=groups, total=counts.total())
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _picture(pair: Pair, points0: Any, points1: Any, matches: Any) -> Any:
    """Draw the images of a pair side by side, with lines for matches."""
    Image, ImageDraw = (require(f"PIL.{name}", "html", "images") for name in ("Image", "ImageDraw"))
    photos, ends = [], []
    for path, points, column in ((pair.path0, points0, 0), (pair.path1, points1, 1)):
        image = load_image(path)
        height, width = image.shape[:2]
        size = max(1, min(4 * _HEIGHT, round(width * _HEIGHT / height))), _HEIGHT
        photos.append(screen_image(image, size, "image"))
        ends.append((points[matches[:, column]] + 0.5) * np.divide(size, (width, height)))
    ends[1] += (photos[0].shape[1], 0)
    sheet = Image.fromarray(np.hstack(photos))
    pen = ImageDraw.Draw(sheet)
    some = np.linspace(0, len(matches) - 1, min(_MOST_LINES, len(matches))).astype(int)
    for number, (start, end) in enumerate(zip(ends[0][some], ends[1][some], strict=True)):
        pen.line([*start, *end], fill=f"hsl({360 * number // len(some)}, 90%, 55%)")
    return sheet

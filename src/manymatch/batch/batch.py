"""Many pairs of images: a table with one row per pair, resumable, in bounded memory."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import re
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch._validate import choice, count, integer, refusal
from manymatch.batch import CAMERA_PER, CameraPer
from manymatch.batch.focals import FOCAL_COLUMNS, FirstPass, groups_of
from manymatch.batch.outputs import (
    MatchStore,
    Reason,
    checked_formats,
    columns,
    count_reasons,
    rows_in_order,
    write_json,
    write_outputs,
    write_tables,
)
from manymatch.batch.parts import cut, num_pairs, num_workers, open_run, read_run, run_blocks
from manymatch.batch.ray_engine import RayBlocks, ray_cluster
from manymatch.batch.work import ERROR, VERDICTS, BlockWork, PairWork
from manymatch.features.device import WITHOUT_NETWORK, choose_device, library_versions
from manymatch.io.files import as_path, output_folder
from manymatch.io.pairs import Pair, PairList, exhaustive_pairs, numbered, posed, read_pairs
from manymatch.io.remote import masked
from manymatch.matcher.cameras import check_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.match_result import provenance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import IndexArray
    from manymatch.batch.parts import Outcome, Run, RunProgress
    from manymatch.batch.ray_engine import RayCluster

# Pairs of a block at most, so that it takes less than about 20 s (networks are slow without a GPU),
# and blocks at least where there are fewer pairs, so that all workers are busy.
_BLOCK, _BLOCK_OF_NETWORKS, _BLOCKS = 32, 8, 64
# Where one camera took most photographs, about this number of pairs decides about its focal length,
# if there are many more, and if this relative standard deviation says that they are enough.
_SAMPLE, _SAMPLE_SIGMA = 1_000, 0.01
_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclasses.dataclass(frozen=True)
class BatchSummary:
    """Summary of a batch: counts and the files that were written.

    `total` pairs were asked for, `finished` of them have a row, `computed` rows are new, and
    `with_pose` pairs have a pose of any verdict. `unreadable` of their `images` cannot be read.
    `counts` are pairs by verdict: those of `Confidence`, where "failed" is without a pose, and
    "error" for pairs that could not be tried; `reasons` say why, the most frequent first. `files`
    are tables and files with the matches of all pairs, `seconds` the time of this run, and
    `interrupted` says whether Ctrl-C ended it.
    """

    folder: Path
    total: int
    finished: int
    computed: int
    with_pose: int
    counts: dict[str, int]
    seconds: float
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    interrupted: bool = False
    images: int = 0
    unreadable: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        files = [str(path) for path in self.files]
        return {**dataclasses.asdict(self), "folder": str(self.folder), "files": files}


def run_batch(
    pairs: object,
    images: object = None,
    out: object = "out/batch",
    config: MatcherConfig | str | None = None,
    *,
    workers: int = 0,
    device: str = "auto",
    offline: bool = False,
    cache: object = None,
    cameras: object = None,
    camera_per: CameraPer = "pair",
    formats: Iterable[str] = (),
    limit: int | None = None,
    shard: str | None = None,
    block: int | None = None,
    retry_errors: bool = False,
    memory_mb: int = 512,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[RunProgress], object] | None = None,
) -> BatchSummary:
    """Match many pairs, or continue a batch that was interrupted.

    The pairs are cut into blocks. The folder gets ``run.json``, which says what is computed, and
    ``parts/000123.parquet`` as each block is finished. Parts that exist are finished; the same call
    does the missing ones. At the end, or at Ctrl-C, ``pairs.csv``, ``pairs.parquet`` and
    ``summary.json`` are written from the parts, rows in the order of the pairs. Parts and tables
    are the same bytes however often a run was killed, with any number of workers.

    Parameters
    ----------
    pairs : path, PairList or iterable of Pair
        A list of pairs, as `read_pairs` reads it; a folder, for all pairs of its images; or pairs.
    images : path, optional
        Folder of the images of a list; by default that of the list.
    out : path
        Folder, made if it does not exist, or an address such as ``s3://bucket/run``. A folder with
        results of another configuration or of other pairs is refused. Two processes may share it.
    config : MatcherConfig, preset or .toml file, optional
        As `Matcher` takes it, as it does `device`, `offline` and `cache`.
    workers : int
        Blocks worked on at the same time, 0 for one per core; with Ray one per CPU of the cluster.
    cameras : optional
        Camera of every image whose pair has none: a COLMAP model, or one camera for all, as
        `Matcher.match` takes them. By default, and with "unknown", the focal lengths are found;
        by default those of EXIF are priors.
    camera_per : {"pair", "image", "folder", "all"}
        Which images have one unknown focal length: those of a pair; an image in all of its pairs;
        images of one size in a folder; all images of one size. But for "pair", the pairs are
        matched a second time, with the focal lengths that all pairs together give. A cache saves
        computing the features twice.
    formats : iterable of {"parquet", "npz", "h5", "colmap", "colmap-db", "html"}
        Also keep keypoints and matches in the parts, from which `manymatch.read_matches` reads them
        at any time ("parquet" is only that). When all pairs are finished, files are made of them:
        ``matches/<index>_<name0>_<name1>.npz`` for each pair; hloc's ``features.h5`` and
        ``matches.h5``; COLMAP's ``colmap/matches.txt`` with one text of keypoints per image;
        ``database.db`` for COLMAP's mappers; and ``index.html``, a page with pictures of up to 300
        pairs by verdict. Other formats can be asked for later. Where two images are paired twice,
        files of hloc and COLMAP have the first pair.
    limit : int, optional
        Only the first pairs; a later run without it continues with the others.
    shard : str, optional
        "3/16" does every sixteenth block, from the third on, for several machines. Shards are
        joined by copying their folders into one; the same call without `shard` then writes the
        tables and files. With another `camera_per` than "pair", shards are run and joined twice.
    block : int, optional
        Pairs of a block. By default at most 32, or 8 where networks run, and fewer where there are
        few pairs. What a killed run loses is one block per worker.
    retry_errors : bool
        Do blocks again that have pairs which could not be tried, as when a file was missing.
    memory_mb : int
        Features kept in memory for further pairs, in MB; with Ray in each worker.
    engine : {"local", "ray"}
        "local" has threads of this process, "ray" processes on the machines of a Ray cluster, which
        find the images, a cache and `out` under the same paths or addresses. Results are the same.
    address : str, optional
        Of the Ray cluster: "auto" for the one that this machine belongs to, or "host:port" of its
        head node. By default Ray is started on this machine and stopped at the end.
    progress : callable, optional
        Called with a `RunProgress` at the start and after every block.

    Raises
    ------
    ValueError
        If an argument is wrong or the folder holds results of another batch. A pair that cannot be
        matched is a row that says why. A damaged part is named; when it is removed, the same call
        does its block again.
    OSError, MemoryError
        If files cannot be written, or a block failed twice by a fault of the machine; the finished
        parts stay.
    RunInterrupted
        At Ctrl-C, when the tables have been written, with the `BatchSummary`.

    Examples
    --------
    >>> manymatch.run_batch("pairs.txt", "images", "out/batch", "classic").counts  # doctest: +SKIP
    {'solved': 31, 'likely': 6, 'uncertain': 2, ..., 'failed': 1, 'error': 0}
    """
    start = time.monotonic()
    listed = as_pairs(pairs, images)
    settings = MatcherConfig.of(config)
    total = num_pairs(len(listed), limit)
    chosen = checked_formats(formats, listed, settings)
    choice(camera_per, "camera_per", CAMERA_PER)
    folder = output_folder(out, "out")
    check_camera(cameras, "cameras")
    threads, (number, shards) = num_workers(workers), shard_of(shard)
    with contextlib.ExitStack() as stack:
        cluster = ray_cluster(engine, address, workers)
        if cluster is not None:
            stack.callback(cluster.close)
            device = cluster.device(device) if settings.needs_torch else "cpu"
        size, ends = cutting(folder, listed, total, block, network=settings.needs_torch)
        blocks = pair_blocks(listed, ends, size)
        header = {
            **_header(settings, listed, device, cameras),
            "camera_per": camera_per,
            "matches": bool(chosen),
            "block": size,
        }
        keep, memory = bool(chosen), integer(memory_mb, "memory_mb", 0)
        one = 1 if threads > 1 or cluster is not None else None
        work = PairWork(settings, device, offline, cache, cameras, camera_per, keep, memory, one)
        wanted = [place for place, items in enumerate(blocks) if (items < total).any()]
        own = [place for place in wanted if place % shards == number]
        more = {"ends": ends, "provenance": provenance_of(settings)}
        batch = _Batch(
            folder, listed, total, blocks, wanted, own, header, more, work, threads, cluster
        )
        batch.progress = progress
        return batch.execute(chosen, start, retry_errors=retry_errors)


@dataclasses.dataclass
class _Batch:
    """One call of `run_batch`, with everything checked.

    The blocks `wanted` have pairs below `total`, those of `own` belong to this shard as well.
    """

    folder: Path
    pairs: Sequence[Pair]
    total: int
    blocks: list[IndexArray]
    wanted: list[int]
    own: list[int]
    header: dict[str, Any]
    more: dict[str, Any]
    work: PairWork
    workers: int
    cluster: RayCluster | None
    progress: Callable[[RunProgress], object] | None = None
    computed: int = 0
    #: Whether pairs that could not be matched are tried again.
    retry: bool = False

    def execute(self, formats: Sequence[str], start: float, *, retry_errors: bool) -> BatchSummary:
        """Do the missing blocks, of the second pass as well, then write tables and files."""
        first, sample, self.retry = self._open("parts"), self._sample(), retry_errors
        remarks = list[str]()
        run, outcome = first, self._do(BlockWork(first, self.work, self.pairs), sample)
        if self.header["camera_per"] != "pair" and not outcome.interrupted:
            if first.missing(self.wanted if sample == self.own else sample):
                remarks.append(
                    "All pairs decide about focal lengths that pairs share: when the parts of all "
                    "shards are in one folder, the same command matches the pairs again."
                )
            else:
                run, outcome = self._second_pass(first, sample)
        files, found = self._write_tables(run, remarks)
        if formats and not outcome.interrupted:
            if not run.missing(self.wanted):
                store = MatchStore(run, self.more["provenance"], self.header["camera_per"])
                files += write_outputs(store, run, self.pairs, formats)
            elif len(self.own) < len(self.wanted):
                remarks.append(
                    "Files of the matches are written when the parts of all shards are in one "
                    "folder, by the same command without --shard."
                )
        summary = BatchSummary(
            folder=self.folder,
            computed=min(self.computed, found["finished"]),
            seconds=time.monotonic() - start,
            files=tuple(files),
            notes=tuple(remarks),
            interrupted=outcome.interrupted,
            **found,
        )
        write_json(self.folder / "summary.json", {**summary.to_dict(), **self.header})
        outcome.raise_stop(summary, summary.finished, summary.total)
        return summary

    def _open(self, name: str) -> Run:
        kept = columns(matches=self.header["matches"])
        more = {"parts": name, **self.more}
        return open_run(self.folder, self.header, self.blocks, kept, name, more)

    def _sample(self) -> list[int]:
        """Choose the blocks of the first pass: those of this shard or, of many, enough of them."""
        few = self.total < 2 * _SAMPLE or len(self.own) < len(self.wanted)
        if few or self.header["camera_per"] not in ("folder", "all"):
            return self.own
        return self.own[:: self.total // _SAMPLE]

    def _do(self, do_block: BlockWork, chosen: Sequence[int], label: str = "") -> Outcome:
        """Do those of the chosen blocks that are missing, and those to be tried again."""
        run = do_block.run
        there = sorted(set(chosen).intersection(run.finished()))
        tables = run.tables(("verdict",), there if self.retry else [])
        again = [block for block, table in tables if ERROR in table["verdict"].to_pylist()]
        blocks = run.sizes(sorted({*run.missing(chosen), *again}))
        do: Callable[[int], Mapping[str, int]] = do_block
        workers = self.workers
        if blocks and self.cluster is not None:
            do, workers = RayBlocks(self.cluster, do_block), self.cluster.workers()
        elif blocks:
            # A missing package or missing weights concern all pairs.
            self.work.load()
        earlier = sum(run.sizes(chosen).values()) - sum(blocks.values())
        outcome = run_blocks(
            blocks, do, workers=workers, progress=self.progress, earlier=earlier, label=label
        )
        self.computed = max(self.computed, outcome.computed)
        return outcome

    def _second_pass(self, first: Run, sample: list[int]) -> tuple[Run, Outcome]:
        """Match pairs again with the focal lengths of all pairs, which name the folder of parts.

        If a sample of the pairs does not determine the focal lengths of all cameras, the first pass
        is completed.
        """
        whole = sample == self.own
        tables = first.tables(("index", *FOCAL_COLUMNS), self.wanted if whole else sample)
        said = {row["index"]: row for _, table in tables for row in table.to_pylist()}
        found = FirstPass.of({i: row for i, row in said.items() if i < self.total}).focals
        enough = whole or all(
            group in found and found[group].sd_px <= _SAMPLE_SIGMA * found[group].focal_px
            for group in groups_of(said.values())
        )
        if enough:
            values = sorted((name, focal.focal_px, focal.sd_px) for name, focal in found.items())
            run = self._open(f"parts-{_hash(values)[:12]}")
            do_block = BlockWork(run, self.work, self.pairs, first, found)
            outcome = self._do(do_block, self.own, label="with shared focal lengths")
            if whole or outcome.interrupted or groups_of(run.rows(FOCAL_COLUMNS)) <= found.keys():
                return run, outcome
        outcome = self._do(BlockWork(first, self.work, self.pairs), self.own)
        if outcome.interrupted:
            return first, outcome
        return self._second_pass(first, self.own)

    def _write_tables(self, run: Run, remarks: list[str]) -> tuple[list[Path], dict[str, Any]]:
        """Write the tables of all rows, and count those of this shard's wanted pairs."""
        wanted = np.zeros(len(self.pairs), dtype=bool)
        for block in self.own:
            wanted[self.blocks[block]] = True
        wanted[self.total :] = False
        names = columns()
        verdicts, counts = Counter[str](dict.fromkeys(VERDICTS, 0)), Counter[str]()
        sentences, unreadable = list[str](), set[str]()

        def rows() -> Iterator[dict[str, Any]]:
            for row in rows_in_order(run, list(names)):
                yield row
                if not wanted[row["index"]]:
                    continue
                verdicts[row["verdict"]] += 1
                counts["posed"] += row["success"]
                if row["verdict"] == ERROR:
                    sentences.append(row["error"])
                    which = row["reason"] or ""
                    unreadable.update(row[f"name{n}"] for n in (0, 1) if f"image {n}" in which)
                if "found" in (row["camera0_source"], row["camera1_source"]):
                    counts["found"] += 1
                    counts["undetermined"] += row["focal_determined"] is False

        files = write_tables(self.folder, names, rows, self.header)
        if counts["found"]:
            remarks.append(
                f"In {counts['found']:,} of {count(verdicts.total(), 'pair')} a focal length was "
                "unknown and is found from the images, which do not determine it in "
                f"{counts['undetermined']:,}; cameras can be given."
            )
        return files, {
            "total": int(wanted.sum()),
            "finished": verdicts.total(),
            "with_pose": counts["posed"],
            "images": len(np.unique(numbered(self.pairs)[1][wanted])),
            "unreadable": len(unreadable),
            "counts": dict(verdicts),
            "reasons": tuple(count_reasons(sentences)),
        }


def as_pairs(pairs: object, images: object = None) -> Sequence[Pair]:
    """Return the pairs of a list, all pairs of a folder, or given pairs as a sequence."""
    if isinstance(pairs, str) or hasattr(pairs, "__fspath__"):
        place = as_path(pairs, "pairs")
        if not place.is_dir():
            return read_pairs(place, place.parent if images is None else images)
        if images is not None:
            raise ValueError(
                "--images must be left out where all pairs of a folder are matched, got "
                f"{str(images)!r}"
            )
        return exhaustive_pairs(place)
    if isinstance(pairs, PairList):
        return pairs
    listed: list[Any] = list(pairs)  # type: ignore[call-overload]
    for pair in listed:
        if not isinstance(pair, Pair):
            raise refusal("pairs", "Pair objects", pair)
    if not listed:
        raise refusal("pairs", "at least one pair", listed)
    return listed


# --------------------------------------------------------------- order, blocks and shards


def shard_of(text: object) -> tuple[int, int]:
    """Read "3/16" as the number of the first block, from 0, and the number of shards: (2, 16)."""
    if text is None:
        return 0, 1
    found = _SHARD.fullmatch(text) if isinstance(text, str) else None
    number, shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= shards:
        raise refusal("shard", 'a text such as "3/16", from "1/16" to "16/16"', text)
    return number - 1, shards


def cutting(
    folder: Path, pairs: Sequence[Pair], total: int, block: int | None, *, network: bool
) -> tuple[int, list[int]]:
    """Return the size of blocks, and where the stages of a batch end that were begun.

    A run with a limit is a stage of its own, so that it does exactly the first pairs.
    """
    known = read_run(folder) or {}
    most = _BLOCK_OF_NETWORKS if network else _BLOCK
    size = max(1, min(most, len(pairs) // _BLOCKS))
    if block is not None:
        size = integer(block, "block", 1)
    elif isinstance(known.get("block"), int):
        size = known["block"]
    ends = [end for end in known.get("ends", ()) if 0 < end <= len(pairs)]
    return size, ends if ends and ends[-1] >= total else [*ends, total]


def pair_blocks(pairs: Sequence[Pair], ends: Sequence[int], size: int) -> list[IndexArray]:
    """Cut each stage of a batch into blocks."""
    stages = itertools.pairwise([0, *ends])
    return [one for a, b in stages for one in cut(a + local_order(pairs[a:b]), size)]


def local_order(pairs: Sequence[Pair]) -> IndexArray:
    """Order pairs so that neighbours in it have images in common, for memory and for machines.

    Images are numbered by a breadth-first search of the graph whose edges are the pairs, and pairs
    follow a Z-order curve over the two numbers of their images. Any stretch of it then
    needs few images, a thousand pairs as well as a sixteenth of all. This holds for all pairs of a
    folder, for a sequence and for neighbours that a retrieval found, in any order of the list.
    """
    images, numbers = numbered(pairs)
    neighbours: list[list[int]] = [[] for _ in images]
    for first, second in zip(*numbers.T.tolist(), strict=True):
        neighbours[first].append(second)
        neighbours[second].append(first)
    places: dict[int, int] = {}
    for root in range(len(images)):
        waiting = deque([root])
        while waiting:
            image = waiting.popleft()
            if image not in places:
                places[image] = len(places)
                waiting.extend(neighbours[image])
    place = np.array([places[image] for image in range(len(images))])
    low, high = np.sort(place[numbers], axis=1).T
    return np.argsort(_spread(high) << np.uint64(1) | _spread(low), kind="stable")


def _spread(values: IndexArray) -> NDArray[np.uint64]:
    """Put a zero before each of the lowest 32 bits of numbers."""
    bits = values.astype(np.uint64)
    for shift in (16, 8, 4, 2, 1):
        # Runs of `shift` zero bits and of `shift` one bits in turn.
        mask = (2**64 - 1) // (2**shift + 1)
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits


# ------------------------------------------------------------------------------- settings


def _header(
    config: MatcherConfig, pairs: Sequence[Pair], device: str, cameras: object
) -> dict[str, Any]:
    """Everything that decides the rows; a folder in which any of it differs is refused."""
    whole = config.to_dict()
    del whole["estimation"]["threads"]  # changes nothing
    # The first difference to another batch is reported, so what decides most stands first. The
    # association is resolved for the method: giving its defaults explicitly is the same batch.
    resolved = [association.to_dict() for association in config.for_method()]
    settings = {
        "estimation": whole["estimation"],
        "sources": {
            source["name"]: {**source, **association}
            for source, association in zip(whole["sources"], resolved, strict=True)
        },
    }
    return {
        "config": settings,
        "config_hash": _hash([settings]),
        **pairs_identity(pairs, device, network=config.needs_torch),
        "image_folder_hash": _hash(str(image.path.absolute()) for image in numbered(pairs)[0]),
        "cameras": None if cameras is None else masked(str(cameras)),
    }


def pairs_identity(pairs: Sequence[Pair], device: str, *, network: bool) -> dict[str, Any]:
    """Return what decides features, computed by a network or not, beside their configuration."""
    versions = library_versions()
    images, numbers = numbered(pairs)
    digest = hashlib.sha256(numbers.astype("<i8").tobytes())
    digest.update(_hash((image.name, image.turns) for image in images).encode())
    for place in posed(pairs):
        pair = pairs[place]
        known = [
            *(camera and camera.to_dict() for camera in (pair.camera0, pair.camera1)),
            *(None if array is None else array.tolist() for array in (pair.R, pair.t)),
        ]
        digest.update(_hash([place, known]).encode())
    return {
        "pair_count": len(pairs),
        "pair_list_hash": digest.hexdigest(),
        "device": choose_device(device).type if network else None,
        "versions": {
            "manymatch": manymatch.__version__,
            **{name: versions[name] for name in versions if network or name in WITHOUT_NETWORK},
        },
    }


def _hash(records: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()

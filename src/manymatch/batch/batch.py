"""Many pairs of images: a table with one row per pair, resumable, in bounded memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import manymatch
from manymatch._validate import choice, count, integer, refusal
from manymatch.batch import CAMERA_PER, CameraPer
from manymatch.batch.focals import FirstPass
from manymatch.batch.journal import NAME, check_folder, stream_journal
from manymatch.batch.match_store import BatchJournal
from manymatch.batch.outputs import ANY_PAIRS, checked_formats, write_outputs
from manymatch.batch.ray_engine import ray_cluster
from manymatch.batch.rows import AGAIN, ERROR, VERDICTS, check_row, columns
from manymatch.batch.runner import Run, num_pairs, num_workers
from manymatch.batch.shards import Shard, local_order
from manymatch.batch.tables import Reason, count_reasons, write_json, write_tables
from manymatch.batch.work import PairWork
from manymatch.features.device import WITHOUT_NETWORK, choose_device, library_versions
from manymatch.geometry.pose import pose_auc
from manymatch.io.files import output_folder
from manymatch.io.pairs import Pair, PairList, numbered, posed
from manymatch.io.remote import masked
from manymatch.matcher.cameras import check_camera
from manymatch.matcher.config import MatcherConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from manymatch.batch.journal import Journal
    from manymatch.batch.runner import RunProgress

AUC_THRESHOLDS = (5, 10, 20)
#: The only journal of a batch.
JOURNAL = "pairs"


@dataclasses.dataclass(frozen=True)
class BatchSummary:
    """Summary of a batch: counts, accuracy and the files that were written.

    Attributes
    ----------
    folder : Path
        Where everything is.
    total, finished : int
        Pairs that were asked for, and those of them that have a row.
    computed : int
        Rows that this run added.
    with_pose : int
        Pairs with a pose, whatever its verdict.
    counts : dict of str to int
        Pairs by verdict: those of `Confidence`, of which "failed" is without a pose, and "error"
        for pairs that could not be tried.
    auc : tuple of float or None
        Area under the curve of pose errors up to 5, 10 and 20 degrees, in percent, over the pairs
        whose true pose is known; None without any.
    rank_one_auc : tuple of float or None
        The same for rank-one matches with plain consensus, where it was compared.
    seconds : float
        Of this run.
    files : tuple of Path
        Tables, and files with the matches of all pairs, that were written.
    notes : tuple of str
        Remarks for the user.
    reasons : tuple of Reason
        Why pairs could not be run, with how many each; the most frequent first.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    folder: Path
    total: int
    finished: int
    computed: int
    with_pose: int
    counts: dict[str, int]
    auc: tuple[float, ...] | None
    rank_one_auc: tuple[float, ...] | None
    seconds: float
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        files = [str(path) for path in self.files]
        return {**dataclasses.asdict(self), "folder": str(self.folder), "files": files}


def run_batch(
    config: MatcherConfig | str | None,
    pairs: Iterable[Pair],
    out_folder: object,
    *,
    workers: int = 0,
    device: str = "auto",
    offline: bool = False,
    cache: object = None,
    cameras: object = None,
    camera_per: CameraPer = "pair",
    with_rank_one: bool = False,
    formats: Iterable[str] = (),
    limit: int | None = None,
    shard: str | None = None,
    retry_errors: bool = False,
    memory_mb: int = 512,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[RunProgress], object] | None = None,
) -> BatchSummary:
    """Match many pairs, or continue a batch that was interrupted.

    The folder gets ``journal.jsonl``, to which every pair is added as it is finished, and at the
    end, or at Ctrl-C, ``pairs.csv``, ``pairs.parquet`` (where pyarrow is installed) and
    ``summary.json``. Rows are in the order of the pairs and do not depend on `workers` or on
    interruptions, apart from the columns of seconds. A run that was killed at any moment continues
    when it is called again with the same arguments: finished pairs are neither lost nor repeated.

    Parameters
    ----------
    config : MatcherConfig, preset or .toml file, optional
        As `Matcher` takes it. Every pair uses its seed.
    pairs : iterable of Pair
        See `manymatch_lab.datasets.read_pairs` and `exhaustive_pairs`.
    out_folder : path
        Made if it does not exist. One of another configuration or other pairs is refused.
    workers : int
        Pairs worked on at the same time, 0 for one per core; with Ray one per CPU of the cluster.
    device, offline, cache
        As in `Matcher`.
    cameras : optional
        Camera of every image whose pair has none: a COLMAP model, or one camera for all, as
        `Matcher.match` takes them. By default, and with "unknown", the focal lengths are found;
        by default those of EXIF are priors.
    camera_per : {"pair", "image", "folder", "all"}
        Where focal lengths are unknown, which images have one: every pair finds its own; each image
        has one in all of its pairs; the images of one size in a folder have one; all images of one
        size have. But for "pair", focal lengths are first found pair by pair; then the pairs are
        matched again with what all of them say together. A cache saves computing the features
        twice.
    with_rank_one : bool
        Also match the plain way, in further columns.
    formats : iterable of {"parquet", "npz", "h5", "colmap", "colmap-db"}
        Also keep keypoints and matches, in ``matches.log`` as pairs are finished, from which
        `manymatch.read_matches` reads them at any time. When all pairs are finished, files are
        made of it: ``matches.parquet`` with ``keypoints.parquet``;
        ``matches/<index>_<name0>_<name1>.npz`` for each pair; hloc's ``features.h5`` and
        ``matches.h5``; COLMAP's ``colmap/matches.txt`` with one text of keypoints per image; and
        ``database.db`` for COLMAP's mappers. Others of them can be asked for later; of two images
        that are paired twice, those of hloc and COLMAP have the first pair.
    limit : int, optional
        Only the first pairs; a later run without it continues with the others.
    shard : str, optional
        "3/16" works on the third of sixteen parts of the pairs, in ``out_folder/shards/03-of-16``,
        for several machines; the parts have images in common. `merge_batch` joins them, and then
        writes the files of the matches, which a shard keeps if `formats` has any. With another
        `camera_per` than "pair", the shards are run and joined twice: what all pairs say of focal
        lengths is known after the first time.
    retry_errors : bool
        Try pairs again that an earlier run could not even try, as when a file was missing. Those
        that failed for lack of memory or by a fault of the system are always tried again.
    memory_mb : int
        Features kept in memory for further pairs, in MB; with Ray on each node.
    engine : {"local", "ray"}
        "local" has threads of this process. "ray" has processes on the machines of a Ray cluster,
        with the same results; the machines find the images, and a cache, under the same paths.
    address : str, optional
        Of the Ray cluster: "auto" for the one that this machine belongs to, or "host:port" of its
        head node. By default Ray is started on this machine and stopped at the end.
    progress : callable, optional
        Called with a `RunProgress` at the start and after every few pairs.

    Raises
    ------
    ValueError
        If an argument is wrong, the folder belongs to another batch or another run is using it.
        A pair that cannot be matched is no error but a row that says why. A damaged line of the
        journal is moved to ``journal.damaged``, its pair is done again, and so is one whose
        matches are damaged; a note says so.
    OSError
        If files cannot be written; the finished pairs stay.
    RunInterrupted
        At Ctrl-C, when everything finished has been written, with the `BatchSummary`.

    Examples
    --------
    >>> pairs = read_pairs("pairs.txt", "images")                    # doctest: +SKIP
    >>> run_batch("classic", pairs, "out/batch").counts              # doctest: +SKIP
    {'solved': 31, 'likely': 6, 'uncertain': 2, ..., 'failed': 1, 'error': 0}
    """
    start = time.monotonic()
    listed = _checked_pairs(pairs)
    settings = MatcherConfig.of(config)
    parallel = num_workers(workers)
    memory = integer(memory_mb, "memory_mb", 0)
    total = num_pairs(len(listed), limit)
    chosen = checked_formats(formats, listed)
    _check_keypoints(settings, chosen)
    matches = bool(chosen)
    choice(camera_per, "camera_per", CAMERA_PER)
    cluster = ray_cluster(engine, address, workers, memory)
    header = _header(
        settings,
        listed,
        device if cluster is None else "cpu",
        cameras,
        camera_per,
        with_rank_one=with_rank_one,
        matches=matches,
    )
    folder = output_folder(out_folder, "out")
    check_camera(cameras, "cameras")
    only = None
    joined, whole = folder, dict(header)
    if shard is not None:
        part = Shard.of(shard)
        folder, header["shard"] = part.folder(folder), str(part)
        only = part.indices(listed[:total])
    check = functools.partial(check_row, pairs=listed, total=len(listed))
    with contextlib.ExitStack() as stack:
        if cluster is not None:
            stack.callback(cluster.close)
            if settings.needs_torch:
                device = header["device"] = cluster.device(device)
        journal = stack.enter_context(BatchJournal(folder, header, check))
        run = Run(
            {JOURNAL: journal},
            total,
            **counted(),
            only=only,
            repeat=lambda row: AGAIN in row or (retry_errors and row["verdict"] == ERROR),
        )

        work = PairWork(
            settings,
            device,
            offline,
            cache,
            cameras,
            camera_per,
            with_rank_one=with_rank_one,
            keep_matches=matches,
            memory_mb=memory,
            threads=None if parallel == 1 and cluster is None else 1,
        )

        def execute(run: Run, first: FirstPass | None = None) -> None:
            order = functools.partial(local_order, listed)
            if run.missing.size and cluster is not None:
                there = cluster.engine(work, listed, JOURNAL, first)
                run.execute(there, order=order, progress=progress)
            elif run.missing.size:
                # A missing package or missing weights concern all pairs.
                work.load()
                run.execute(
                    lambda index, _: {JOURNAL: work(index, listed[index], first)},
                    workers=parallel,
                    order=order,
                    progress=progress,
                )

        execute(run)
        computed, remarks = run.computed, []
        if camera_per != "pair" and not run.interrupted:
            # All pairs decide about focal lengths; those of other shards are where they are joined.
            rows = journal.records() if shard is None else joined_rows(joined, whole)
            first = FirstPass.of((row["index"], row) for row in rows if row["index"] < total)
            if len(first.rows) == total:
                run = Run(
                    {JOURNAL: journal},
                    total,
                    **counted(),
                    only=only,
                    repeat=first.is_stale,
                    label="with shared focal lengths",
                )
                execute(run, first)
                computed = max(computed, run.computed)
            else:
                remarks.append(
                    "All pairs decide about focal lengths that pairs share: when all shards are "
                    "joined by batch-merge, the same command matches those of this one with them."
                )
        files = []
        if not run.interrupted and shard is None:
            files = write_outputs(journal, chosen, camera_per)
        table = columns(with_rank_one)
        return run.deliver(
            finish(journal, run, computed, total, table, header, files, start, remarks)
        )


def joined_rows(folder: Path, header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Go through the rows of the folder where shards of a batch are joined, if they are."""
    if (folder / NAME).exists():
        check_folder(folder, header)
        for row in stream_journal(folder)[1]:
            with contextlib.suppress(ValueError):
                check_row(row, None, header["pair_count"])
                yield row


def counted() -> dict[str, Any]:
    """Return how a `Run` of a batch counts its pairs: by their verdicts."""
    return {"category": lambda row: str(row["verdict"]), "categories": VERDICTS}


def finish(
    journal: Journal,
    run: Run,
    computed: int,
    total: int,
    table: dict[str, type],
    header: dict[str, Any],
    outputs: list[Path],
    start: float,
    remarks: Sequence[str] = (),
) -> BatchSummary:
    """Write the tables, all rows of the journal in the order of the pairs."""
    files, notes = write_tables(journal.folder, table, journal.records, header)
    notes += [*journal.notes, *remarks]
    errors: dict[str, list[float]] = {"pose_error_deg": [], "rank_one_pose_error_deg": []}
    with_pose = found = undetermined = 0
    wanted = (row for row in journal.records() if row["index"] < total)
    reasons = count_reasons(row["error"] for row in wanted if row["verdict"] == ERROR)
    for row in journal.records():
        if row["index"] < total:
            with_pose += row["success"]
            if "found" in (row.get("camera0_source"), row.get("camera1_source")):
                found += 1
                undetermined += not row.get("focal_determined", True)
            for name in errors.keys() & row.keys():
                errors[name].append(row[name])
    if found:
        notes.append(
            f"In {found:,} of {count(run.finished, 'pair')} a focal length was unknown and is "
            f"found from the images, which do not determine it in {undetermined:,}; cameras can be "
            "given."
        )
    auc, rank_one_auc = (
        tuple(pose_auc(found, AUC_THRESHOLDS).tolist()) if found else None
        for found in errors.values()
    )
    summary = BatchSummary(
        folder=journal.folder,
        total=run.total,
        finished=run.finished,
        computed=computed,
        with_pose=with_pose,
        counts=run.counts,
        auc=auc,
        rank_one_auc=rank_one_auc,
        seconds=time.monotonic() - start,
        files=(*files, *outputs),
        notes=tuple(notes),
        reasons=tuple(reasons),
        interrupted=run.interrupted,
    )
    write_json(journal.folder / "summary.json", {**summary.to_dict(), **header})
    return summary


def _checked_pairs(pairs: Iterable[Pair]) -> Sequence[Pair]:
    """Return pairs as a sequence with at least one."""
    listed = pairs if isinstance(pairs, PairList) else list(pairs)
    for pair in () if isinstance(listed, PairList) else listed:
        if not isinstance(pair, Pair):
            raise refusal("pairs", "Pair objects", pair)
    if not listed:
        raise refusal("pairs", "at least one pair", listed)
    return listed


def _check_keypoints(config: MatcherConfig, formats: Sequence[str]) -> None:
    """Refuse files with one list of keypoints an image where keypoints belong to pairs."""
    others = [form for form in formats if form not in ANY_PAIRS]
    for source in config.sources:
        if source.takes_images and others:
            raise ValueError(
                "formats must be parquet or npz where a source matches images without keypoints of "
                f"their own ({source.name}), as hloc and COLMAP have one list of keypoints an "
                f"image, got {others[0]!r}"
            )


def _header(
    config: MatcherConfig,
    pairs: Sequence[Pair],
    device: str,
    cameras: object,
    camera_per: CameraPer,
    *,
    with_rank_one: bool,
    matches: bool,
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
        "camera_per": camera_per,
        "with_rank_one": with_rank_one,
        "matches": matches,
    }


def pairs_identity(pairs: Sequence[Pair], device: str, *, network: bool) -> dict[str, Any]:
    """Return what decides the features of pairs beside their configuration, for a header.

    `network` says whether a network computes the features, with torch and on a device.
    """
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

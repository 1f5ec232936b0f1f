"""Many pairs of images: a table with one row per pair, resumable, in bounded memory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from manymatch._files import as_path, write_whole
from manymatch._validate import integer, refusal
from manymatch.estimate.problem import num_threads
from manymatch.evaluate import pose_auc
from manymatch.io.pair import Pair
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.runs.features import Views
from manymatch.runs.header import batch_header
from manymatch.runs.journal import Journal
from manymatch.runs.rows import ERROR, VERDICTS, columns
from manymatch.runs.tables import require_pyarrow, write_csv, write_parquet
from manymatch.runs.task import Task
from manymatch.runs.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

AUC_THRESHOLDS = (5, 10, 20)
# Images of one tile of the order of work. Two tiles of the largest features, 8 MB an image, fit
# into the default memory.
_TILE = 30


@dataclasses.dataclass(frozen=True)
class BatchProgress:
    """How far a batch is.

    Attributes
    ----------
    finished, total : int
        Pairs, those of earlier runs included.
    counts : dict of str to int
        Finished pairs by verdict.
    seconds_left : float or None
        Estimated from this run's speed; None before its first pair.
    label : str
        Which part of a longer run this is; may be empty.
    """

    finished: int
    total: int
    counts: dict[str, int]
    seconds_left: float | None
    label: str = ""


@dataclasses.dataclass(frozen=True)
class BatchSummary:
    """What a batch came to.

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
        Pairs by verdict: solved, weak, degenerate, failed (no pose), error (not even tried).
    auc : tuple of float or None
        Area under the curve of pose errors up to 5, 10 and 20 degrees, in percent, over the pairs
        whose true pose is known; None without any.
    rank_one_auc : tuple of float or None
        The same for rank-one matches with plain consensus, where it was compared.
    seconds : float
        Of this run.
    files : tuple of Path
        Tables that were written.
    notes : tuple of str
        What one should know.
    interrupted : bool
        Whether Ctrl-C ended it.
    busy : bool
        Whether a pair was still in work by then, which a thread ends in the background.
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
    interrupted: bool = False
    busy: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        record = dataclasses.asdict(self)
        del record["busy"]
        return {**record, "folder": str(self.folder), "files": [str(path) for path in self.files]}


class BatchInterrupted(KeyboardInterrupt):
    """Ctrl-C during a batch, after everything finished has been written.

    Attributes
    ----------
    summary : BatchSummary
        What is there.
    """

    def __init__(self, summary: BatchSummary) -> None:
        super().__init__("interrupted")
        self.summary = summary


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
    compare: bool = False,
    matches: bool = False,
    limit: int | None = None,
    retry_errors: bool = False,
    memory_mb: int = 512,
    progress: Callable[[BatchProgress], object] | None = None,
) -> BatchSummary:
    """Match many pairs; or go on where an earlier run of the same batch ended.

    The folder gets ``journal.jsonl``, to which every pair is added as it is finished, and at the
    end, or at Ctrl-C, ``pairs.csv``, ``pairs.parquet`` (where pyarrow is installed) and
    ``summary.json``. Rows are in the order of the pairs and do not depend on `workers` or on
    interruptions, apart from the columns of seconds. A run that was killed at any moment goes on
    when it is called again with the same arguments: finished pairs are neither lost nor repeated.

    Parameters
    ----------
    config : MatcherConfig, preset or .toml file, optional
        As `Matcher` takes it. Every pair uses its seed.
    pairs : iterable of Pair
        See `manymatch.datasets.read_pairs` and `exhaustive_pairs`.
    out_folder : path
        Made if it does not exist. One of another configuration or other pairs is refused.
    workers : int
        Pairs worked on at the same time, 0 for one per core.
    device, offline, cache
        As in `Matcher`.
    cameras : optional
        Camera of every image whose pair has none: a COLMAP model, or one camera for all, as
        `Matcher.match` takes them. By default from EXIF, else guessed.
    compare : bool
        Also match the plain way, in further columns.
    matches : bool
        Also write keypoints and matches, ``matches/<index>_<name0>_<name1>.npz`` a pair.
    limit : int, optional
        Only the first pairs; a later run without it goes on.
    retry_errors : bool
        Try pairs again that an earlier run could not even try, as when a file was missing.
    memory_mb : int
        Features kept in memory for further pairs, in MB.
    progress : callable, optional
        Called with a `BatchProgress` at the start and after every few pairs.

    Returns
    -------
    BatchSummary

    Raises
    ------
    ValueError
        If an argument is wrong, the folder belongs to another batch or another run is using it.
        A pair that cannot be matched is no error but a row that says why.
    OSError
        If files cannot be written; the finished pairs stay.
    BatchInterrupted
        At Ctrl-C, when everything finished has been written.

    Examples
    --------
    >>> pairs = read_pairs("pairs.txt", "images")                    # doctest: +SKIP
    >>> run_batch("classic", pairs, "out/batch").counts              # doctest: +SKIP
    {'solved': 37, 'weak': 2, 'degenerate': 0, 'failed': 1, 'error': 0}
    """
    start = time.monotonic()
    listed = _checked_pairs(pairs)
    settings = MatcherConfig.of(config)
    count = num_threads(integer(workers, "workers", 0))
    budget = integer(memory_mb, "memory_mb", 0) * 1_000_000
    total = len(listed) if limit is None else min(integer(limit, "limit", 1), len(listed))
    header = batch_header(settings, listed, device, cameras, compare=compare, matches=matches)
    folder = as_path(out_folder, "out")
    with Journal(folder, header) as journal:
        batch = _Batch(journal, listed, total, columns(compare), header)
        left = batch.left(retry_errors=retry_errors)
        if not left:
            return batch.finish(start)
        matcher = Matcher(settings, device=device, offline=offline, cache=cache)
        # What is missing here is missing for all pairs.
        _ = matcher.extractor.detector, matcher.extractor.backbone
        if matches:
            (folder / "matches").mkdir(exist_ok=True)
        task = Task(
            matcher=matcher,
            pairs=listed,
            views=Views(matcher, budget, cameras),
            threads=settings.options.threads if count == 1 else 1,
            compare=compare,
            folder=folder / "matches" if matches else None,
        )
        pool = Workers(min(count, len(left)), task)
        begin = time.monotonic()
        if progress is not None:
            progress(batch.progress(None))
        with contextlib.closing(pool.rows(tiled(left, listed))) as finished:
            for rows in finished:
                batch.add(rows)
                if progress is not None and rows:
                    speed = (time.monotonic() - begin) / batch.computed
                    progress(batch.progress(speed * (len(left) - batch.computed)))
        if pool.stopped and batch.computed < len(left):
            raise BatchInterrupted(batch.finish(start, interrupted=True, busy=pool.busy))
        return batch.finish(start)


class _Batch:
    """Rows of a batch: those in the journal, and what is to be said about them."""

    def __init__(
        self,
        journal: Journal,
        pairs: Sequence[Pair],
        total: int,
        table: dict[str, type],
        header: dict[str, Any],
    ) -> None:
        self._journal = journal
        self._pairs = pairs
        self._total = total
        self._table = table
        self._header = header
        self._verdicts: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self.computed = 0
        self._count(row for row in journal.records() if row["index"] < total)

    def left(self, *, retry_errors: bool) -> list[int]:
        """Return the indices of the pairs to compute."""
        if retry_errors:
            for index in [i for i, verdict in self._verdicts.items() if verdict == ERROR]:
                self._counts[self._verdicts.pop(index)] -= 1
        return [index for index in range(self._total) if index not in self._verdicts]

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Put rows on disk."""
        self._journal.append(rows)
        self._count(rows)
        self.computed += len(rows)

    def _count(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._verdicts[row["index"]] = row["verdict"]
            self._counts[row["verdict"]] += 1

    def counts(self) -> dict[str, int]:
        """Finished pairs by verdict."""
        return {verdict: self._counts[verdict] for verdict in VERDICTS}

    def progress(self, seconds_left: float | None) -> BatchProgress:
        """Say how far it is."""
        return BatchProgress(len(self._verdicts), self._total, self.counts(), seconds_left)

    def finish(
        self, start: float, *, interrupted: bool = False, busy: bool = False
    ) -> BatchSummary:
        """Write the tables, all rows of the journal in the order of the pairs."""
        folder = self._journal.folder
        files, notes = [folder / "pairs.csv"], []
        write_csv(files[0], self._table, self._journal.records)
        try:
            require_pyarrow()
        except ModuleNotFoundError as error:
            notes.append(f"There is no Parquet table: {error}.")
        else:
            files.append(folder / "pairs.parquet")
            write_parquet(files[1], self._table, self._journal.records, self._header)
        errors: dict[str, list[float]] = {"pose_error_deg": [], "rank_one_pose_error_deg": []}
        with_pose = guessed = 0
        for row in self._journal.records():
            if row["index"] < self._total:
                with_pose += row["success"]
                guessed += "guessed" in (row.get("camera0_source"), row.get("camera1_source"))
                for name in errors.keys() & row.keys():
                    errors[name].append(row[name])
        if guessed:
            notes.append(
                f"In {guessed} of {len(self._verdicts)} pairs a focal length is guessed, and the "
                "pose is only as good as the guess; cameras can be given."
            )
        auc, rank_one_auc = map(_auc, errors.values())
        summary = BatchSummary(
            folder=folder,
            total=self._total,
            finished=len(self._verdicts),
            computed=self.computed,
            with_pose=with_pose,
            counts=self.counts(),
            auc=auc,
            rank_one_auc=rank_one_auc,
            seconds=time.monotonic() - start,
            files=tuple(files),
            notes=tuple(notes),
            interrupted=interrupted,
            busy=busy,
        )
        text = json.dumps({**summary.to_dict(), **self._header}, indent=2, allow_nan=False)
        write_whole(folder / "summary.json", lambda file: file.write(f"{text}\n".encode()))
        return summary


def _checked_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    listed = list(pairs)
    for pair in listed:
        if not isinstance(pair, Pair):
            raise refusal("pairs", "Pair objects", pair)
    if not listed:
        raise refusal("pairs", "at least one pair", listed)
    return listed


def tiled(indices: Sequence[int], pairs: Sequence[Pair]) -> list[int]:
    """Order pairs so that images that are used together are used soon again.

    Images are numbered as they first appear, and pairs sorted by tiles of these numbers; all pairs
    of a folder then need each image a few times only, however little memory there is.
    """
    number: dict[tuple[Path, int], int] = {}
    tiles = {}
    for index in indices:
        pair = pairs[index]
        keys = (pair.path0, pair.rot0), (pair.path1, pair.rot1)
        tiles[index] = tuple(number.setdefault(key, len(number)) // _TILE for key in keys)
    return sorted(indices, key=tiles.__getitem__)


def _auc(errors: list[float]) -> tuple[float, ...] | None:
    return tuple(pose_auc(errors, AUC_THRESHOLDS).tolist()) if errors else None

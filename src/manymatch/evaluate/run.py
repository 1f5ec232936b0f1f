"""Run estimators over a set: every pair, several seeds, resumable, in any number of threads."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import manymatch
from manymatch._files import as_path
from manymatch._validate import integer, refusal
from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.estimate.problem import num_threads
from manymatch.evaluate.estimators import BASELINES, checked_estimator, trial
from manymatch.evaluate.metrics import FAILURE_DEG
from manymatch.evaluate.run_result import RunResult
from manymatch.runs.batch import BatchProgress
from manymatch.runs.journal import Journal
from manymatch.runs.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from manymatch.evaluate.posed_graph import PosedGraph
    from manymatch.evaluate.sources import GraphSource


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What is done with every pair.

    Parameters
    ----------
    estimator : str
        "auto", "hcm-mcm", "hcm", "mcm", "cm"; or "poselib", "opencv", "pycolmap", for which every
        edge is a correspondence of its own.
    association : Association
        What the estimator sees of the candidates; what it leaves open is as the estimator wants
        it (`Association.for_method`).
    options : Options
        Threshold in pixels at working size, iterations and the rest. The seed is that of the
        trial: number of the pair, from 1, plus number of the repetition, from 0.
    seeds : int
        Repetitions.
    proposals_rank : int, optional
        Draw minimal samples from edges up to this rank only.
    probe : bool
        Also score the true pose against the pool of raw seeds (the two-stage estimator only).
    """

    estimator: str = "auto"
    association: Association = dataclasses.field(default_factory=Association)
    options: Options = dataclasses.field(default_factory=Options)
    seeds: int = 5
    proposals_rank: int | None = None
    probe: bool = False

    def __post_init__(self) -> None:
        checked_estimator(self.estimator)
        decided = self.association.for_method(self.estimator)
        object.__setattr__(self, "association", decided)
        integer(self.seeds, "seeds", 1)
        if self.proposals_rank is not None:
            integer(self.proposals_rank, "proposals_rank", 1)
            if self.estimator in BASELINES:
                raise refusal("proposals_rank", f"None with {self.estimator}", self.proposals_rank)
        if self.probe and self.estimator != "hcm-mcm":
            raise ValueError(f"probe must be False with {self.estimator}, which has no pool")

    def to_dict(self) -> dict[str, Any]:
        """Return everything that decides a result as plain values."""
        options = self.options.to_dict()
        del options["seed"], options["threads"]
        # Only "auto" has parts that can be left out; runs of other estimators stay what they were.
        if not options["without"]:
            del options["without"]
        # The operator belongs to the source, which has applied it.
        front = self.association.to_dict()
        del front["operator"]
        return {
            "estimator": self.estimator,
            "front": front,
            "options": options,
            "seeds": self.seeds,
            "proposals_rank": self.proposals_rank,
            "probe": self.probe,
        }


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during a run, after everything finished has been written.

    Attributes
    ----------
    finished, total : int
        Pairs.
    busy : bool
        Whether a pair is still in work, which a thread ends in the background.
    """

    def __init__(self, finished: int, total: int, *, busy: bool) -> None:
        super().__init__("interrupted")
        self.finished, self.total, self.busy = finished, total, busy


def run_set(
    source: GraphSource,
    configs: Mapping[str, RunConfig],
    folder: object,
    *,
    workers: int = 0,
    limit: int | None = None,
    progress: Callable[[BatchProgress], object] | None = None,
) -> dict[str, RunResult]:
    """Run several configurations on a set, or go on where an earlier run ended.

    Every pair's candidates are made once and used for all configurations. Each has a folder of
    its own with ``journal.jsonl``, to which a pair is added as it is finished, and at the end
    ``pairs.parquet`` (or ``pairs.csv`` without pyarrow) and ``summary.json``. Results do not
    depend on `workers` or on interruptions.

    Parameters
    ----------
    source : GraphSource
        See `manymatch.evaluate.sources.open_sources`.
    configs : mapping of str to RunConfig
        By the name of their folder.
    folder : path
        Made if it does not exist. A folder with results of another configuration, of another set
        or of other versions is refused.
    workers : int
        Pairs worked on at the same time, 0 for one per core.
    limit : int, optional
        Only the first pairs; a later run without it goes on.
    progress : callable, optional
        Called with a `BatchProgress`.

    Raises
    ------
    ValueError
        If an argument is wrong or the folder belongs to another run.
    RunInterrupted
        At Ctrl-C, when everything finished has been written.
    """
    target = as_path(folder, "out")
    total = len(source) if limit is None else min(integer(limit, "limit", 1), len(source))
    count = num_threads(integer(workers, "workers", 0))
    if not configs:
        raise refusal("configs", "at least one configuration", configs)
    with contextlib.ExitStack() as stack:
        journals = {
            name: stack.enter_context(Journal(target / name, run_header(source, config)))
            for name, config in configs.items()
        }
        run = _Run(source, configs, journals, total, threads=1 if count > 1 else 0)
        left = run.left()
        pool = Workers(min(count, max(len(left), 1)), run.work)
        if progress is not None:
            progress(run.progress(None))
        begin = time.monotonic()
        if left:
            with contextlib.closing(pool.rows(source.order(left))) as finished:
                for rows in finished:
                    run.add(rows)
                    if progress is not None and rows:
                        speed = (time.monotonic() - begin) / run.computed
                        progress(run.progress(speed * (len(left) - run.computed)))
        results = {name: RunResult.load(target / name, limit=total) for name in configs}
        for result in results.values():
            result.write_tables()
        if pool.stopped and run.computed < len(left):
            raise RunInterrupted(total - len(left) + run.computed, total, busy=pool.busy)
        return results


def run_header(source: GraphSource, config: RunConfig) -> dict[str, Any]:
    """Everything that decides the rows; a folder in which any of it differs is refused."""
    versions = {"manymatch": manymatch.__version__}
    if config.estimator in BASELINES:
        versions[config.estimator] = _version(config.estimator)
    return {
        "title": source.title,
        "source": source.identity,
        "config": config.to_dict(),
        "run_versions": versions,
    }


def _version(name: str) -> str:
    from importlib import metadata

    for distribution in {"opencv": _OPENCV}.get(name, (name,)):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    raise ModuleNotFoundError(
        f'the estimator {name} needs its package: pip install "manymatch[baselines]"', name=name
    )


_OPENCV = (
    "opencv-contrib-python-headless",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-python",
)


class _Run:
    """State of a run: what is finished, and how one pair is worked on."""

    def __init__(
        self,
        source: GraphSource,
        configs: Mapping[str, RunConfig],
        journals: Mapping[str, Journal],
        total: int,
        *,
        threads: int,
    ) -> None:
        self._source, self._configs, self._journals = source, configs, journals
        self._total, self._threads = total, threads
        self._done: dict[str, set[int]] = {name: set() for name in configs}
        self.computed = 0
        # Of the first configuration, to show how it goes.
        self._errors: list[float] = []
        for name, journal in journals.items():
            for record in journal.records():
                if record["index"] < total:
                    self._note(name, record)

    def left(self) -> list[int]:
        """Return the pairs that some configuration lacks."""
        return [
            index
            for index in range(self._total)
            if not all(index in done for done in self._done.values())
        ]

    def work(self, index: int) -> dict[str, Any]:
        """Run what is missing of a pair."""
        wanted = [name for name, done in self._done.items() if index not in done]
        try:
            posed = self._source[index]
        except (OSError, ImportError):
            # No fault of the pair: a full disk, a missing package. Unreadable images are values.
            raise
        except Exception as error:  # noqa: BLE001 - one pair must not end a run of thousands
            sentence = " ".join(str(error).split()) or type(error).__name__
            return {
                "index": index,
                "records": {name: self._failed(name, index, sentence) for name in wanted},
            }
        # Configurations often share what they see.
        graphs = {
            association: association.apply(posed.graph, posed.size0, posed.size1)
            for association in {self._configs[name].association for name in wanted}
        }
        records = {}
        for name in wanted:
            config = self._configs[name]
            graph = graphs[config.association]
            records[name] = {
                "index": index,
                "name0": posed.name0,
                "name1": posed.name1,
                "scene": posed.scene,
                "bin": posed.bin,
                "num_edges": graph.num_edges,
                "trials": self._trials(config, posed, graph),
            }
        return {"index": index, "records": records}

    def _trials(self, config: RunConfig, posed: PosedGraph, graph: Any) -> list[dict[str, Any]]:
        trials = []
        for repetition in range(config.seeds):
            options = config.options.replace(
                seed=posed.seed_index + repetition,
                threshold_px=config.options.threshold_px * posed.pixels,
                threads=self._threads,
            )
            row = trial(
                config.estimator, posed, graph, options, config.proposals_rank, config.probe
            )
            trials.append({"seed": options.seed, **row})
        return trials

    def _failed(self, name: str, index: int, sentence: str) -> dict[str, Any]:
        missed = {"success": False, "error_deg": FAILURE_DEG, "failure": sentence}
        return {
            "index": index,
            "name0": "",
            "name1": "",
            "scene": "",
            "bin": "",
            "num_edges": 0,
            "error": sentence,
            "trials": [missed] * self._configs[name].seeds,
        }

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Put finished pairs on disk, configuration by configuration."""
        for name, journal in self._journals.items():
            records = [row["records"][name] for row in rows if name in row["records"]]
            if records:
                journal.append(records)
                for record in records:
                    self._note(name, record)
        self.computed += len(rows)

    def _note(self, name: str, record: Mapping[str, Any]) -> None:
        self._done[name].add(record["index"])
        if name == next(iter(self._configs)):
            self._errors.append(record["trials"][0]["error_deg"])

    def progress(self, seconds_left: float | None) -> BatchProgress:
        """Say how far it is, and how good the first configuration's first repetition is."""
        finished = self._total - len(self.left())
        counts = {
            "within 5°": sum(e < 5 for e in self._errors),
            "5° to 20°": sum(5 <= e < 20 for e in self._errors),
            "beyond": sum(e >= 20 for e in self._errors),
        }
        label = f"{self._source.representation}, {self._source.title}"
        return BatchProgress(finished, self._total, counts, seconds_left, label)


def run_sets(
    sources: Iterable[GraphSource],
    configs: Mapping[str, RunConfig],
    folder: Path,
    **settings: Any,
) -> dict[tuple[str, str], dict[str, RunResult]]:
    """Run the same configurations on several sets, each in ``folder/<representation>/<set>``.

    Returns
    -------
    dict
        By (representation, set), in the order of the sources.
    """
    return {
        (source.representation, source.name): run_set(
            source, configs, folder / source.representation / source.name, **settings
        )
        for source in sources
    }

"""Run estimators over a set, every pair with several seeds, and read back what was found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import manymatch
from manymatch.associate.candidates import Association
from manymatch.batch import CAMERA_PER, CameraPer
from manymatch.batch.focals import FOCAL_COLUMNS, FirstPass
from manymatch.batch.outputs import (
    Reason,
    count_reasons,
    reasons_sentence,
    write_json,
    write_tables,
)
from manymatch.batch.parts import (
    Outcome,
    RunProgress,
    check_run,
    error_sentence,
    machine_fault,
    num_pairs,
    num_workers,
)
from manymatch.geometry.camera import Camera, working_pixel
from manymatch.geometry.pose import FAILURE_DEG
from manymatch.graph import AssociationGraph
from manymatch.io.files import local_path
from manymatch.options import Options
from manymatch_lab.checks import FloatArray, choice, count, integer, refusal
from manymatch_lab.evaluate.estimators import BASELINES, baseline_version, checked_estimator, trial
from manymatch_lab.evaluate.inputs import GraphReader
from manymatch_lab.evaluate.posed_graph import PosedGraph
from manymatch_lab.evaluate.protocol import PAPER, RecordedRun, assumptions, differences
from manymatch_lab.evaluate.records import Record, Records, read_records, run_pairs
from manymatch_lab.evaluate.statistics import THRESHOLDS, auc_spread

#: Columns of the tables, one row per pair and repetition; any may be empty.
COLUMNS: dict[str, str] = {
    "index": "int64",
    **dict.fromkeys(("name0", "name1", "scene", "bin"), "string"),
    **dict.fromkeys(("repetition", "seed"), "int64"),
    "success": "bool",
    **dict.fromkeys(("error_deg", "rotation_deg", "translation_deg"), "float64"),
    "failure": "string",
    **dict.fromkeys(("num_edges", "debiased", "num_inliers", "cardinality"), "int64"),
    "hcm": "float64",
    **dict.fromkeys(("focal_error", "focal0_px", "focal1_px"), "float64"),
    **FOCAL_COLUMNS,
    "iterations": "int64",
    **dict.fromkeys(("seconds", "probe_hcm"), "float64"),
    "pool_full": "bool",
    "pool_worst": "float64",
    "enters": "bool",
}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """How every pair is run.

    The estimator is "auto", "hcm-mcm", "hcm", "mcm" or "cm"; or "poselib", "opencv" or "pycolmap",
    for which every edge is a correspondence of its own.
    """

    estimator: str = "auto"
    #: What the estimator sees of the candidates; `Association.for_method` completes it.
    association: Association = dataclasses.field(default_factory=Association)
    #: The threshold is in pixels at working size. The seed of a trial is the number of the pair,
    #: from 1, plus the number of the repetition, from 0.
    options: Options = dataclasses.field(default_factory=Options)
    seeds: int = 5  # repetitions
    proposals_rank: int | None = None  # draw minimal samples from edges up to this rank only
    probe: bool = False  # also score the true pose against the pool of raw seeds ("hcm-mcm" only)
    #: Hide the cameras: estimators see `Camera.unknown` and find the focal lengths. Of the others
    #: only PoseLib does, where both images have one size.
    unknown_focal: bool = False
    #: Which images share an unknown focal length, as in `run_batch`. Unless it is "pair", every
    #: repetition has two passes, the second with the focal lengths of all pairs together.
    camera_per: CameraPer = "pair"
    further: tuple[Association, ...] = ()  # of the sources after the first, if there are several
    #: Also keep the matches, with their probabilities and what is true of them ("auto" only).
    matches: bool = False

    def __post_init__(self) -> None:
        checked_estimator(self.estimator)
        decided = self.association.for_method(self.estimator)
        object.__setattr__(self, "association", decided)
        others = tuple(association.for_method(self.estimator) for association in self.further)
        object.__setattr__(self, "further", others)
        integer(self.seeds, "seeds", 1)
        if self.proposals_rank is not None:
            integer(self.proposals_rank, "proposals_rank", 1)
            if self.estimator in BASELINES:
                raise refusal("proposals_rank", f"None with {self.estimator}", self.proposals_rank)
        if self.probe and self.estimator != "hcm-mcm":
            raise ValueError(f"probe must be False with {self.estimator}, which has no pool")
        if self.matches and self.estimator != "auto":
            raise ValueError(
                f"matches must be False with {self.estimator}, which gives no probabilities"
            )
        choice(self.camera_per, "camera_per", CAMERA_PER)
        if self.unknown_focal:
            if self.estimator in BASELINES and self.estimator != "poselib":
                raise ValueError(
                    f"unknown_focal must be False with {self.estimator}, which needs focal lengths"
                )
            if self.probe:
                raise ValueError("probe must be False with unknown_focal, which has another score")
        if self.camera_per != "pair" and (not self.unknown_focal or self.estimator in BASELINES):
            raise ValueError(
                f"camera_per must be 'pair' without unknown_focal and with {', '.join(BASELINES)}, "
                f"got {self.camera_per!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return everything that decides a result as plain values."""
        options = self.options.to_dict()
        del options["seed"], options["threads"]
        # The operator belongs to the source, which has applied it.
        association, *further = (one.to_dict() for one in (self.association, *self.further))
        for one in (association, *further):
            del one["operator"]
        return {
            "estimator": self.estimator,
            "association": association,
            **({"further": further} if further else {}),
            "options": options,
            "seeds": self.seeds,
            "proposals_rank": self.proposals_rank,
            "probe": self.probe,
            "unknown_focal": self.unknown_focal,
            "camera_per": self.camera_per,
            **({"matches": True} if self.matches else {}),
            **({"refinement": "Cauchy, 1 threshold"} if self.estimator == "poselib" else {}),
        }


@dataclasses.dataclass(frozen=True)
class PaperRun:
    """A run as the paper's protocol has it, by default its practical configuration.

    `presets` are the features that it may have.
    """

    config: RunConfig = RunConfig(PAPER.method, PAPER.association, PAPER.options, PAPER.seeds)
    presets: tuple[str, ...] = (PAPER.preset,)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """Trials of one configuration on one set, as they are in a folder.

    The header says what was computed: ``title``, ``source``, ``config`` and versions. There is one
    record per pair, by index, each with its ``trials``.
    """

    folder: Path
    header: dict[str, Any]
    records: list[dict[str, Any]]

    @classmethod
    def load(cls, folder: object, limit: int | None = None) -> RunResult:
        """Read a run from its folder, or the first pairs of it."""
        place = local_path(folder, "run")
        found = read_records(place)
        if found is None:
            raise ValueError(f"run must be a folder of manymatch eval, got {str(place)!r}")
        header, records = found
        return cls(place, header, [r for r in records if limit is None or r["index"] < limit])

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        config, pairs = self.header["config"], count(len(self), "pair")
        what = f"{config['estimator']}, {pairs}, {count(config['seeds'], 'seed')}"
        return f"RunResult({self.header['title']}: {what}; {str(self.folder)!r})"

    @property
    def indices(self) -> list[int]:
        """Numbers of the finished pairs in their set, from 0."""
        return [record["index"] for record in self.records]

    @property
    def names(self) -> list[tuple[str, str]]:
        """The two images of each pair."""
        return [(record["name0"], record["name1"]) for record in self.records]

    @property
    def bins(self) -> list[str]:
        """The bin of each pair; empty texts where the set has none."""
        return [record["bin"] for record in self.records]

    @property
    def num_edges(self) -> FloatArray:
        """Candidates that the estimator got, (N,)."""
        return np.array([record["num_edges"] for record in self.records], dtype=np.float64)

    @property
    def errors(self) -> FloatArray:
        """Pose errors in degrees, (S, N): repetitions by pairs."""
        return self.column("error_deg")

    def column(self, name: str) -> FloatArray:
        """One number of every trial, (S, N); NaN where a trial does not have it."""
        values = [
            [np.nan if t.get(name) is None else float(t[name]) for t in record["trials"]]
            for record in self.records
        ]
        seeds = self.header["config"]["seeds"]
        return np.array(values, dtype=np.float64).reshape(len(self.records), seeds).T

    @property
    def not_run(self) -> list[Reason]:
        """Why pairs could not be run, such as an image that is missing; counts are of pairs."""
        return count_reasons(r["error"] for r in self.records if "error" in r)

    @property
    def without_pose(self) -> list[Reason]:
        """Why no pose was found in pairs that could be run; counts are of trials."""
        return count_reasons(
            trial.get("failure") or "the estimator found none"
            for record in self.records
            if "error" not in record
            for trial in record["trials"]
            if not trial["success"]
        )

    def fault_sentences(self) -> list[str]:
        """Say how many pairs could not be run and how many trials have no pose, and why."""
        trials = len(self) * self.header["config"]["seeds"]
        facts = (
            (self.not_run, "could not be run", len(self), "pair"),
            (self.without_pose, "found no pose", trials, "trial"),
        )
        return [f"{self.header['title']}: {reasons_sentence(*one)}" for one in facts if one[0]]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Go through all trials as flat rows of a table."""
        for record in self.records:
            shared = {k: v for k, v in record.items() if k not in ("trials", "error")}
            for repetition, row in enumerate(record["trials"]):
                yield {**shared, "repetition": repetition, **row}

    def recorded(self, paper: PaperRun | None = None) -> RecordedRun:
        """Return what `evaluate.protocol.differences` compares, by default with `PaperRun`."""
        wanted = paper or PaperRun()
        made = self.header["source"], self.header["config"], len(self)
        debiased = [record["debiased"] for record in self.records if record.get("debiased")]
        fewest = min(debiased, default=None)
        return RecordedRun(*made, wanted.config.to_dict(), wanted.presets, fewest)

    def write_tables(self, paper: PaperRun | None = None) -> None:
        """Write ``pairs.csv``, ``pairs.parquet`` where pyarrow is installed, ``summary.json``."""
        write_tables(self.folder, COLUMNS, self.rows, self.header)
        write_json(self.folder / "summary.json", {**self.header, **self.summary(paper)})

    def summary(self, paper: PaperRun | None = None) -> dict[str, Any]:
        """Return the AUC of all pairs and of every bin, times and failures, as plain values.

        ``differs_from_paper`` says in which points the run differs from the paper's protocol.
        """
        if not self.records:
            return {"pairs": 0}
        errors = self.errors
        by_bin = {}
        for name in dict.fromkeys(filter(None, self.bins)):
            kept = np.array([other == name for other in self.bins])
            by_bin[name] = {"pairs": int(kept.sum()), **auc_spread(errors[:, kept]).to_dict()}
        seconds = self.column("seconds")
        known = np.isfinite(seconds)
        focals: dict[str, Any] = {}
        focal_error = self.column("focal_error")
        if np.isfinite(focal_error).any():
            # A trial without a pose has found no focal length.
            focal_error[~np.isfinite(focal_error)] = np.inf
            quartiles = np.quantile(focal_error, (0.25, 0.5, 0.75)).tolist()
            focals["focal_error_quartiles"] = [q if np.isfinite(q) else None for q in quartiles]
            focals["focal_determined"] = float((self.column("focal_determined") > 0).mean())
        return {
            "pairs": len(self.records),
            "thresholds_deg": list(THRESHOLDS),
            "auc": auc_spread(errors).to_dict(),
            "bins": by_bin,
            "failed_trials": int((~(self.column("success") > 0)).sum()),
            "unreadable_pairs": sum(reason.count for reason in self.not_run),
            "reasons_not_run": [dataclasses.asdict(reason) for reason in self.not_run],
            "reasons_without_pose": [dataclasses.asdict(reason) for reason in self.without_pose],
            "median_error_deg": float(np.median(errors)),
            **focals,
            "median_edges": float(np.median(self.num_edges)),
            "mean_seconds": float(seconds[known].mean()) if known.any() else None,
            "differs_from_paper": differences([self.recorded(paper)]),
            "assumed": assumptions([self.recorded(paper)]),
        }


def run_set(
    source: GraphReader,
    configs: Mapping[str, RunConfig],
    folder: object,
    *,
    workers: int = 0,
    limit: int | None = None,
    progress: Callable[[RunProgress], object] | None = None,
    paper: Mapping[str, PaperRun] | None = None,
    retry_errors: bool = False,
) -> dict[str, RunResult]:
    """Run several configurations on a set, or continue a run that was interrupted.

    Every pair's candidates are made once and used for all configurations. Each configuration has a
    folder of its own with ``run.json``, ``parts/*.parquet`` for the finished pairs, and at the end
    ``pairs.csv``, ``pairs.parquet`` and ``summary.json``. Results do not depend on `workers` or on
    interruptions.

    Parameters
    ----------
    source : GraphReader
        See `manymatch_lab.evaluate.inputs.open_graphs`.
    configs : mapping of str to RunConfig
        By the name of their folder.
    folder : path
        Made if it does not exist. Results of another configuration, set or version are refused.
    workers : int
        Pairs worked on at the same time, 0 for one per core.
    limit : int, optional
        Only the first pairs; a later run without it continues with the others.
    progress : callable, optional
        Called with a `RunProgress`.
    paper : mapping of str to PaperRun, optional
        Runs that the summaries compare with, by the names of the configurations.
    retry_errors : bool
        Try pairs again that could not be run before.

    Raises
    ------
    RunInterrupted
        At Ctrl-C, when everything finished has been written, with the results so far.
    """
    target = local_path(folder, "out")
    total = num_pairs(len(source), limit)
    count = num_workers(workers)
    threads = 1 if count > 1 else 0
    if not configs:
        raise refusal("configs", "at least one configuration", configs)
    headers = {name: run_header(source, config) for name, config in configs.items()}
    kept = {name: Records(target / name, header) for name, header in headers.items()}
    label = f"{source.representation}, {source.title}"

    def execute(
        names: Iterable[str],
        repeat: Callable[[Record], bool],
        label: str,
        first: Sequence[FirstPass] = (),
    ) -> Outcome:
        return run_pairs(
            {name: kept[name] for name in names},
            total,
            lambda index, names: _work(
                source, index, {name: configs[name] for name in names}, threads, first
            ),
            order=source.order(),
            repeat=repeat,
            category=_category,
            workers=count,
            progress=progress,
            label=label,
        )

    outcome = execute(configs, lambda record: retry_errors and "error" in record, label)
    for name, config in configs.items():
        if config.camera_per != "pair" and not outcome.interrupted and outcome.error is None:
            records = kept[name].first(total)
            # Repetitions are independent of each other.
            first = [
                FirstPass.of({record["index"]: record["trials"][b] for record in records})
                for b in range(config.seeds)
            ]

            def stale(record: Record, first: list[FirstPass] = first) -> bool:
                """Whether a pair was run with other focal lengths than all pairs together say."""
                trials = zip(first, record["trials"], strict=True)
                return any(one.is_stale(row) for one, row in trials)

            outcome = execute([name], stale, f"{label}, shared focal lengths", first)
    if outcome.error is not None:
        raise outcome.error
    results: dict[str, RunResult] = {}
    for name, header in headers.items():
        results[name] = RunResult(target / name, header, kept[name].first(total))
        results[name].write_tables((paper or {}).get(name))
    outcome.raise_stop(results, min(map(len, results.values())), total)
    return results


def run_header(source: GraphReader, config: RunConfig) -> dict[str, Any]:
    """Everything that decides the rows; a folder in which any of it differs is refused."""
    versions = {"manymatch": manymatch.__version__}
    if config.estimator in BASELINES:
        versions[config.estimator] = baseline_version(config.estimator)
    return {
        "title": source.title,
        "source": source.identity,
        "config": config.to_dict(),
        "run_versions": versions,
    }


def _work(
    source: GraphReader,
    index: int,
    configs: Mapping[str, RunConfig],
    threads: int,
    first: Sequence[FirstPass],
) -> dict[str, Record]:
    """Run configurations on one pair; with the first pass of every repetition the second."""
    try:
        posed = source[index]
    except ImportError:
        # A missing package concerns all pairs.
        raise
    except Exception as error:  # one pair must not end a run of thousands
        if isinstance(error, OSError) and machine_fault(error):
            raise
        sentence = error_sentence(error)
        missed = {"success": False, "error_deg": FAILURE_DEG, "failure": sentence}
        failed = {"index": index, **source.about(index), "num_edges": 0, "error": sentence}
        return {name: {**failed, "trials": [missed] * c.seeds} for name, c in configs.items()}
    names = ("name0", "name1", "scene", "bin", "debiased")
    about = {name: getattr(posed, name) for name in names}
    graphs: dict[tuple[Association, ...], AssociationGraph] = {}
    records = {}
    for name, config in configs.items():
        # Configurations often share the association.
        seen = (config.association, *config.further)
        if seen not in graphs:
            graphs[seen] = seen[0].apply(posed.graph, **posed.sizes, further=seen[1:])
        trials = _trials(config, posed, graphs[seen], threads, index, first)
        edges = graphs[seen].num_edges
        records[name] = {"index": index, **about, "num_edges": edges, "trials": trials}
    return records


def _trials(
    config: RunConfig,
    posed: PosedGraph,
    graph: AssociationGraph,
    threads: int,
    index: int,
    first: Sequence[FirstPass],
) -> list[dict[str, Any]]:
    trials = []
    hidden = posed.camera0, posed.camera1
    if config.unknown_focal:
        hidden = Camera.unknown(*posed.size0), Camera.unknown(*posed.size1)
    pixels = working_pixel(*hidden, *posed.working_scale)
    for repetition in range(config.seeds):
        seed = posed.seed_index + repetition
        options = config.options.with_pixels(pixels).replace(seed=seed, threads=threads)
        cameras = hidden
        if first:
            earlier = first[repetition]
            group0, group1 = (earlier.rows[index].get(f"camera{n}_group") for n in (0, 1))
            cameras = earlier.camera(group0, hidden[0]), earlier.camera(group1, hidden[1])
        row = trial(
            config.estimator,
            posed,
            graph,
            options,
            config.proposals_rank,
            config.probe,
            cameras=cameras if config.unknown_focal else None,
            camera_per=config.camera_per,
            matches=config.matches,
        )
        if first:
            row = first[repetition].updated(index, row)
        trials.append({"seed": options.seed, **row})
    return trials


def _category(record: Record) -> str:
    """Name the range of the error of a pair's first repetition, by which progress counts pairs."""
    if "error" in record:
        return "could not be run"
    error = record["trials"][0]["error_deg"]
    return "within 5°" if error < 5 else "5° to 20°" if error < 20 else "over 20°"


def run_sets(
    sources: Iterable[GraphReader], configs: Mapping[str, RunConfig], folder: Path, **settings: Any
) -> dict[tuple[str, str], dict[str, RunResult]]:
    """Run the same configurations on several sets, each in ``folder/<representation>/<set>``.

    Results are by (representation, set), in the order of the sources. A folder of another run is
    refused before any set is begun.
    """
    places = [(one, folder / one.representation / one.name) for one in sources]
    for source, place in places:
        check_runs(source, configs, place)
    return {
        (source.representation, source.name): run_set(source, configs, place, **settings)
        for source, place in places
    }


def check_runs(source: GraphReader, configs: Mapping[str, RunConfig], folder: Path) -> None:
    """Raise `ValueError` if `run_set` would, as the folder has results of another run."""
    for name, config in configs.items():
        check_run(folder / name, run_header(source, config))

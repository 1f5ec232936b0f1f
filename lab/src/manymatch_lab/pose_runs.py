"""Sets of posed pairs for the experiments on pose accuracy, and runs of estimators on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
import typer

from manymatch import __version__
from manymatch.batch.outputs import Reason, reasons_sentence
from manymatch.cli.flags import Cache, Device, Offline
from manymatch.io.files import safe_name
from manymatch.matcher.config import MatcherConfig
from manymatch.options import Options
from manymatch_lab.checks import count, suggest
from manymatch_lab.evaluate.inputs import FileGraphs, GraphReader, open_datasets, open_graphs
from manymatch_lab.evaluate.protocol import PAPER, assumptions, differences
from manymatch_lab.evaluate.run import PaperRun, RunConfig, RunResult, check_runs, run_set
from manymatch_lab.evaluate.statistics import THRESHOLDS
from manymatch_lab.flags import (
    SETS_HELP,
    SHARED,
    Limit,
    Longest0,
    Longest1,
    Precision,
    RetryErrors,
    Root,
    Workers,
)

#: Results of one set by configuration.
Results: TypeAlias = Mapping[str, RunResult]
Entry: TypeAlias = tuple[GraphReader, Results]

Presets = Annotated[
    Sequence[str],
    "A preset or a .toml file for sets of images; may be repeated. By default the paper's: "
    f"{PAPER.preset}, or where representations are compared {', '.join(PAPER.presets)}.",
]
PaperSets = Annotated[
    Sequence[str],
    typer.Argument(help=f"{SETS_HELP} By default, with --root, the paper's.", show_default=False),
]
Gms = Annotated[
    bool,
    "Filter several candidates by grid motion statistics, as the paper does; method auto gets them "
    "unfiltered. Synthetic scenes have no surfaces that the filter could use.",
]
TunedOn = Annotated[
    Sequence[str],
    "Name of a set that was looked at while choices were made; may be repeated. Averages are then "
    "also given over these sets and over the others.",
]


@dataclasses.dataclass(frozen=True)
class RunSets:
    """Sets, and how and where they are run.

    A run that was stopped resumes in `folder`. `missing` are sets ("set") that were asked for and
    are not here ("why"); the other fields are as in `run_set`.
    """

    members: Sequence[Any]
    folder: Path
    missing: Sequence[Mapping[str, str]] = ()
    limit: int | None = None
    workers: int = 0
    progress: Any = None
    retry_errors: bool = False

    def run_set(
        self,
        source: GraphReader,
        configs: Mapping[str, RunConfig],
        paper: Mapping[str, PaperRun] | None = None,
    ) -> Results:
        """Run configurations on a source, or resume a run that was stopped."""
        return run_set(
            source,
            configs,
            self.run_folder(source),
            workers=self.workers,
            limit=self.limit,
            progress=self.progress,
            paper=paper,
            retry_errors=self.retry_errors,
        )

    def run_folder(self, source: Any) -> Path:
        """Where the runs of a source are kept."""
        place = safe_name(source.representation), safe_name(source.name)
        return self.folder.joinpath("runs", *place)

    def settings(self, options: Options, seeds: int, **more: Any) -> dict[str, Any]:
        """Record what is run, as JSON types."""
        return {
            "thresholds": list(THRESHOLDS),
            "seeds": seeds,
            "limit": self.limit,
            "options": options.to_dict(),
            "version": __version__,
            **more,
        }


class PoseSets(RunSets):
    """Sets of posed graphs; those with the same representation share a table."""

    #: Presets for sets of images, where none is named.
    presets: ClassVar[tuple[str, ...]] = (PAPER.preset,)

    @property
    def sources(self) -> Sequence[GraphReader]:
        """The sets."""
        return self.members

    @classmethod
    def from_flags(
        cls,
        sets: PaperSets = (),
        folder: Path = Path(),
        *,
        preset: Presets = (),
        precision: Precision = None,
        root: Root = None,
        limit: Limit = None,
        workers: Workers = 0,
        longest0: Longest0 = None,
        longest1: Longest1 = None,
        retry_errors: RetryErrors = False,
        device: Device = "auto",
        offline: Offline = False,
        cache: Cache = None,
        k: Annotated[int, SHARED] = 5,
        progress: Any = None,
    ) -> PoseSets:
        """Open the sets that are here, and list those that are not; one at least must be here.

        Of several presets, those that cannot be loaded are listed as well.
        """
        # Raises if a set cannot be opened; cheap, as no network is loaded.
        here, missing = present(
            paper_sets(sets, root),
            lambda name: None if _has_candidates(name) else open_datasets(name, root),
        )
        how: dict[str, Any] = {"root": root, "k": k, "longest": (longest0, longest1)}
        how |= {"device": device, "offline": offline, "cache": cache}
        ready = [name for name in here if _has_candidates(name)]
        images = [name for name in here if name not in ready]
        sources = open_graphs(ready, **how) if ready else []
        if images:

            def load(name: str) -> None:
                sources.extend(open_graphs(images, [with_precision(name, precision)], **how))

            try:
                _, unloaded = present(list(dict.fromkeys(preset or cls.presets)), load)
            except ValueError as error:
                hint = "" if preset else "; or name another preset, such as --preset embedded"
                raise ValueError(f"{error}{hint}") from error
            missing += [{**entry, "set": f"preset {entry['set']}"} for entry in unloaded]
        return cls(sources, folder, missing, limit, workers, progress, retry_errors)

    def run(
        self,
        configs: Mapping[str, RunConfig],
        settings: Mapping[str, Any],
        of_set: Callable[[GraphReader, Results], dict[str, Any]],
        of_all: Callable[[Sequence[Entry]], dict[str, Any]],
        paper: Mapping[str, RunConfig] | None = None,
    ) -> dict[str, Any]:
        """Run all configurations on all sets, or resume a run that was stopped.

        Returns `settings`, ``runs`` (one a representation, with ``sets``: name, title, number of
        pairs and what `of_set` measures, and with what `of_all` measures on its sets together) and
        ``missing``, as JSON types. With the configurations that the paper's protocol has, also
        ``differs_from_paper``; and ``not_run`` of `not_run`.
        """
        papers = {name: PaperRun(one, self.presets) for name, one in (paper or {}).items()}
        found: dict[str, list[Entry]] = {}
        recorded, failed = [], []
        for source in self.sources:
            check_runs(source, configs, self.run_folder(source))
        for source in self.sources:
            results = self.run_set(source, configs, papers)
            found.setdefault(source.representation, []).append((source, results))
            recorded += [results[n].recorded(one) for n, one in papers.items() if n in results]
            # To read a pair fails for all configurations alike.
            first = next(iter(results.values()))
            failed += not_run(source, first.not_run, len(first))
        runs = []
        for representation, entries in found.items():
            sets = []
            for source, results in entries:
                pairs = len(next(iter(results.values())))
                about = {"name": source.name, "title": source.title, "pairs": pairs}
                sets.append({**about, **of_set(source, results)})
            runs.append({"representation": representation, "sets": sets, **of_all(entries)})
        differing = {"differs_from_paper": differences(recorded, complete=True)} if paper else {}
        return {
            **differing,
            "assumed": assumptions(recorded),
            "settings": settings,
            "runs": runs,
            "notes": list(dict.fromkeys(note for one in self.sources for note in one.notes)),
            "missing": [dict(entry) for entry in self.missing],
            "not_run": failed,
        }

    def checked(self, names: Sequence[str], name: str) -> list[str]:
        """Return names of sets without repetitions; an unknown name is refused."""
        known = [*(s.name for s in self.sources), *(entry["set"] for entry in self.missing)]
        return checked_names(names, known, name)


def paper_sets(sets: Sequence[str], root: object) -> list[str]:
    """Return the sets that are named, or else, where `root` says where they are, the paper's."""
    return list(sets or (() if root is None else PAPER.pairs))


def with_precision(preset: str | None, precision: str | None) -> object:
    """Return a preset, or the default one, in another precision if one is given."""
    return preset if precision is None else MatcherConfig.of(preset, precision=precision)


def present(
    names: Sequence[str], opened: Callable[[str], object]
) -> tuple[list[str], list[dict[str, str]]]:
    """Separate sets that can be opened from those for which `opened` raises; one must be there."""
    here, missing = [], []
    for name in names:
        try:
            opened(name)
        except (ValueError, OSError, ImportError) as error:
            missing.append({"set": name, "why": " ".join(str(error).split())})
        else:
            here.append(name)
    if not here:
        raise ValueError(
            missing[0]["why"]
            if missing
            else "sets must name at least one set, or root the folder of the paper's sets"
        )
    return here, missing


def checked_names(given: Sequence[str], known: Sequence[str], name: str) -> list[str]:
    """Return names without repetitions; all of them must be known."""
    for value in given:
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(dict.fromkeys(known))}, got {value!r}"
                f"{suggest(value, known)}"
            )
    return list(dict.fromkeys(given))


def not_run(source: Any, reasons: Sequence[Reason], pairs: int) -> list[dict[str, Any]]:
    """Record how many of the pairs of a set could not be run, and why; nothing if all could."""
    if not reasons:
        return []
    return [
        {
            "set": f"{source.representation}, {source.title}",
            "pairs": sum(reason.count for reason in reasons),
            "why": reasons_sentence(reasons, "could not be run", pairs),
        }
    ]


def left_out(data: Mapping[str, Any]) -> list[str]:
    """Return the notes of the sets, and say which pairs and sets were not run."""
    limit = data["settings"].get("limit")
    sentences = [f"Only the first {count(limit, 'pair')} of each set ran."] if limit else []
    sentences += [f"{note}." for note in data.get("notes", ())]
    sentences += [f"{e['set']} was not run: {e['why']}." for e in data["missing"]]
    return sentences + [f"{e['set']}: {e['why']}" for e in data.get("not_run", ())]


def about_paper(data: Mapping[str, Any]) -> list[str]:
    """Say what the paper's numbers are, whether ours can be compared, and what was left out."""
    names = {entry["name"] for run in data["runs"] for entry in run["sets"]}
    sentences = [
        "Numbers of the paper, set apart, are for corrected DINOv3 ViT-L/16 features at SuperPoint "
        "keypoints unless said otherwise; ours are for what the title of each table names."
    ]
    if not names.intersection(PAPER.pairs):
        sentences.append(
            "None of the sets here is one of the paper's, so its averages over six datasets stand "
            "there for orientation: orderings can be compared, values cannot."
        )
    elif [run["representation"] for run in data["runs"]] != ["dinov3"]:
        sentences.append("Values can be compared only where set and representation are the same.")
    return sentences + left_out(data)


def mean_column(results: Sequence[RunResult], name: str) -> float | None:
    """Mean of a number over all trials that have it."""
    values = np.concatenate([result.column(name).ravel() for result in results])
    known = np.isfinite(values)
    return float(values[known].mean()) if known.any() else None


def _has_candidates(name: str) -> bool:
    """Whether a set has graphs already, so that no preset is needed."""
    return name.startswith("synthetic:") or bool(FileGraphs.find(name))

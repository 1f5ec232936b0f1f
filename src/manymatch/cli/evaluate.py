"""``manymatch eval``: pose AUC of an estimator on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._files import write_whole
from manymatch.associate.candidates import Association
from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json, show_table, working
from manymatch.cli._progress import Tracker
from manymatch.evaluate.estimators import ESTIMATORS, checked_estimator
from manymatch.evaluate.run import RunConfig, run_sets
from manymatch.evaluate.sources import open_sources
from manymatch.evaluate.tables import run_table
from manymatch.matcher.config import MatcherConfig

if TYPE_CHECKING:
    from manymatch.evaluate.run import RunResult
    from manymatch.evaluate.tables import Table

EXAMPLE = "Example: manymatch eval synthetic:ordering --method auto --method cm --out out/eval"

Sets = Annotated[
    list[str],
    typer.Argument(
        help="Data sets by name (see manymatch datasets) or NAME:FOLDER, folders with a list of "
        "pairs, folders of posed graphs, or synthetic:CONFIGURATION.",
        show_default=False,
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets that are given by name only.", show_default=False),
]
Seeds = Annotated[int, typer.Option(help="Repetitions with other seeds.", min=1)]
Workers = Annotated[
    int, typer.Option(help="Pairs worked on at the same time; 0 is one per core.", min=0)
]
Limit = Annotated[
    int | None, typer.Option(help="Only the first pairs of each set.", min=1, show_default=False)
]
Longest0 = Annotated[
    int | None,
    typer.Option(
        help="Longer edge of the first images at working size, 0 for their own.",
        min=0,
        show_default=False,
    ),
]
Longest1 = Annotated[
    int | None,
    typer.Option(
        help="The same for the second images; small thermal frames do better as they are.",
        min=0,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


def evaluate(
    sets: Sets,
    root: Root = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(ESTIMATORS)}; may be repeated, for several on the same "
            "candidates. By default that of the configuration, which is auto.",
            show_default=False,
        ),
    ] = None,
    rank_one: Annotated[
        bool,
        typer.Option(
            "--rank-one", help="Only mutual nearest neighbours, neither filtered nor many."
        ),
    ] = False,
    seeds: Seeds = 5,
    limit: Limit = None,
    workers: Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; a run that was stopped goes on there."),
    ] = Path("out/eval"),
    longest0: Longest0 = None,
    longest1: Longest1 = None,
    memory_mb: Annotated[
        int, typer.Option(help="Features that are kept in memory, in MB.", min=0)
    ] = 512,
    as_json: Json = False,
    preset: flags.Preset = None,
    config: flags.ConfigFile = None,
    detector: flags.Detector = None,
    descriptor: flags.Descriptor = None,
    layer: flags.Layer = None,
    debias: flags.Debias = None,
    k: flags.K = None,
    max_keypoints: flags.MaxKeypoints = None,
    gms: flags.Gms = None,
    threshold_px: flags.ThresholdPx = None,
    extra: flags.Set = None,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Evaluate relative pose on data sets: AUC at 5, 10 and 20 degrees, with intervals.

    Without --gms or --no-gms every method sees the candidates as it wants them: auto all of the
    cap, the others what the filter leaves.

    Pair i, from 1, has the seed i + b in repetition b, from 0; a pair without a pose counts 180
    degrees. The same command goes on after an interruption.
    """
    with clean_exit():
        settings = flags.matcher_settings(
            preset=preset,
            config=config,
            extra=extra,
            detector=detector,
            descriptor=descriptor,
            layer=layer,
            debias=debias,
            k=k,
            max_keypoints=max_keypoints,
            gms=gms,
            threshold_px=threshold_px,
        )
        for name in ("device", "offline", "cache"):
            del settings[name]
        chosen = MatcherConfig.of(**settings)
        configs = {
            f"rank-one-{name}" if rank_one else name: RunConfig(
                estimator=checked_estimator(name),
                association=association_of(chosen, name, rank_one=rank_one),
                options=chosen.options,
                seeds=seeds,
            )
            for name in method or [chosen.method]
        }
        with working("Opening the sets", quiet=as_json):
            sources = open_sources(
                sets,
                [chosen],
                root=root,
                k=chosen.association.k,
                device=device,
                offline=offline,
                cache=cache,
                memory_mb=memory_mb,
                longest=(longest0, longest1),
            )
        with Tracker() as tracker:
            found = run_sets(
                sources,
                configs,
                out_folder,
                workers=workers,
                limit=limit,
                progress=tracker,
            )
        tables, files = [], {}
        for label, run in configs.items():
            runs = {key: results[label] for key, results in found.items()}
            table = run_table(_title(run), runs)
            tables.append(table)
            files.update({f"{label}.md": table.markdown(), f"{label}.tex": table.latex()})
        for name, text in files.items():
            write_whole(out_folder / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
        if as_json:
            print_json(_record(configs, found, out_folder))
        else:
            _tell(tables, sources, out_folder, list(files))
    every = (one for results in found.values() for one in results.values())
    solved = any((one.column("success") > 0).any() for one in every)
    raise typer.Exit(OK if solved else UNSOLVED)


def association_of(config: MatcherConfig, estimator: str, *, rank_one: bool = False) -> Association:
    """Take from a configuration what an estimator sees of the candidates."""
    if rank_one:
        return Association.rank_one(config.association.keep)
    return config.association.for_method(estimator)


def _title(run: RunConfig) -> str:
    association = run.association
    seen = "rank-one" if association.k == 1 else f"mutual {association.k}-nearest"
    return f"{run.estimator} on {seen} candidates{', GMS' if association.gms else ''}"


def _record(
    configs: dict[str, RunConfig],
    found: dict[tuple[str, str], dict[str, RunResult]],
    folder: Path,
) -> dict[str, Any]:
    methods = {
        label: {
            "config": run.to_dict(),
            "runs": {
                f"{representation}/{name}": results[label].summary()
                for (representation, name), results in found.items()
            },
        }
        for label, run in configs.items()
    }
    return {"methods": methods, "folder": str(folder)}


def _tell(tables: list[Table], sources: Any, folder: Path, files: list[str]) -> None:
    console = out()
    for table in tables:
        show_table(table)
    for note in dict.fromkeys(note for source in sources for note in source.notes):
        console.print(note, style="dim", markup=False)
    for name in files:
        console.print(f"Written: {folder / name}", markup=False, soft_wrap=True)
    console.print(
        f"Every pair: {folder}/<representation>/<set>/<method>/pairs.parquet",
        markup=False,
        soft_wrap=True,
    )

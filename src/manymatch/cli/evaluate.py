"""``manymatch eval``: pose AUC of an estimator on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._files import write_whole
from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json, show_table, working
from manymatch.cli._progress import Tracker
from manymatch.evaluate.auc_table import run_table
from manymatch.evaluate.estimators import ESTIMATORS, checked_estimator
from manymatch.evaluate.fronts import Front
from manymatch.evaluate.run import RunConfig, run_sets
from manymatch.evaluate.sources import open_sources
from manymatch.matcher_config import MatcherConfig

EXAMPLE = "Example: manymatch eval made:ordering --no-gms --method hcm-mcm --out out/eval"

Sets = Annotated[
    list[str],
    typer.Argument(
        help="Data sets by name (see manymatch datasets) or NAME:FOLDER, folders with a list of "
        "pairs, folders of posed graphs, or made:CONFIGURATION.",
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
        str, typer.Option("--method", help=f"One of {', '.join(ESTIMATORS)}.")
    ] = "hcm-mcm",
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
        run = RunConfig(
            estimator=checked_estimator(method),
            front=front_of(chosen, rank_one=rank_one),
            options=chosen.options,
            seeds=seeds,
        )
        label = f"rank-one-{method}" if rank_one else method
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
                {label: run},
                out_folder,
                workers=workers,
                limit=limit,
                progress=tracker,
            )
        runs = {key: results[label] for key, results in found.items()}
        table = run_table(_title(method, run), runs)
        record = {
            f"{representation}/{name}": one.summary()
            for (representation, name), one in runs.items()
        }
        files = {f"{label}.md": table.markdown(), f"{label}.tex": table.latex()}
        for name, text in files.items():
            write_whole(out_folder / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
        if as_json:
            print_json({"config": run.to_dict(), "runs": record, "folder": str(out_folder)})
        else:
            _tell(table, sources, out_folder, list(files))
    solved = any((one.column("success") > 0).any() for one in runs.values())
    raise typer.Exit(OK if solved else UNSOLVED)


def front_of(config: MatcherConfig, *, rank_one: bool = False) -> Front:
    """Take from a configuration what the estimator sees of the candidates."""
    part = config.association
    if rank_one:
        return Front.rank_one(part.keep)
    return Front(part.k, part.max_edges, part.gms, part.keep)


def _title(method: str, run: RunConfig) -> str:
    front = run.front
    seen = "rank-one" if front.k == 1 else f"mutual {front.k}-nearest"
    return f"{method} on {seen} candidates{', GMS' if front.gms else ''}"


def _tell(table: Any, sources: Any, folder: Path, files: list[str]) -> None:
    console = out()
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

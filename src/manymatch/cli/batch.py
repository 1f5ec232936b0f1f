"""``manymatch batch``: many pairs in, a table out, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json
from manymatch.cli._progress import Tracker, counts_text, time_text
from manymatch.datasets import exhaustive_pairs, read_pairs
from manymatch.matcher.config import MatcherConfig, default_preset
from manymatch.runs.batch import AUC_THRESHOLDS, BatchSummary, run_batch
from manymatch.runs.runner import RunInterrupted

if TYPE_CHECKING:
    from manymatch.datasets import Pair

EXAMPLE = "Example: manymatch batch pairs.txt --images photos --out out/batch --preset classic"


def batch(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="A list of pairs (two names a line, or SuperGlue's with ground truth), or a "
            "folder: all pairs of its images."
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of the images; by default that of the list.", show_default=False),
    ] = None,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder for the tables; a run that was stopped goes on there."),
    ] = Path("out/batch"),
    workers: Annotated[
        int, typer.Option(help="Pairs worked on at the same time; 0 is one per core.", min=0)
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(help="Only the first pairs.", min=1, show_default=False)
    ] = None,
    cameras: Annotated[
        str | None,
        typer.Option(
            help="For pairs without cameras: a COLMAP model, or one camera for all images, as in "
            "manymatch match; by default from EXIF, else guessed.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also match the plain way, in further columns.")
    ] = False,
    matches: Annotated[
        bool, typer.Option("--matches", help="Also write the matches, one .npz a pair.")
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Try pairs again that ended with an error.")
    ] = False,
    memory_mb: Annotated[
        int, typer.Option(help="Features that are kept in memory, in MB.", min=0)
    ] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    preset: flags.Preset = None,
    config: flags.ConfigFile = None,
    detector: flags.Detector = None,
    descriptor: flags.Descriptor = None,
    layer: flags.Layer = None,
    debias: flags.Debias = None,
    k: flags.K = None,
    max_keypoints: flags.MaxKeypoints = None,
    gms: flags.Gms = None,
    method: flags.Method = None,
    threshold_px: flags.ThresholdPx = None,
    seed: flags.Seed = None,
    extra: flags.Set = None,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Match many pairs of images; the same command goes on after an interruption."""
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
            method=method,
            threshold_px=threshold_px,
            seed=seed,
        )
        # These are given to the run itself.
        for name in ("device", "offline", "cache"):
            del settings[name]
        listed = _pairs(pairs, images)
        chosen = MatcherConfig.of(**settings)
        if not as_json:
            _announce(listed[:limit], chosen, named="preset" in settings)
        try:
            with Tracker() as tracker:
                summary = run_batch(
                    chosen,
                    listed,
                    out_folder,
                    workers=workers,
                    device=device,
                    offline=offline,
                    cache=cache,
                    cameras=cameras,
                    compare=compare,
                    matches=matches,
                    limit=limit,
                    retry_errors=retry_errors,
                    memory_mb=memory_mb,
                    progress=tracker,
                )
        except RunInterrupted as interruption:
            _tell(interruption.result, as_json=as_json)
            raise
        _tell(summary, as_json=as_json)
    raise typer.Exit(OK if summary.with_pose else UNSOLVED)


def _pairs(pairs: Path, images: Path | None) -> list[Pair]:
    if not pairs.is_dir():
        return read_pairs(pairs, pairs.parent if images is None else images)
    if images is not None:
        raise ValueError(
            "--images must be left out where all pairs of a folder are matched, got "
            f"{str(images)!r}"
        )
    return exhaustive_pairs(pairs)


def _announce(pairs: list[Pair], config: MatcherConfig, *, named: bool) -> None:
    console = out()
    if not named:
        name, why = default_preset()
        console.print(
            f'The preset is "{name}", as none was named and {why}.', style="dim", markup=False
        )
    truth = sum(pair.has_truth for pair in pairs)
    known = f", the true pose of {truth} is known" if truth else ""
    features = config.features
    console.print(
        f"{len(pairs)} pairs{known}; {features.detector} + {features.descriptor}, "
        f"k={config.association.k}, {config.method}.",
        markup=False,
    )


def _tell(summary: BatchSummary, *, as_json: bool) -> None:
    if as_json:
        print_json(summary.to_dict())
        return
    console = out()
    earlier = summary.finished - summary.computed
    console.print(
        f"{summary.finished} of {summary.total} pairs in {time_text(summary.seconds)}"
        f"{f', {earlier} of them earlier' if earlier else ''}: {counts_text(summary.counts)}.",
        markup=False,
    )
    if summary.auc is not None:
        console.print()
        console.print(_auc_table(summary))
        console.print()
    for note in summary.notes:
        console.print(note, markup=False, style="dim")
    for path in summary.files:
        console.print(f"Written: {path}", markup=False, soft_wrap=True)


def _auc_table(summary: BatchSummary) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("pose AUC, percent")
    for threshold in AUC_THRESHOLDS:
        table.add_column(f"{threshold}°", justify="right")
    rows = {"many-to-many": summary.auc, "rank-one, plain consensus": summary.rank_one_auc}
    for name, values in rows.items():
        if values is not None:
            table.add_row(name, *(f"{value:.1f}" for value in values))
    return table

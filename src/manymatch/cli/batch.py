"""``manymatch batch``: many pairs in, a table out, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._validate import choice, count
from manymatch.batch import CAMERA_PER
from manymatch.batch.batch import AUC_THRESHOLDS, BatchSummary, as_pairs, run_batch, shard_of
from manymatch.batch.outputs import reasons_sentence
from manymatch.batch.parts import RunInterrupted
from manymatch.cli import flags
from manymatch.cli.console import (
    OK,
    UNSOLVED,
    Json,
    Tracker,
    check_file,
    counts_text,
    print_json,
    print_plain,
    print_table,
    time_text,
)
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.match_result import RANK_ONE

if TYPE_CHECKING:
    from manymatch.io.pairs import PairList

EXAMPLE = "Example: manymatch batch pairs.txt --images photos --out out/batch --preset classic"
HINT = "several images are matched by their folder, or by a list with the names of two in each line"


@flags.setting_flags()
def run(
    pairs: Annotated[
        Path,
        "A list of pairs (two names a line, CSV, or SuperGlue's with ground truth), or a folder: "
        "all pairs of its images.",
    ],
    images: Annotated[
        Path | None,
        "Folder of the images, also an address such as s3://bucket/photos; by default that of the "
        "list.",
    ] = None,
    out: Annotated[
        Path,
        "Folder for the tables, also an address such as s3://bucket/run; an interrupted run "
        "continues there.",
    ] = Path("out/batch"),
    workers: flags.Workers = 0,
    limit: flags.Limit = None,
    cameras: Annotated[
        str | None,
        "For pairs without cameras: a COLMAP model, or one camera for all images as in manymatch "
        "match; by default focal lengths are found.",
    ] = None,
    camera_per: flags.CameraPer = "pair",
    with_rank_one: flags.WithRankOne = False,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="Also keep the matches (parquet), and write them at the end: npz (one file a "
            "pair), h5 (hloc), colmap (text), colmap-db (a database for COLMAP's mappers), html "
            "(a page with pictures by verdict); several by commas, or repeated.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        "Do every 16th block from the third on with 3/16, each shard on a machine of its own. Copy "
        "the folders into one to join them; the same command without --shard then writes tables "
        "and files.",
    ] = None,
    block: Annotated[
        int | None, "Pairs of a block, which is finished and written as a whole."
    ] = None,
    retry_errors: flags.RetryErrors = False,
    memory_mb: flags.MemoryMb = 512,
    engine: Annotated[
        str,
        "Who matches the pairs: this machine (local), or a Ray cluster (ray) whose machines find "
        "the images under the same paths.",
    ] = "local",
    address: Annotated[
        str | None,
        "With --engine ray: auto or host:port of the head of a cluster; by default Ray is started "
        "here and stopped at the end.",
    ] = None,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Match many pairs of images; the same command continues after an interruption.

    Several machines work on one batch by --shard, or with --engine ray as a Ray cluster: manymatch
    batch pairs.txt --images photos --engine ray --address auto.

    Exit codes: 0 if every pair was run and at least one has a pose, 1 if pairs could not be run or
    none has a pose, 2 if the input is bad, 3 if the Ray cluster was lost, 130 after Ctrl-C.
    """
    per: Any = choice(camera_per, "--camera-per", CAMERA_PER)
    check_file(pairs, "pairs", "a list of pairs or a folder of images")
    listed: Any = as_pairs(pairs, images)
    config = MatcherConfig.of(**settings)
    shard_of(shard)
    if not as_json:
        _announce(listed[:limit], config)
    try:
        with Tracker() as tracker:
            summary = run_batch(
                listed,
                None,
                out,
                config,
                workers=workers,
                cameras=cameras,
                camera_per=per,
                with_rank_one=with_rank_one,
                formats=flags.split_list(*(formats or ())),
                limit=limit,
                shard=shard,
                block=block,
                retry_errors=retry_errors,
                memory_mb=memory_mb,
                engine=engine,
                address=address,
                progress=tracker,
                **runtime,
            )
    except RunInterrupted as stop:
        print_summary(stop.result, as_json=as_json)
        raise
    print_summary(summary, as_json=as_json)
    raise typer.Exit(OK if summary.with_pose and not summary.reasons else UNSOLVED)


def _announce(pairs: PairList, config: MatcherConfig) -> None:
    for note in config.notes:
        print_plain(note, style="dim")
    truth = len(pairs.posed)
    known = f", the true pose of {truth} is known" if truth else ""
    print_plain(
        f"{count(len(pairs), 'pair')}{known}; {config.title}, k={config.sources[0].association.k}, "
        f"{config.method}."
    )


def print_summary(summary: BatchSummary, *, as_json: bool) -> None:
    """Print what a batch did, as sentences and a table or as JSON."""
    if as_json:
        print_json(summary.to_dict())
        return
    print_plain(_summary(summary))
    if summary.auc is not None:
        angles = {f"{threshold}°": "right" for threshold in AUC_THRESHOLDS}
        rows = {"many-to-many": summary.auc, RANK_ONE: summary.rank_one_auc}
        print_table(
            {"pose AUC, percent": "left", **angles},
            ([name, *(f"{value:.1f}" for value in row)] for name, row in rows.items() if row),
        )
    for note in summary.notes:
        print_plain(note, style="dim")
    for path in summary.files:
        print_plain(f"Written: {path}")
    if summary.reasons:
        print_plain(f"{_errors(summary)} --retry-errors tries again.", style="red")


def _errors(summary: BatchSummary) -> str:
    said = reasons_sentence(summary.reasons, "could not be run", summary.finished)
    if not summary.unreadable:
        return said
    images = f"{summary.unreadable:,} of {count(summary.images, 'image')} could not be read"
    return f"{images}, so {said}"


def _summary(summary: BatchSummary) -> str:
    earlier = summary.finished - summary.computed
    return (
        f"{summary.finished:,} of {count(summary.total, 'pair')} in {time_text(summary.seconds)}"
        f"{f', {earlier:,} of them earlier' if earlier else ''}: {counts_text(summary.counts)}."
    )

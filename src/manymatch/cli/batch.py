"""``manymatch batch``: many pairs in, a table out, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._validate import choice, count
from manymatch.batch import CAMERA_PER
from manymatch.batch.batch import BatchSummary, as_pairs, run_batch, shard_of
from manymatch.batch.outputs import reasons_sentence
from manymatch.batch.parts import RunInterrupted
from manymatch.cli import console, flags
from manymatch.matcher.config import MatcherConfig

EXAMPLE = "Example: manymatch batch pairs.txt --images photos --out out/batch --preset classic"
HINT = "several images are matched by their folder, or by a list with the names of two in each line"


@flags.setting_flags(
    passed={
        run_batch: "images out cameras camera_per formats workers limit shard block "
        "retry_errors memory_mb engine address"
    }
)
def run(
    pairs: Annotated[
        Path,
        "A list of pairs (two names a line, CSV, or SuperGlue's with ground truth), or a folder: "
        "all pairs of its images.",
    ],
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Match many pairs of images; the same command continues after an interruption.

    Several machines work on one batch by --shard, or with --engine ray as a Ray cluster whose
    machines find the images under the same paths: manymatch batch pairs.txt --images photos
    --engine ray --address auto.

    Exit codes: 0 if every pair was run and at least one has a pose, 1 if pairs could not be run or
    none has a pose, 2 if the input is bad, 3 if the Ray cluster was lost, 130 after Ctrl-C.
    """
    console.check_file(pairs, "pairs", "a list of pairs or a folder of images")
    listed: Any = as_pairs(pairs, passed.pop("images"))
    passed["formats"] = flags.split_list(*(passed["formats"] or ()))
    config = MatcherConfig.of(**settings)
    # Before anything is printed.
    choice(passed["camera_per"], "--camera-per", CAMERA_PER)
    shard_of(passed["shard"])
    if not as_json:
        for note in config.notes:
            console.print_plain(note, style="dim")
        pairs_text = count(len(listed[: passed["limit"]]), "pair")
        k = config.sources[0].association.k
        console.print_plain(f"{pairs_text}; {config.title}, k={k}, {config.method}.")
    try:
        with console.Tracker() as tracker:
            summary = run_batch(listed, config=config, progress=tracker, **passed, **runtime)
    except RunInterrupted as stop:
        print_summary(stop.result, as_json=as_json)
        raise
    print_summary(summary, as_json=as_json)
    raise typer.Exit(console.OK if summary.with_pose and not summary.reasons else console.UNSOLVED)


def print_summary(summary: BatchSummary, *, as_json: bool) -> None:
    """Print what a batch did, as sentences and a table or as JSON."""
    if as_json:
        console.print_json(summary.to_dict())
        return
    earlier, seconds = summary.finished - summary.computed, console.time_text(summary.seconds)
    console.print_plain(
        f"{summary.finished:,} of {count(summary.total, 'pair')} in {seconds}"
        f"{f', {earlier:,} of them earlier' if earlier else ''}: "
        f"{console.counts_text(summary.counts)}."
    )
    for note in summary.notes:
        console.print_plain(note, style="dim")
    for path in summary.files:
        console.print_plain(f"Written: {path}")
    if summary.reasons:
        said = reasons_sentence(summary.reasons, "could not be run", summary.finished)
        if summary.unreadable:
            images = f"{summary.unreadable:,} of {count(summary.images, 'image')} could not be read"
            said = f"{images}, so {said}"
        console.print_plain(f"{said} --retry-errors tries again.", style="red")

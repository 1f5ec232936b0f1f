"""``manymatch eval``: pose AUC of an estimator on data sets."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch.associate.candidates import NEAREST, Association
from manymatch.batch import CAMERA_PER
from manymatch.cli import flags
from manymatch.cli.console import OK, UNSOLVED, Json, Tracker, print_json, print_plain, working
from manymatch.io.files import LONGEST_NAME, local_path, output_folder, safe_name, write_text
from manymatch_lab.checks import choice, count
from manymatch_lab.evaluate.estimators import ESTIMATORS, checked_estimator
from manymatch_lab.evaluate.inputs import ImageGraphs, open_graphs
from manymatch_lab.evaluate.protocol import PAPER, assumptions, differences, protocol_sentence
from manymatch_lab.evaluate.run import RunConfig, RunResult, run_sets
from manymatch_lab.evaluate.run_tables import run_table
from manymatch_lab.evaluate.tables import show_table
from manymatch_lab.flags import (
    Limit,
    Longest0,
    Longest1,
    MemoryMb,
    RetryErrors,
    Root,
    Seeds,
    Sets,
    Workers,
)

if TYPE_CHECKING:
    _Found = dict[tuple[str, str], dict[str, RunResult]]

EXAMPLE = "Example: manymatch eval synthetic:ordering --method auto --method cm --out out/eval"


# The pair and the repetition decide about the seed.
@flags.setting_flags(only=set(flags.FLAGS) - {"method", "seed"})
def run(
    sets: Sets,
    root: Root = None,
    images: Annotated[
        Path | None, "Folder of the images of a list of pairs, if they are not beside the list."
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(ESTIMATORS)}; by default that of the configuration. "
            "Repeatable, for several on the same candidates."
        ),
    ] = None,
    rank_one: Annotated[
        bool, typer.Option("--rank-one", help="Only mutual nearest neighbours, not filtered.")
    ] = False,
    unknown_focal: Annotated[
        bool,
        typer.Option(
            "--unknown-focal",
            help="Hide the cameras: focal lengths are found from the images, and their errors are "
            "part of the results.",
        ),
    ] = False,
    camera_per: Annotated[
        str, f"Which images share an unknown focal length: {', '.join(CAMERA_PER)}."
    ] = "pair",
    protocol: flags.Protocol = None,
    seeds: Seeds = PAPER.seeds,
    limit: Limit = None,
    workers: Workers = 0,
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results; an interrupted run continues there."),
    ] = Path("out/eval"),
    longest0: Longest0 = None,
    longest1: Longest1 = None,
    retry_errors: RetryErrors = False,
    memory_mb: MemoryMb = 512,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Evaluate relative pose on data sets: AUC at 5, 10 and 20 degrees, with intervals.

    Without --set gms every method gets its usual candidates: auto all of the cap, the
    others those that pass the filter.

    With --protocol paper all settings are the paper's, apart from those that are given as flags. In
    any case a line says in which points the run differs from the paper's protocol.

    Pair i, from 1, has the seed i + b in repetition b, from 0; a pair without a pose counts 180
    degrees. Working sizes are those of the preset, of the set's own file, or of --longest0 and
    --longest1, the last ones strongest.

    The same command continues after an interruption. Exit codes: 0 if every pair was run and at
    least one has a pose, 1 if pairs could not be run or none has a pose, 2 if the input is bad, 130
    after Ctrl-C.
    """
    per: Any = choice(camera_per, "--camera-per", CAMERA_PER)
    config = flags.protocol_config(protocol, settings)
    associations = [source.association for source in config.sources]
    deepest = max(one.k for one in associations)
    association, *further = (
        Association.rank_one(one.keep) if rank_one else dataclasses.replace(one, matcher=NEAREST)
        for one in associations
    )
    configs = {
        f"rank-one-{name}" if rank_one else name: RunConfig(
            estimator=checked_estimator(name),
            association=association,
            further=tuple(further),
            options=config.options,
            seeds=seeds,
            unknown_focal=unknown_focal,
            camera_per=per,
        )
        for name in method or [config.method]
    }
    output_folder(local_path(out_folder, "--out"), "--out")
    with working("Opening the sets", quiet=as_json):
        sources = open_graphs(
            sets,
            [config],
            root=root,
            k=deepest,
            memory_mb=memory_mb,
            longest=(longest0, longest1),
            images=images,
            **runtime,
        )
    # Graphs and synthetic scenes come with candidates, so the preset does not matter there.
    if not as_json and any(isinstance(source, ImageGraphs) for source in sources):
        for note in config.notes:
            print_plain(note, style="dim")
    with Tracker() as tracker:
        found = run_sets(
            sources,
            configs,
            out_folder,
            workers=workers,
            limit=limit,
            progress=tracker,
            retry_errors=retry_errors,
        )
    files = {}
    for label in configs:
        table = run_table(
            {key: results[label] for key, results in found.items()},
            protocol_sentence(_differences(found, label), _assumed(found, label)),
        )
        name = _table_name(label, list(found), limit)
        files.update({f"{name}.md": table.markdown(), f"{name}.tex": table.latex()})
        if not as_json:
            show_table(table)
    every = [one for results in found.values() for one in results.values()]
    # Pairs of a set that could not be run with at least one method.
    not_run = sum(
        len({r["index"] for one in results.values() for r in one.records if "error" in r})
        for results in found.values()
    )
    if as_json:
        written = [str(out_folder / name) for name in files]
        about = {"methods": _record(configs, found), "folder": str(out_folder)}
        print_json({**about, "not_run": not_run, "files": written})
    for name, text in files.items():
        write_text(out_folder / name, text)
    if not as_json:
        for note in dict.fromkeys(note for source in sources for note in source.notes):
            print_plain(note, style="dim")
        for name in files:
            print_plain(f"Written: {out_folder / name}")
        places = [one.folder for one in every]
        place = places[0] if len(places) == 1 else out_folder / "<preset>" / "<set>" / "<method>"
        print_plain(f"Every pair: {place / 'pairs.csv'}")
        if not_run:
            print_plain(
                f"{count(not_run, 'pair')} could not be run, for the reasons above; "
                "--retry-errors tries them again.",
                style="red",
            )
    solved = any((one.column("success") > 0).any() for one in every)
    raise typer.Exit(OK if solved and not not_run else UNSOLVED)


def _table_name(label: str, keys: list[tuple[str, str]], limit: int | None) -> str:
    """Name the files of a table by what it holds: features, sets, method, and how many pairs."""
    representations, names = ("+".join(dict.fromkeys(part)) for part in zip(*keys, strict=True))
    first = "" if limit is None else f"-first{limit}"
    name = safe_name(f"{representations}-{names}-{label}{first}")
    # Room for the ending.
    if len(name) <= LONGEST_NAME - 8:
        return name
    digest = hashlib.sha256(names.encode()).hexdigest()[:8]
    return safe_name(f"{representations}-{len(keys)}_sets_{digest}-{label}{first}")


def _differences(found: _Found, label: str) -> list[str]:
    return differences(results[label].recorded() for results in found.values())


def _assumed(found: _Found, label: str) -> list[str]:
    return assumptions(results[label].recorded() for results in found.values())


def _record(configs: dict[str, RunConfig], found: _Found) -> dict[str, Any]:
    return {
        label: {
            "config": config.to_dict(),
            "differs_from_paper": _differences(found, label),
            "assumed": _assumed(found, label),
            "runs": {
                "/".join(key): {
                    "source": results[label].header["source"],
                    **results[label].summary(),
                }
                for key, results in found.items()
            },
        }
        for label, config in configs.items()
    }

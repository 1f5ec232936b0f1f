"""The command ``manymatch-lab``: one subcommand an experiment, its flags from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from manymatch.cli.console import (
    UNSOLVED,
    Json,
    Tracker,
    clean_exit,
    print_json,
    print_plain,
    working,
)
from manymatch.io.files import output_folder
from manymatch.viz import require_matplotlib
from manymatch_lab.datasets.navi_split import make_navi_split
from manymatch_lab.engine import EXPERIMENTS, experiment, load_report, report_of
from manymatch_lab.evaluate.protocol import PAPER_NAME, checked_protocol
from manymatch_lab.evaluate.tables import show_table
from manymatch_lab.flags import Flag, bind, signature_of

app = typer.Typer(
    name="manymatch-lab",
    help="Produce the paper's figures and tables from data, with the paper's numbers beside.",
    epilog="Example: manymatch-lab q2 synthetic:ordering --no-gms --seeds 2 --out out/q2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar=PAPER_NAME,
        help="Whose settings the other flags have where they are not given. There is only the "
        "paper's protocol; the report says in which points a run differs from it.",
    ),
]


def command_of(name: str, module: ModuleType) -> Callable[..., None]:
    """Make the function of a subcommand, with the signature that Typer turns into flags."""
    flags: dict[str, Flag] = {}
    arguments = bind(module.run, flags)
    text = "Folder of the results; a run that was stopped resumes there."
    form = Annotated[Path, typer.Option("--out", help=text)]
    flags["folder"] = Flag(form, Path("out") / name)
    flags["protocol"] = Flag(_Protocol, PAPER_NAME)
    flags["as_json"] = Flag(Json, default=False)

    def command(**given: Any) -> None:
        with clean_exit():
            # Figures need it; better to know before hours of work than after.
            require_matplotlib()
            tracker = Tracker()
            checked_protocol(given["protocol"])
            output_folder(given["folder"], "--out")
            values = {key: flags[key].convert(value) for key, value in given.items()}
            with working("Opening the sets", quiet=values["as_json"]):
                found = arguments({**values, "progress": tracker})
            with tracker:
                data = module.run(**found or {})
            _finish(name, data, values["folder"], as_json=values["as_json"])
            if data.get("not_run"):
                raise typer.Exit(UNSOLVED)

    command.__signature__ = signature_of(flags)  # type: ignore[attr-defined]
    command.__annotations__ = {key: flag.annotation for key, flag in flags.items()}
    return command


def _finish(name: str, data: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    """Write tables, figures and data of an experiment, and show the tables."""
    report = report_of(name, data)
    files = report.write(folder)
    if as_json:
        print_json({"experiment": name, **data, "files": [str(path) for path in files]})
        return
    for table in report.tables:
        show_table(table)
        print_plain("")
    for note in report.notes:
        print_plain(note, style="dim")
    _print_files(files)


def _print_files(files: list[Path]) -> None:
    for path in files:
        print_plain(f"Written: {path}")


def _add_experiments() -> None:
    for name in EXPERIMENTS:
        module = experiment(name)
        # The question stands in the list of the commands, the rest in the help of this one.
        paragraphs = (inspect.getdoc(module.run) or "").split("\n\n")
        about = "\n\n".join([module.QUESTION, *(" ".join(p.split()) for p in paragraphs)])
        app.command(name, help=about, epilog=f"Example: {module.EXAMPLE}")(command_of(name, module))


@app.command("draw", epilog="Example: manymatch-lab draw out/q1/q1.json --out figures")
def draw(
    file: Annotated[Path, typer.Argument(help="JSON that an experiment wrote.")],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder; by default that of the file.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make tables and figures again from the JSON of an experiment."""
    with clean_exit():
        files = load_report(file).write(file.parent if folder is None else folder)
        if as_json:
            print_json({"files": [str(path) for path in files]})
        else:
            _print_files(files)


@app.command(
    "navi-split", epilog="Example: manymatch-lab navi-split data/navi data/navi/splits/navi"
)
def navi_split(
    root: Annotated[Path, typer.Argument(help="Folder of NAVI.")],
    target: Annotated[Path, typer.Argument(help="Folder in which the lists are written.")],
    pairs: Annotated[int, typer.Option(help="Pairs of each viewpoint bin and list.")] = 500,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Json = False,
) -> None:
    """Make two lists of pairs of NAVI-Wild, for poses and for recall, without a common image."""
    with clean_exit():
        with working("Choosing pairs", quiet=as_json):
            manifest = make_navi_split(root, target, pairs=pairs, seed=seed)
        if as_json:
            print_json(manifest)
            return
        total = 3 * manifest["pairs_per_bin"]
        print_plain(f"Two lists of {total:,} pairs of {manifest['objects']} objects in {target}:")
        for finding in manifest["audit"]:
            print_plain(f"  {finding['constraint']}: {'yes' if finding['holds'] else 'no'}")


_add_experiments()

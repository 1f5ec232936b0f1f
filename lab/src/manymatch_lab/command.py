"""The command ``manymatch-lab``: one subcommand an experiment, its flags from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from manymatch.cli.app import LAB_COMMANDS
from manymatch.cli.app import app as library
from manymatch.cli.console import (
    UNSOLVED,
    Json,
    Tracker,
    clean_exit,
    print_json,
    print_plain,
    working,
)
from manymatch.cli.flags import Cache, Offline
from manymatch.io.files import output_folder
from manymatch.viz import require_matplotlib
from manymatch_lab.engine import (
    EXPERIMENTS,
    ExperimentReport,
    experiment,
    load_report,
    report_of,
)
from manymatch_lab.evaluate.protocol import PAPER, PAPER_NAME, checked_protocol
from manymatch_lab.evaluate.result_tree import import_tree
from manymatch_lab.evaluate.tables import show_table
from manymatch_lab.everything import PAPER_ITEMS, Found, Page, attempts, discovered
from manymatch_lab.flags import Flag, Limit, Root, Seeds, Sets, Workers, bind, signature_of

#: Report of an experiment, and the files that it has written.
Made: TypeAlias = tuple[ExperimentReport, list[Path]]

app = typer.Typer(
    name="manymatch-lab",
    help="Evaluate, and produce the paper's figures and tables with the paper's numbers beside.",
    epilog="Example: manymatch-lab q2 synthetic:ordering --no-gms --seeds 2 --out out/q2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Out = Annotated[
    Path, typer.Option("--out", help="Folder of the results; a run that was stopped resumes there.")
]
_Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar=PAPER_NAME,
        help="Whose settings the other flags have where they are not given. There is only the "
        "paper's protocol; the report says in which points a run differs from it.",
    ),
]


# All arguments, also --help, are passed on to the command that ``manymatch`` has as well.
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def _pass_on(context: typer.Context) -> None:
    library([str(context.info_name), *context.args], prog_name="manymatch-lab")


def _prepared(name: str) -> tuple[dict[str, Flag], Callable[[dict[str, Any]], Made]]:
    """Return the flags of an experiment, and a function that runs it with their values."""
    module = experiment(name)
    flags: dict[str, Flag] = {}
    arguments = bind(module.run, flags)
    flags["folder"] = Flag(_Out, Path("out") / name)
    flags["protocol"] = Flag(_Protocol, PAPER_NAME)
    flags["as_json"] = Flag(Json, default=False)

    def execute(given: dict[str, Any]) -> Made:
        # Figures need it: refuse before hours of work, not after them.
        require_matplotlib()
        tracker = Tracker()
        checked_protocol(given["protocol"])
        output_folder(given["folder"], "--out")
        values = {key: flags[key].convert(value) for key, value in given.items()}
        with working("Opening the sets", quiet=values["as_json"]):
            found = arguments({**values, "progress": tracker})
        with tracker:
            data: dict[str, Any] = module.run(**found or {})
        report = report_of(name, data)
        return report, report.write(values["folder"])

    return flags, execute


def _show(report: ExperimentReport, files: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        written = {"files": [str(path) for path in files]}
        print_json({"experiment": report.name, **report.data, **written})
        return
    for table in report.tables:
        show_table(table)
        print_plain("")
    for note in report.notes:
        print_plain(note, style="dim")
    for path in files:
        print_plain(f"Written: {path}")


def _add_experiment(name: str) -> None:
    module = experiment(name)
    flags, execute = _prepared(name)

    def command(**given: Any) -> None:
        with clean_exit():
            report, files = execute(given)
            _show(report, files, as_json=given["as_json"])
            if report.data.get("not_run"):
                raise typer.Exit(UNSOLVED)

    command.__signature__ = signature_of(flags)  # type: ignore[attr-defined]
    command.__annotations__ = {key: flag.annotation for key, flag in flags.items()}
    # The question stands in the list of the commands, the rest in the help of this one.
    paragraphs = (inspect.getdoc(module.run) or "").split("\n\n")
    about = "\n\n".join([module.QUESTION, *(" ".join(p.split()) for p in paragraphs)])
    app.command(name, help=about, epilog=f"Example: {module.EXAMPLE}")(command)


@app.command("all", epilog="Example: manymatch-lab all --root data --out out/all --limit 20")
def run_all(
    sets: Sets = (),  # type: ignore[assignment]
    root: Root = None,
    preset: Annotated[
        str | None, typer.Option(help="Features in place of the paper's, for sets of images.")
    ] = None,
    systems: Annotated[str, typer.Option(help="Of q4: paper or all.")] = "paper",
    seeds: Seeds = PAPER.seeds,
    max_iterations: Annotated[
        int, typer.Option(help="Most iterations of an estimate.", min=1)
    ] = int(PAPER.options.max_iterations),
    limit: Limit = None,
    workers: Workers = 0,
    offline: Offline = False,
    cache: Cache = None,
    folder: _Out = Path("out/all"),
) -> None:
    """Make every table and figure of the paper that data and weights allow, on one page.

    With --root alone, the paper's sets in that folder are taken or, where there are none, all other
    sets in it. index.html in --out has the paper's numbers beside ours, and says what could not be
    run and why. The same command continues after an interruption.
    """
    with clean_exit():
        found = discovered(root) if root is not None and not sets else Found(list(sets))
        budget = {"max_iterations": max_iterations, "iterations": max_iterations}
        common = {"root": root, "systems": systems, "seeds": seeds, "limit": limit, **budget}
        common |= {"workers": workers, "offline": offline, "cache": cache}
        page = Page(folder, found.missing)
        for name in PAPER_ITEMS:
            print_plain(f"{name}: {experiment(name).QUESTION}", style="bold")
            flags, execute = _prepared(name)
            defaults = {key: flag.default for key, flag in flags.items()}
            defaults |= {key: value for key, value in common.items() if key in flags}
            if seeds == PAPER.seeds:
                defaults |= {key: f.default for key, f in flags.items() if key == "seeds"}
            for given in attempts(name, found, preset):
                chosen = {key: value for key, value in given.items() if key in flags}
                try:
                    report, _ = execute({**defaults, **chosen, "folder": folder / name})
                except (ValueError, ImportError) as error:
                    page.failed[name] = " ".join(str(error).split())
                else:
                    page.reports[name] = report
                    break
            page.write()
            why = f": {page.failed[name]}" if name in page.failed else ""
            print_plain(f"{page.state(name)}{why}", style="" if name in page.reports else "red")
        print_plain(f"Written: {page.path}")
        if not page.reports:
            raise typer.Exit(UNSOLVED)


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
        for path in () if as_json else files:
            print_plain(f"Written: {path}")


@app.command("import-tree", epilog="Example: manymatch-lab import-tree results out/graphs")
def import_result_tree(
    tree: Annotated[Path, typer.Argument(help="Result tree of the paper's code.")],
    target: Annotated[Path, typer.Argument(help="Folder in which posed graphs are written.")],
    method: Annotated[
        str | None,
        typer.Option(help="Folder of associations below a subset, if there are several."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read associations and poses of the paper's code as graphs for q1, q2, q3 and sensitivity."""
    with clean_exit():
        with working("Reading the tree", quiet=as_json):
            entries = import_tree(tree, target, method)
        if as_json:
            print_json({"sets": entries})
            return
        for entry in entries:
            print_plain(
                f"{entry['representation']}, {entry['set']}: {entry['pairs']:,} pairs, median of "
                f"{entry['median_edges']:,.0f} candidates, in {entry['folder']}"
            )


for _name, _help in LAB_COMMANDS.items():
    app.command(_name, help=_help, context_settings=_PASSED_ON)(_pass_on)
for _name in EXPERIMENTS:
    _add_experiment(_name)

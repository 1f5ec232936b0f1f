"""The ``manymatch`` command."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import operator
import os
import shlex
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
)
from typer.core import TyperCommand, TyperGroup

from manymatch._validate import choice, refusal, suggest
from manymatch.cli import console
from manymatch.cli.console import UsageError, clean_exit, print_plain
from manymatch.io.remote import located

# Commands by module, and the first sentence of their help, in the order of the listing.
COMMANDS = {
    "demo": "Match two photographs that come with the package, and write pictures and a report.",
    "match": "Find the relative pose of two images and their one-to-one matches.",
    "batch": "Match many pairs of images; the same command continues after an interruption.",
    "reconstruct": "Reconstruct a scene from photographs: camera poses, points and a page.",
    "localize": "Find out where photographs were taken, in a model of the place.",
    "align": "Warp the second image onto the first, by a homography or an affine map.",
    "solve": "Estimate a pose, a matrix or a transform from candidates of your own.",
    "app": "Open a page in the browser that matches photographs that you drop there.",
    "models": "List models and presets, whether their weights are here, and how to get them.",
}
# The module of a command has its name, but for this one, whose name is that of this module.
_OTHER_MODULES = {"app": "serve"}
# Commands of the lab, a package of its own that names their modules by entry points.
LAB_COMMANDS = {
    "eval": "Evaluate relative pose on data sets: AUC at 5, 10 and 20 degrees, with intervals.",
    "compare": "Compare two runs on the same pairs: differences of the AUC with intervals.",
    "datasets": "List data sets, where to get them, and whether a folder has all of one.",
    "pca": "Colour two images by the first principal components of their feature maps.",
}
SHELLS = ("bash", "zsh", "fish")
# Variable by which the scripts of Typer ask for completions.
_COMPLETE = "_MANYMATCH_COMPLETE"
_TYPER: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


# Stands for `Path`, and has its name in the help: Typer would make a local path of an address.
_Location: Any = type("path", (), {})


def _converted_here(parts: list[Any], hints: dict[str, Any]) -> list[Any]:
    """Have parameters convert texts and paths themselves, and other values by Typer.

    Typer imports pydantic for that, which takes longer than reading two photographs.
    """
    for part in parts:
        # A second call finds the parameters of the first.
        if "process_value" not in vars(part):
            part.process_value = _conversion(part, hints.get(part.name))
    return parts


def _conversion(part: Any, hint: Any) -> Any:
    several = getattr(part, "multiple", False) or part.nargs == -1
    by_typer = part.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        text = isinstance(value, str) and not several and part.callback is None
        if value is None and not part.required:
            nothing = () if several else None
            return nothing if part.callback is None else part.callback(ctx, part, nothing)
        if text and hint in (str, str | None):
            return value
        if text and hint in (_Location, _Location | None):
            # What is refused is refused by Typer, in its words.
            with contextlib.suppress(ValueError):
                return located(value)
        try:
            return by_typer(ctx, value)
        except typer.BadParameter:
            if hint not in (int, int | None, float, float | None):
                raise
            want = "a number" if hint in (float, float | None) else "a whole number"
            raise refusal(part.opts[0], want, value) from None

    return process_value


class _Command(TyperCommand):
    """A command; `hints` are the types of its parameters."""

    hints: ClassVar[dict[str, Any]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        return _converted_here(super().get_params(ctx), self.hints)


class _Commands(TyperGroup):
    """The group of all commands; the module of a command is imported when it is called.

    A module has a function `run` and a text `EXAMPLE`. If it has a text `HINT`, the error about
    superfluous arguments ends with it.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _converted_here(super().get_params(ctx), {})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [*COMMANDS, *LAB_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        # Enough for the listing; `resolve_command` loads the one that runs.
        text = (COMMANDS | LAB_COMMANDS).get(cmd_name)
        return None if text is None else TyperCommand(cmd_name, help=text)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "help":
            # "help match" is "match --help", "help" and "help help" are the listing.
            args = [*(name for name in args[1:2] if name != "help"), "--help"]
            if len(args) == 1:
                typer.echo(ctx.get_help())
                raise typer.Exit
        name, known = args[0], self.list_commands(ctx)
        if name not in known:
            raise UsageError(_unknown_command(args, known), ctx)
        with clean_exit():
            module = _module(name)
        paragraphs = inspect.cleandoc(module.run.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(part.split()) for part in paragraphs)
        command = _command(name, module.run, help=text, epilog=module.EXAMPLE)
        command.hint = getattr(module, "HINT", "")
        command.settings = getattr(module.run, "settings", ())
        return name, command, args[1:]

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        with clean_exit():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        with clean_exit():
            return super().invoke(ctx)


def module_name(command: str) -> str:
    """Return the full name of the module of a command."""
    return f"manymatch.cli.{_OTHER_MODULES.get(command, command)}"


def _module(name: str) -> Any:
    if name in COMMANDS:
        return importlib.import_module(module_name(name))
    for point in metadata.entry_points(group="manymatch.commands", name=name):
        return point.load()
    raise ValueError(
        f"manymatch {name} needs the package manymatch-lab, which is not installed; in a clone of "
        "the repository: pip install ./lab"
    )


_LOCATIONS: dict[Any, Any] = {
    Path: _Location,
    Path | None: _Location | None,
    list[Path] | None: list[_Location] | None,
}
# Switches take no value, and lists one at a time.
_METAVARS: dict[Any, str] = {bool: "", bool | None: "", list[str] | None: "<str>"}


def _command(name: str, function: Any, **settings: Any) -> Any:
    """Make a command of a function whose parameters are all annotated.

    ``Annotated[int, "How many."]`` is an option, or without a default an argument, with this help.
    Every path may also be an address of fsspec.
    """
    parameters = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        hint, detail = get_args(parameter.annotation)
        if isinstance(detail, str):
            make = typer.Argument if parameter.default is parameter.empty else typer.Option
            detail = make(help=detail)
        if hint in _LOCATIONS:
            hint, detail = _LOCATIONS[hint], copy.copy(detail)
            detail.parser = located
        elif hint in _METAVARS and detail.metavar is None:
            detail = copy.copy(detail)
            detail.metavar = _METAVARS[hint]
        annotation = operator.getitem(Annotated, (hint, detail))
        parameters.append(parameter.replace(annotation=annotation))

    def run(**given: Any) -> None:
        function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    single = typer.Typer(**_TYPER)
    single.command(name, cls=_Command, **settings)(run)
    command = typer.main.get_command(single)
    command.hints = {one.name: get_args(one.annotation)[0] for one in parameters}  # type: ignore[attr-defined]
    return command


def _unknown_command(args: list[str], known: list[str]) -> str:
    """Say that there is no such command, and what was probably meant."""
    if os.path.exists(args[0]):  # noqa: PTH110
        given = shlex.join(args)
        return f"a command must come first, got {args[0]!r}, did you mean: manymatch match {given}"
    close = suggest(args[0].lower(), [*known, "--version", "--help"])
    return f"the command must be one of {', '.join(known)}, got {args[0]!r}{close}"


app = typer.Typer(
    name="manymatch",
    cls=_Commands,
    help="Keep several candidates per keypoint and let geometry choose among them.",
    epilog="Start with: manymatch demo",
    no_args_is_help=True,
    **_TYPER,
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and leave.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also libraries and processor.")
    ] = False,
    completion: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(SHELLS),
            help="Print a script that completes commands, options and values with the Tab key. "
            'Bash: eval "$(manymatch --completion bash)"',
        ),
    ] = None,
) -> None:
    if completion is not None:
        shell = choice(completion, "--completion", SHELLS)
        names = {"prog_name": "manymatch", "complete_var": _COMPLETE}
        typer.echo(get_completion_script(**names, shell=shell))
        raise typer.Exit
    if not version:
        return
    from manymatch import __version__

    print_plain(f"manymatch {__version__}")
    if verbose:
        from manymatch import _core
        from manymatch.features.device import library_versions

        for name, number in library_versions().items():
            print_plain(f"{name} {number}")
        chosen = _core.instruction_set()
        others = ", ".join(name for name in _core.instruction_sets() if name != chosen)
        print_plain(f"instruction set {chosen} (also here: {others or 'none'})")
        print_plain(f"cores {os.cpu_count()}")
    raise typer.Exit


def main() -> None:
    """Run the installed command."""
    if _COMPLETE in os.environ:
        # A shell asks for the next word; an error would be written into the line being typed.
        completion_init()
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    # A stream that the caller closed.
    sys.stdout, sys.stderr = (s or open(os.devnull, "w") for s in (sys.stdout, sys.stderr))  # noqa: SIM115, PTH123
    warnings.showwarning = lambda message, *_: console.print_error(str(message))
    console.run_as_process = True
    app(prog_name="manymatch")

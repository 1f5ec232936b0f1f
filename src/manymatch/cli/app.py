"""The ``manymatch`` command."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import operator
import os
import shlex
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from manymatch._validate import suggest
from manymatch.cli.console import UsageError, clean_exit, print_plain
from manymatch.io.remote import located

if TYPE_CHECKING:
    from collections.abc import Callable

# Module of a command, and the first sentence of its help, in the order of the listing.
COMMANDS = {
    "demo": "Match two photographs that come with the package, and write pictures and a report.",
    "match": "Find the relative pose of two images and their one-to-one matches.",
    "batch": "Match many pairs of images; the same command continues after an interruption.",
    "batch-merge": "Join the shards of a batch into one batch, as one run would have made it.",
    "align": "Warp the second image onto the first, by a homography or an affine map.",
    "solve": "Estimate a pose, a matrix or a transform from candidates of your own.",
    "models": "List models and presets, whether their weights are here, and how to get them.",
    "pca": "Colour two images by the first principal components of their feature maps.",
}
# Commands of the lab, a package of its own; it names their modules by entry points.
LAB_COMMANDS = {
    "eval": "Evaluate relative pose on data sets: AUC at 5, 10 and 20 degrees, with intervals.",
    "compare": "Compare two runs on the same pairs: differences of the AUC with intervals.",
    "datasets": "List data sets, where to get them, and whether a folder has all of one.",
}
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def command_group(package: str, commands: dict[str, str]) -> type[TyperGroup]:
    """Make a group whose commands are imported when they are called.

    The package has one module per command, of the same name with "_" for "-", with a function
    `run` and a text `EXAMPLE`; where it has a text `HINT`, it is added to the error of arguments
    that are one too many. `commands` are the names and the sentences that the listing shows.
    """

    class Group(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*commands, *(n for n in super().list_commands(ctx) if n not in commands)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return super().get_command(ctx, cmd_name)
            # Enough for the listing; `resolve_command` is called for the one that runs.
            return _command(cmd_name, _unloaded, help=commands[cmd_name])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args[0] == "help":
                # As many programs have it; "help help" is that of all commands.
                args = [*(name for name in args[1:2] if name != "help"), "--help"]
                if len(args) == 1:
                    typer.echo(ctx.get_help())
                    raise typer.Exit
            if args[0] not in self.list_commands(ctx):
                raise UsageError(_unknown_command(args, self.list_commands(ctx)), ctx)
            name, command, rest = super().resolve_command(ctx, args)
            if name in commands:
                with clean_exit():
                    module = _module(package, name)
                text = _paragraphs(module.run.__doc__ or "")
                command = _command(name, module.run, help=text, epilog=module.EXAMPLE)
                command.hint = getattr(module, "HINT", "")
                command.settings = getattr(module.run, "settings", ())
            return name, command, rest

        def make_context(self, *arguments: Any, **settings: Any) -> Any:
            with clean_exit():
                return super().make_context(*arguments, **settings)

        def invoke(self, ctx: Any) -> Any:
            with clean_exit():
                return super().invoke(ctx)

    return Group


def _module(package: str, name: str) -> Any:
    """Import the module of a command; that of a command of the lab is named by an entry point."""
    if name not in LAB_COMMANDS:
        return importlib.import_module(f"{package}.{name.replace('-', '_')}")
    for point in metadata.entry_points(group="manymatch.commands", name=name):
        return point.load()
    raise ValueError(f"manymatch {name} needs the lab package: pip install manymatch-lab")


def _command(name: str, function: Any, **settings: Any) -> Any:
    single = typer.Typer(**SETTINGS)
    single.command(name, **settings)(_with_addresses(function))
    return typer.main.get_command(single)


# Stands for `Path`, and has its name in the help: Typer would make a local path of an address.
_Location: Any = type("path", (), {})
_LOCATIONS: dict[Any, Any] = {
    Path: _Location,
    Path | None: _Location | None,
    list[Path] | None: list[_Location] | None,
}


def _with_addresses(function: Callable[..., None]) -> Callable[..., None]:
    """Let every path that a command takes be an address of fsspec as well."""
    signature = inspect.signature(function, eval_str=True)
    parameters = []
    for parameter in signature.parameters.values():
        hint, *details = get_args(parameter.annotation) or [parameter.annotation]
        if hint in _LOCATIONS:
            details = [copy.copy(detail) for detail in details]
            for detail in details:
                detail.parser = located
            annotation = operator.getitem(Annotated, (_LOCATIONS[hint], *details))
            parameter = parameter.replace(annotation=annotation)  # noqa: PLW2901
        parameters.append(parameter)

    @functools.wraps(function)
    def run(**given: Any) -> None:
        function(**given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _unknown_command(args: list[str], known: list[str]) -> str:
    """Say that there is no such command, and what was probably meant."""
    # A file in the place of a command: the command is missing.
    if "match" in known and os.path.exists(args[0]):  # noqa: PTH110
        given = shlex.join(args)
        return f"a command must come first, got {args[0]!r}, did you mean: manymatch match {given}"
    close = suggest(args[0].lower(), [*known, "--version", "--help"])
    return f"the command must be one of {', '.join(known)}, got {args[0]!r}{close}"


def _paragraphs(docstring: str) -> str:
    """Join the lines of each paragraph, which are then wrapped to the width of the terminal."""
    parts = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _unloaded() -> None:
    """Stand for a command whose module is not imported."""


app = typer.Typer(
    name="manymatch",
    cls=command_group("manymatch.cli", COMMANDS | LAB_COMMANDS),
    help="Keep several candidates per keypoint and let geometry choose among them.",
    epilog="Start with: manymatch demo",
    no_args_is_help=True,
    **SETTINGS,
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and leave.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also what it runs on.")
    ] = False,
) -> None:
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
    app(prog_name="manymatch")

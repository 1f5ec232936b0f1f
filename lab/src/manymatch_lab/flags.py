"""Flags of a command from the signature of the function that it runs.

A parameter becomes a flag of the same name. Its annotation decides the form:

- ``int``, ``float``, ``str``, ``bool`` and ``Path``, also with ``| None``, are plain flags, and a
  number that may also be a word, ``float | Literal["auto"]``, is one;
- ``Sequence[str]`` and ``Sequence[int]`` are flags that may be repeated;
- ``tuple[float, ...]`` and ``tuple[int, ...]`` are numbers separated by commas, whole numbers also
  as ranges such as ``16-24``;
- a class with a method ``from_flags``, or a dataclass of settings, stands for the flags of that
  method, or of its fields. Where such a parameter is optional, its arguments are too.

The help of a flag is a text in the annotation, ``Annotated[int, "Largest K."]``, or the metadata of
a field; an annotation that holds one of Typer's own forms is left as it is. A parameter without a
default is an argument. ``folder`` and ``progress`` are not flags: the command gives them to
whoever asks for them. Parameters of one name are one flag, and a parameter annotated with `SHARED`
takes the value of such a flag without being one.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, ParameterInfo

from manymatch.features.device import PRECISIONS
from manymatch.options import Options

SETS_HELP = (
    "Data sets by name (see manymatch datasets) or NAME:FOLDER, folders with a list of pairs, "
    "TOML files of sets, folders of posed graphs, or synthetic:CONFIGURATION."
)
Sets = Annotated[list[str], typer.Argument(help=SETS_HELP, show_default=False)]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets that are given by name only.")
]
Seeds = Annotated[int, typer.Option(help="Repetitions with other seeds.", min=1, metavar="N")]
_number: dict[str, Any] = {"min": 0, "metavar": "N"}
Workers = Annotated[int, typer.Option(help="Pairs at the same time; 0: one per core.", **_number)]
Limit = Annotated[int | None, typer.Option(help="Only the first N pairs.", min=1, metavar="N")]
MemoryMb = Annotated[int, typer.Option(help="Memory for features, in MB.", **_number)]
RetryErrors = Annotated[
    bool, typer.Option("--retry-errors", help="Try pairs again that could not be run.")
]
_longest = "Longer edge of image {} at working size, 0 for its own."
Longest0 = Annotated[int | None, typer.Option(help=_longest.format(0), **_number)]
Longest1 = Annotated[int | None, typer.Option(help=_longest.format(1), **_number)]
Precision = Annotated[
    str | None,
    typer.Option(
        help=f"Precision of the backbone, one of {', '.join(PRECISIONS)}; by default as in the "
        "preset."
    ),
]

#: Marks a parameter that takes its value from the flag of another parameter, if that exists.
SHARED = object()
#: Parameters that the command gives without a flag.
GIVEN = ("folder", "progress")

# Fields of settings that a run of several trials decides by itself.
_NO_FLAGS: dict[Any, tuple[str, ...]] = {Options: ("seed", "threads", "disable")}
_EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag or argument: how Typer sees it, and how its value becomes an argument."""

    annotation: Any
    default: Any
    convert: Callable[[Any], Any] = lambda value: value


def bind(
    function: Any, flags: dict[str, Flag], *, optional: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Add the flags of a function or dataclass to `flags`, by name.

    Returns a function from the converted values of all flags to the keyword arguments; None if the
    callable is `optional` and none of its arguments is given.
    """
    hints = get_type_hints(function, include_extras=True)
    fields = dataclasses.fields(function) if dataclasses.is_dataclass(function) else ()
    facts: dict[str, Any] = {field.name: field.metadata for field in fields}
    takes: dict[str, Callable[[dict[str, Any]], Any]] = {}
    needed: list[str] = []
    for p in inspect.signature(function).parameters.values():
        if p.name in _NO_FLAGS.get(function, ()):
            continue
        hint = hints[p.name]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
        group = _group(kind)
        if p.name in GIVEN or SHARED in marks:
            takes[p.name] = lambda values, p=p: values.get(p.name, p.default)  # type: ignore[misc]
        elif group is not None:
            inner = bind(group, flags, optional=p.default is None)
            takes[p.name] = functools.partial(_made, group, inner)
        else:
            default = None if p.default is _EMPTY and optional else p.default
            form = _form(marks, facts.get(p.name, {}), p.default)
            if p.default is _EMPTY or isinstance(form, ArgumentInfo):
                needed.append(p.name)
            flags.setdefault(p.name, _flag(kind, p.name, default, form))
            takes[p.name] = lambda values, p=p: values[p.name]  # type: ignore[misc]

    def arguments(values: dict[str, Any]) -> dict[str, Any] | None:
        if optional and needed and not any(values[name] for name in needed):
            return None
        found = {name: take(values) for name, take in takes.items()}
        if function is Options:
            # A small budget alone is meant as such.
            found["min_iterations"] = min(found["min_iterations"], found["max_iterations"])
        return found

    return arguments


def signature_of(flags: dict[str, Flag]) -> inspect.Signature:
    """Make the signature that Typer turns into the flags."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=flag.default, annotation=flag.annotation)
            for name, flag in flags.items()
        ]
    )


def whole_numbers(text: str, name: str) -> tuple[int, ...]:
    """Read ``1,3,5-8`` as ascending whole numbers without repetition."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(
                f"{name} must be whole numbers or ranges separated by commas, got {text!r}"
            )
        found.update(range(int(low), int(high if dash else low) + 1))
    if not found:
        raise ValueError(f"{name} must hold at least one number, got {text!r}")
    return tuple(sorted(found))


def real_numbers(text: str, name: str) -> tuple[float, ...]:
    """Read numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from None


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        rest = [part for part in get_args(kind) if part is not type(None)]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _group(kind: Any) -> Any:
    """Return the callable whose flags an annotation stands for; None for a plain one."""
    inner = _without_none(kind)
    if hasattr(inner, "from_flags"):
        return inner.from_flags
    return inner if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None


def _made(group: Any, inner: Callable[[Any], Any], values: dict[str, Any]) -> Any:
    arguments = inner(values)
    return None if arguments is None else group(**arguments)


def _form(marks: list[Any], facts: dict[str, Any], default: Any) -> ParameterInfo:
    """Take Typer's form of a flag from the annotation, or make one with the help."""
    for mark in marks:
        if isinstance(mark, ParameterInfo):
            return mark
    text = next((mark for mark in marks if isinstance(mark, str)), facts.get("help", ""))
    shown = not (default is None or default is _EMPTY or isinstance(default, bool))
    make = typer.Argument if default is _EMPTY else typer.Option
    form: ParameterInfo = make(
        help=text, show_default=shown, rich_help_panel=facts.get("panel") or None
    )
    return form


def _flag(kind: Any, name: str, default: Any, form: ParameterInfo) -> Flag:
    """Make the flag of a parameter with a plain annotation."""
    inner = _without_none(kind)
    origin, parts = get_origin(inner), get_args(inner)
    label = f"--{name.replace('_', '-')}"
    if origin is tuple:
        read = real_numbers if parts[0] is float else whole_numbers
        shown = ",".join(f"{x:g}" for x in default) if isinstance(default, tuple) else default
        kind = str if kind is inner else str | None
        return Flag(
            Annotated[kind, form], shown, lambda text: None if text is None else read(text, label)
        )
    if origin in (collections.abc.Sequence, list):
        needed = isinstance(form, ArgumentInfo) and default is _EMPTY
        kind = list[parts[0]] if needed else list[parts[0]] | None  # type: ignore[valid-type]
        default = default if needed else list(default or ()) or None
        return Flag(Annotated[kind, form], default, lambda values: tuple(values or ()))
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    if words:
        [kind] = [part for part in parts if get_origin(part) is not Literal]
        form.parser = _number_or_word(kind, words)
        form.metavar = f"<{' or '.join([kind.__name__, *words])}>"
    return Flag(Annotated[kind, form], default)


def _number_or_word(kind: type, words: list[str]) -> Callable[[Any], object]:
    """Return a parser of numbers that may also be one of some words."""

    def value(text: Any) -> object:
        word = text.strip().lower() if isinstance(text, str) else text  # or a default
        if word in words:
            return word
        try:
            return kind(text)
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            wanted = " or ".join([number, *words])
            raise typer.BadParameter(f"it must be {wanted}, got {text!r}") from None

    return value

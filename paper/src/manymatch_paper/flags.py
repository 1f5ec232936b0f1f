"""Flags of a command from the signature of the function that it runs.

A parameter becomes a flag of the same name; its help is what the docstring says. The annotation
decides the form:

- ``int``, ``float``, ``str``, ``bool`` and ``Path``, also with ``| None``, are plain flags;
- ``Sequence[str]`` and ``Sequence[int]`` are flags that may be repeated;
- ``tuple[float, ...]`` and ``tuple[int, ...]`` are numbers separated by commas, whole numbers also
  as ranges such as ``16-24``;
- a class with a method ``from_flags``, or a dataclass of settings, stands for the flags of that
  method, or of its fields. Where such a parameter is optional, its arguments are too.

A parameter without a default is an argument. ``folder`` and ``progress`` are no flags here: the
command gives them to whoever asks for them. Parameters of one name are one flag, and a parameter
that is annotated `SHARED` takes the value of such a flag without being one.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from manymatch.estimate.options import Options

#: Mark of a parameter that takes the value of another one's flag, if there is one.
SHARED = "shared"
#: What the command gives without a flag.
GIVEN = ("folder", "progress")

# Fields of settings that a run of several trials decides by itself.
_NO_FLAGS: dict[Any, tuple[str, ...]] = {Options: ("seed", "threads", "disable")}
_EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag or argument: how Typer sees it, and how its value becomes an argument."""

    annotation: Any
    default: Any
    convert: Callable[[Any], Any]


def bind(
    function: Any, flags: dict[str, Flag], *, optional: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Collect the flags of a callable.

    Parameters
    ----------
    function : callable
        A function or a dataclass.
    flags : dict
        By name; those that are not there yet are added.
    optional : bool
        Whether the callable may be left out, by giving none of its arguments.

    Returns
    -------
    callable
        From the values of all flags, converted, to the keyword arguments of the callable; None if
        it is left out.
    """
    hints = get_type_hints(function, include_extras=True)
    texts = help_of(function)
    facts: dict[str, Any] = {}
    if dataclasses.is_dataclass(function):
        facts = {f.name: f.metadata for f in dataclasses.fields(function) if f.metadata}
        texts |= {name: metadata["help"] for name, metadata in facts.items()}
    takes: dict[str, Callable[[dict[str, Any]], Any]] = {}
    needed: list[str] = []
    for p in inspect.signature(function).parameters.values():
        kind, marks = _unmarked(hints[p.name])
        group = _group(kind)
        if p.name in _NO_FLAGS.get(function, ()):
            continue
        if p.name in GIVEN or SHARED in marks:
            takes[p.name] = lambda values, p=p: values.get(p.name, p.default)  # type: ignore[misc]
        elif group is not None:
            inner = bind(group, flags, optional=p.default is None)
            takes[p.name] = lambda values, g=group, i=inner: _made(g, i(values))  # type: ignore[misc]
        else:
            if p.default is _EMPTY:
                needed.append(p.name)
            default = None if p.default is _EMPTY and optional else p.default
            argument = p.default is _EMPTY
            shown = {"text": texts.get(p.name, ""), "panel": facts.get(p.name, {}).get("panel")}
            flag = _flag(kind, p.name, default, argument=argument, **shown)
            flags.setdefault(p.name, flag)
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
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=flag.default,
                annotation=flag.annotation,
            )
            for name, flag in flags.items()
        ]
    )


def help_of(documented: Any) -> dict[str, str]:
    """Read the texts of the parameters out of a NumPy-style docstring, each as one line."""
    text = inspect.getdoc(documented) or ""
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=\n\n\w[^\n]*\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE
    )
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in (section[1] if section else "").splitlines():
        if line and not line.startswith(" "):
            names = [part.strip(" *") for part in line.partition(" : ")[0].split(",")]
            found.update({name: [] for name in names})
        else:
            for name in names:
                found[name].append(line.strip())
    return {name: " ".join(" ".join(words).split()) for name, words in found.items()}


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


def _unmarked(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Take the marks off an annotation."""
    if get_origin(annotation) is Annotated:
        kind, *marks = get_args(annotation)
        return kind, tuple(marks)
    return annotation, ()


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


def _made(group: Any, arguments: dict[str, Any] | None) -> Any:
    return None if arguments is None else group(**arguments)


def _flag(
    kind: Any, name: str, default: Any, *, argument: bool, text: str, panel: str | None
) -> Flag:
    """Make the flag of a parameter with a plain annotation."""
    inner = _without_none(kind)
    origin, parts = get_origin(inner), get_args(inner)
    label = f"--{name.replace('_', '-')}"
    convert: Callable[[Any], Any] = lambda value: value  # noqa: E731
    if origin is tuple:
        read = real_numbers if parts[0] is float else whole_numbers
        kind = str if kind is inner else str | None
        default = ",".join(f"{x:g}" for x in default) if isinstance(default, tuple) else default
        convert = lambda value: None if value is None else read(value, label)  # noqa: E731
    elif origin is collections.abc.Sequence:
        kind, convert = list[parts[0]], tuple  # type: ignore[valid-type]
        if argument and default is not None:
            default = _EMPTY
        else:
            kind, default = kind | None, list(default) if default else None
            convert = lambda value: tuple(value or ())  # noqa: E731
    shown = not (default is None or default is _EMPTY or isinstance(default, bool))
    settings: dict[str, Any] = {"help": text, "show_default": shown, "rich_help_panel": panel}
    form = typer.Argument(**settings) if argument else typer.Option(**settings)
    return Flag(Annotated[kind, form], default, convert)

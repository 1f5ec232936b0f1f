"""Frozen dataclasses of settings, documented by the metadata of their fields.

The metadata is what the command line makes its flags of, so that the help of a setting is written
in one place::

    @settings
    @dataclasses.dataclass(frozen=True)
    class Resize:
        '''How images are resized.'''

        longest: int = setting(1024, "Length of the longer edge in pixels.", panel="Images")
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any, TypeVar

from manymatch._validate import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

_DOC_WIDTH = 96


def setting(
    default: T,
    help: str,  # noqa: A002
    *,
    panel: str = "",
    choices: Iterable[str] = (),
    compare: bool = True,
) -> T:
    """Make a field of a settings class with an immutable default.

    The docstring and the flag show the help: what the field decides, in sentences with unit and
    range. The panel is the group of flags that it belongs to; `choices` are the texts that it can
    be, if it is a text with few possible values. Without `compare` it has no part in equality.
    """
    metadata = {"help": help, "panel": panel, "choices": tuple(choices)}
    field: Any = dataclasses.field(default=default, compare=compare, metadata=metadata)
    return field  # type: ignore[no-any-return]


def settings(cls: type[T]) -> type[T]:
    """Complete a dataclass of settings.

    Its docstring gets the section "Parameters" from the metadata of its fields, and its
    constructor raises `ValueError` for a field that it does not have. The constructor of a plain
    dataclass would raise `TypeError`, which stands for programming errors; a misspelt name in a
    file or on a command line is bad input.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    original = cls.__init__

    @functools.wraps(original)
    def checked(self: T, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                raise ValueError(
                    f"{name} is no field of {cls.__name__}{suggest(name, known)}; "
                    f"the fields are {', '.join(known)}"
                )
        original(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]
    if cls.__doc__:
        cls.__doc__ = _with_parameters(inspect.cleandoc(cls.__doc__), fields)
    return cls


def _with_parameters(doc: str, fields: tuple[dataclasses.Field[Any], ...]) -> str:
    """Insert the section "Parameters" before the first section of a docstring."""
    lines = ["Parameters", "----------"]
    for field in fields:
        kind = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
        if choices := field.metadata.get("choices"):
            several = "tuple of " if kind.startswith("tuple") else ""
            kind = f"{several}{{{', '.join(map(repr, choices))}}}"
        lines.append(f"{field.name} : {kind}")
        lines.append(textwrap.indent(textwrap.fill(field.metadata["help"], _DOC_WIDTH), "    "))
    heading = re.search(r"^\w+\n-{3,}$", doc, flags=re.MULTILINE)
    at = heading.start() if heading else len(doc)
    return f"{doc[:at].rstrip()}\n\n" + "\n".join(lines) + f"\n\n{doc[at:]}".rstrip() + "\n"

"""Flags of the commands, made from the dataclasses that hold the settings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from manymatch._validate import suggest
from manymatch.associate.candidates import Association
from manymatch.batch import CAMERA_PER, ENGINES
from manymatch.features.config import FeatureConfig
from manymatch.features.device import PRECISIONS
from manymatch.matcher.config import PRESETS, MatcherConfig
from manymatch.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

COMMON = "Common settings"
# Fields whose flags are shown in the first panel, in this order.
_COMMON_FIELDS = (
    "detector", "descriptor", "max_keypoints", "longest", "k", "method", "threshold_px", "seed",
)  # fmt: skip
_ARTICLES: dict[type, str] = {int: "a whole number", float: "a number"}
# Stands for None on the command line, where None is a flag that was not given.
_NONE, _NO_VALUE = object(), "none"

Device = Annotated[
    str,
    typer.Option(
        help="Where networks run: auto, cuda, cuda:<n>, mps or cpu.", rich_help_panel=COMMON
    ),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Never download weights.", rich_help_panel=COMMON)
]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder in which features are kept, also an address such as s3://bucket/features.",
        rich_help_panel=COMMON,
    ),
]
SETS_HELP = (
    "Data sets by name (see manymatch datasets) or NAME:FOLDER, folders with a list of pairs, "
    "TOML files of sets, folders of posed graphs, or synthetic:CONFIGURATION."
)
Sets = Annotated[list[str], typer.Argument(help=SETS_HELP, show_default=False)]
Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets that are given by name only.")
]
Seeds = Annotated[int, typer.Option(help="Repetitions with other seeds.", min=1)]
Limit = Annotated[int | None, typer.Option(help="Only the first pairs of a set.", min=1)]
Workers = Annotated[
    int, typer.Option(help="Pairs worked on at the same time; 0 is one per core.", min=0)
]
RetryErrors = Annotated[
    bool, typer.Option("--retry-errors", help="Try pairs again that could not be run.")
]
MemoryMb = Annotated[int, typer.Option(help="Features that are kept in memory, in MB.", min=0)]
Engine = Annotated[
    str,
    typer.Option(
        metavar="|".join(ENGINES),
        help="Where pairs are worked on: by threads of this process, or by a Ray cluster, on all "
        "of its machines; these find the images under the same paths.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: auto for the cluster of this machine, or host:port of its head; "
        "without it Ray is started on this machine and stopped at the end."
    ),
]
Longest0 = Annotated[
    int | None,
    typer.Option(help="Longer edge of image 0 at working size, 0 for its own.", min=0),
]
Longest1 = Annotated[
    int | None,
    typer.Option(help="Longer edge of image 1 at working size, 0 for its own.", min=0),
]
CameraPerOption = Annotated[
    str,
    typer.Option(
        "--camera-per",
        metavar="|".join(CAMERA_PER),
        help="Which images have one focal length where it is unknown: every pair finds its own; "
        "each image in all of its pairs, the images of one size in a folder, or all of one size "
        "have one, from all of their pairs.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help=f"{FeatureConfig.__dataclass_fields__['precision'].metadata['help']} One of "
        f"{', '.join(PRECISIONS)}; by default as in the preset."
    ),
]
_Preset = Annotated[
    str | None,
    typer.Option(
        help=f"One of {', '.join(PRESETS)}; without it the installed packages decide.",
        rich_help_panel=COMMON,
    ),
]
_Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Instead of a preset: a preset, or a matcher of images, whose candidates go into one "
        "graph with those of the others. Repeatable; a configuration file can say more.",
        rich_help_panel=COMMON,
    ),
]
_Config = Annotated[
    Path | None, typer.Option(help="A configuration as a TOML file.", rich_help_panel=COMMON)
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting by its name in the configuration file; the value may be none. Repeatable.",
        rich_help_panel=COMMON,
    ),
]
_RUNTIME = {"device": Device, "offline": Offline, "cache": Cache}
_DEFAULTS: dict[str, Any] = {"device": "auto", "offline": False}


def setting_flags(
    *parts: type, only: Collection[str] | None = None, exclude: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one flag for every field of some dataclasses.

    The command gets what the user gave as the keyword argument `settings`, ready for
    `MatcherConfig.of`: a field whose flag is absent is not in it, so that it keeps the value of
    the preset or file. ``--config`` and ``--set`` are part of it, and ``--preset`` where features
    are. A command with the keyword argument `runtime` also gets the arguments ``device``,
    ``offline`` and ``cache`` of `Matcher` in it.

    The dataclasses are among `FeatureConfig`, `Association` and `Options`, whose fields have their
    help as metadata; see `manymatch._settings`. `only` names the fields that become flags, by
    default all, and `exclude` those that the command decides itself.
    """
    fields = {field.name: (cls, field) for cls in parts for field in dataclasses.fields(cls)}
    if Options in parts:
        fields["method"] = (MatcherConfig, MatcherConfig.__dataclass_fields__["method"])
    shown = [name for name in fields if name not in exclude and (only is None or name in only)]
    common = [name for name in _COMMON_FIELDS if name in shown]
    flags = {
        **({"preset": _Preset} if FeatureConfig in parts else {}),
        **({"sources": _Sources} if {FeatureConfig, Association} <= set(parts) else {}),
        "config": _Config,
        **{name: _flag(*fields[name], COMMON) for name in common},
        "extra": _Set,
        **_RUNTIME,
        **{name: _flag(*fields[name]) for name in shown if name not in common},
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["settings"]
        runtime = _RUNTIME if own.pop("runtime", None) else {}
        added = {name: flags[name] for name in flags if name not in _RUNTIME or name in runtime}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in added}
            if runtime:
                given["runtime"] = {name: values.pop(name) for name in runtime}
            command(**given, settings=_settings(values, list(fields)))

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [parameter.replace(kind=kind) for parameter in own.values()]
        parameters += [
            inspect.Parameter(name, kind, default=_DEFAULTS.get(name), annotation=annotation)
            for name, annotation in added.items()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _flag(cls: type, field: dataclasses.Field[Any], panel: str | None = None) -> Any:
    """Annotation from which Typer makes the flag of a field; None means that it was not given."""
    hint = get_type_hints(cls)[field.name]
    kind = _plain_type(hint)
    name = "--" + field.name.replace("_", "-")
    default = field.default
    if default is dataclasses.MISSING or default in (None, ()) or cls is FeatureConfig:
        shown: bool | str = False
    elif isinstance(default, bool):
        shown = name[2:] if default else f"no-{name[2:]}"
    else:
        shown = str(default)
    text, choices = field.metadata["help"], field.metadata["choices"]
    if choices:
        text += f" One of {', '.join(choices)}."
    if get_origin(kind) is list:
        text += " Repeatable."
    details: dict[str, Any] = {
        "help": text,
        "show_default": shown,
        "rich_help_panel": panel or field.metadata["panel"],
    }
    if kind is bool:
        return Annotated[bool | None, typer.Option(f"{name}/--no-{name[2:]}", **details)]
    # What a value may be beside a number: words, and none.
    words = [*words_of(hint), *([_NO_VALUE] if type(None) in get_args(hint) else [])]
    if words:
        details |= word_form(kind, words)
    return Annotated[kind | None, typer.Option(name, **details)]


def word_form(kind: type, words: list[str]) -> dict[str, Any]:
    """Return the arguments of Typer's form for a flag whose value may also be one of some words.

    They count in any case; "none" becomes a mark that stands for None.
    """

    def value(text: Any) -> object:
        # Typer also parses a default.
        word = text.strip().lower() if isinstance(text, str) else text
        if word in words:
            return _NONE if word == _NO_VALUE else word
        try:
            return kind(text)
        except ValueError:
            wanted = " or ".join([_ARTICLES.get(kind, f"a {kind.__name__}"), *words])
            raise typer.BadParameter(f"it must be {wanted}, got {text!r}") from None

    return {"parser": value, "metavar": f"<{' or '.join([kind.__name__, *words])}>"}


def words_of(hint: Any) -> list[str]:
    """Return the words that a field may be instead of a value of its type."""
    if get_origin(hint) not in (Union, types.UnionType):
        return []
    literals = (part for part in get_args(hint) if get_origin(part) is Literal)
    return [word for part in literals for word in get_args(part)]


def _plain_type(hint: Any) -> Any:
    """Type of one value on the command line: without None and words, tuples as lists."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        others = [part for part in arguments if part is not type(None)]
        # Words beside another type are those of `words_of`.
        (hint,) = [part for part in others if get_origin(part) is not Literal] or others
        return _plain_type(hint)
    if origin is Literal:
        return str
    return list[arguments[0]] if origin is tuple else hint  # type: ignore[valid-type]


def _settings(values: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """Keep what was given, as arguments of `MatcherConfig.of`."""
    preset, config, extra = values.pop("preset", None), values.pop("config"), values.pop("extra")
    if preset is not None and config is not None:
        raise ValueError(
            f"--preset and --config must not be given together, got {preset!r} and {str(config)!r}"
        )
    sources = values.pop("sources", None) or []
    if sources and (preset is not None or config is not None):
        raise ValueError(
            "--source must not be given together with --preset or --config, got "
            f"{' and '.join(sources)} and {preset or str(config)!r}"
        )
    given = {name: value for name, value in values.items() if value not in (None, [])}
    settings = {name: None if value is _NONE else value for name, value in given.items()}
    for text in extra or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ValueError(f"--set must be followed by name=value, got {text!r}")
        if name not in known:
            raise ValueError(
                f"--set must name one of {', '.join(known)}, got {text!r}{suggest(name, known)}"
            )
        settings[name] = _value(value)
    if sources:
        return {"sources": sources, **settings}
    base = preset if config is None else config
    return settings if base is None else {"preset": base, **settings}


def _value(text: str) -> Any:
    """Read a value of ``--set``: a JSON value, true, false or none in any case, else a text."""
    if text.lower() in {"none", "true", "false"}:
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split_list(text: str) -> list[str]:
    """Split a text at its commas."""
    return [part.strip() for part in text.split(",") if part.strip()]

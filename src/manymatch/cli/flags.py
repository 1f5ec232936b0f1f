"""Flags that several commands share, and ``--set`` for all other settings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._validate import choice, suggest
from manymatch.associate.candidates import Association
from manymatch.cli import console
from manymatch.features.feature_config import FeatureConfig
from manymatch.io.remote import RemotePath
from manymatch.matcher.config import PRESETS, MatcherConfig
from manymatch.options import Options

COMMON = "Settings"
#: Settings that are flags, in the order of the help; ``--set`` takes all.
FLAGS = (
    "detector", "descriptor", "max_keypoints", "longest", "k", "method", "threshold_px", "seed",
)  # fmt: skip

_panel: dict[str, Any] = {"rich_help_panel": COMMON}
Device = Annotated[
    str, typer.Option(help="Where networks run: auto, cuda, cuda:<n>, mps or cpu.", **_panel)
]
Offline = Annotated[bool, typer.Option("--offline", help="Never download weights.", **_panel)]
_cache = "Folder or address (s3://bucket/features) in which features are kept."
Cache = Annotated[Path | None, typer.Option(help=_cache, **_panel)]
_presets = f"{', '.join(PRESETS)}; by default the installed packages decide."
_Preset = Annotated[
    str | None, typer.Option(help=_presets, autocompletion=lambda: [*PRESETS], **_panel)
]
_Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        help="Instead of --preset: a preset or a matcher of images, whose candidates go into one "
        "graph. Repeatable.",
        **_panel,
    ),
]
_Config = Annotated[Path | None, typer.Option(help="A configuration as a TOML file.", **_panel)]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting by its name in the configuration file, such as nms_radius=4 or "
        "keep=none. Repeatable. --set help lists all.",
        **_panel,
    ),
]
PROTOCOLS = ("paper",)
Protocol = Annotated[
    str | None,
    typer.Option(
        metavar="paper",
        help="paper: the paper's method, apart from settings that are given: DINOv3 features, 5 "
        "mutual candidates, 2048 and 1024 edges before and after the motion filter, method "
        "hcm-mcm, 1 px, 1,000 to 100,000 iterations.",
        **_panel,
    ),
]
_RUNTIME = {"device": (Device, "auto"), "offline": (Offline, False), "cache": (Cache, None)}
# Types of flags by the first word of the type in a docstring; all others are texts.
_TYPES = {"int": int, "float": float, "bool": bool, "path": Path, "iterable": list[str]}


def argument(function: Callable[..., Any], name: str) -> tuple[Any, Any]:
    """Make the flag of an argument of a function: its annotation for Typer, and its default.

    The function's docstring says the type, which names are allowed, and, in the first sentence
    about the argument, the help.
    """
    entry = re.search(
        rf"^(?:\w+, )*{name}(?:, \w+)* : (?P<type>.*)\n +(?P<help>(?:.|\n)*?\.)(?=\s)",
        inspect.getdoc(function) or "",
        flags=re.MULTILINE,
    )
    if entry is None and sys.flags.optimize > 1:
        raise ValueError("PYTHONOPTIMIZE must be 0 or 1, as flags are made of docstrings, got 2")
    if entry is None:
        raise LookupError(f"{function.__name__} must describe its argument {name}")
    kind: Any = _TYPES.get(re.split(r"\W", entry["type"])[0], str)
    text = " ".join(entry["help"].replace("`", "").split())
    text = text.replace("Matcher.match", "manymatch match")
    if (names := re.search("{(.*)}", entry["type"])) is not None:
        some = "Some, by commas or repeated, of" if kind == list[str] else "One of"
        text += f" {some} " + names[1].replace('"', "") + "."
    flag = "--" + name.replace("_", "-")
    default = inspect.signature(function).parameters[name].default
    if kind is bool and default is not False:
        flag += f"/--no-{flag[2:]}"
    if default in (None, ()):
        kind, default = kind | None, None
    elif kind is Path:
        default = Path(default)
    flag = "--format" if name == "formats" else flag
    return Annotated[kind, typer.Option(flag, help=text)], default


def setting_flags(
    *parts: type,
    passed: Mapping[Callable[..., Any], str] | None = None,
    only: Collection[str] = FLAGS,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for the usual settings, ``--set`` for all, and ``--config``.

    The command gets the settings that the user gave as the keyword argument `settings`, ready for
    `MatcherConfig.of`; all others keep the values of the preset or the file. The flags for the
    arguments that `passed` names by function are its keyword argument `passed`, and ``device``,
    ``offline`` and ``cache``, arguments of `Matcher`, are `runtime` if it has that.

    `parts` are the dataclasses whose fields the command takes, by default `FeatureConfig`,
    `Association` and `Options`; with features it has ``--preset``, with all ``--source``. `only`
    names the fields that are flags.
    """
    parts = parts or (FeatureConfig, Association, Options)
    fields = {field.name: field for cls in parts for field in dataclasses.fields(cls)}
    if Options in parts:
        fields["method"] = MatcherConfig.__dataclass_fields__["method"]
    flags = {
        **({"preset": _Preset} if FeatureConfig in parts else {}),
        **({"sources": _Sources} if Association in parts else {}),
        "config": _Config,
        **{name: _flag(fields[name]) for name in FLAGS if name in only and name in fields},
        "extra": _Set,
    }
    handed_on = {
        name: argument(function, name)
        for function, names in (passed or {}).items()
        for name in names.split()
    }
    groups = {"passed": handed_on, "runtime": _RUNTIME}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["settings"]
        wanted = {name: group for name, group in groups.items() if own.pop(name, None)}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in flags}
            for name, group in wanted.items():
                given[name] = {flag: given.pop(flag) for flag in group}
            command(**given, settings=_settings(values, fields))

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [parameter.replace(kind=kind) for parameter in own.values()]
        settings = {name: (annotation, None) for name, annotation in flags.items()}
        made = wanted.get("passed", {}) | settings | wanted.get("runtime", {})
        parameters += [
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, (annotation, default) in made.items()
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.settings = tuple(fields)  # type: ignore[attr-defined]
        return run

    return decorate


def protocol_config(protocol: str | None, settings: dict[str, Any]) -> MatcherConfig:
    """Return the configuration of a command: the protocol, if one is named, and what was given."""
    if protocol is None:
        return MatcherConfig.of(**settings)
    choice(protocol, "--protocol", PROTOCOLS)
    given = settings.get("preset")
    # A file of all settings has no place beside a protocol.
    if isinstance(given, Path | RemotePath):
        both = f"{protocol!r} and {str(given)!r}"
        raise ValueError(f"--protocol and --config must not be given together, got {both}")  # noqa: TRY004
    return MatcherConfig.paper(**settings)


def _flag(field: dataclasses.Field[Any]) -> Any:
    """Annotation from which Typer makes the flag of a field; None means that it was not given."""
    help_text = field.metadata["help"].split(". ")[0].rstrip(".") + "."
    details: dict[str, Any] = {"rich_help_panel": COMMON}
    if choices := field.metadata["choices"]:
        help_text += f" One of {', '.join(choices)}."
        details["autocompletion"] = lambda: list(choices)
    kind: Any = type(field.default)
    if kind is float:  # or a word
        kind, details["metavar"] = str, "<float or auto>"
    flag = "--" + field.name.replace("_", "-")
    return Annotated[kind | None, typer.Option(flag, help=help_text, **details)]


def _settings(values: dict[str, Any], fields: dict[str, dataclasses.Field[Any]]) -> dict[str, Any]:
    """Keep the settings that were given, as arguments of `MatcherConfig.of`."""
    base = {name: values.pop(name, None) for name in ("preset", "config", "sources")}
    base = {name: value for name, value in base.items() if value not in (None, [])}
    if len(base) > 1:
        flags = " and ".join(f"--{name.removesuffix('s')}" for name in base)
        given = " and ".join(map(str, base.values()))
        raise ValueError(f"{flags} must not be given together, got {given}")
    extra = values.pop("extra")
    settings = {name: value for name, value in values.items() if value is not None}
    if "threshold_px" in settings:
        settings["threshold_px"] = _value(settings["threshold_px"].lower())
    for text in extra or ():
        if text == "help":
            _print_settings(fields)
            raise typer.Exit
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ValueError(f"--set must be followed by name=value or help, got {text!r}")
        if name not in fields:
            raise ValueError(
                f"--set must name one of {', '.join(fields)}, got {text!r}{suggest(name, fields)}"
            )
        settings[name] = _value(value)
        if isinstance(fields[name].default, tuple) and isinstance(settings[name], str):
            settings[name] = split_list(value)
    return {"preset" if name == "config" else name: v for name, v in base.items()} | settings


def _value(text: str) -> Any:
    """Read a value of ``--set``: a JSON value, true, false or none in any case, else a text."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _print_settings(fields: dict[str, dataclasses.Field[Any]]) -> None:
    """List all settings; defaults of features and association are those of the preset."""
    rows = []
    for name, field in fields.items():
        choices = field.metadata["choices"]
        one_of = f" One of {', '.join(choices)}." if choices else ""
        rows.append((name, json.dumps(field.default), field.metadata["help"] + one_of))
    console.print_table({"setting": "left", "default": "left", "": "left"}, rows)
    console.print_plain("\nA preset has defaults of its own: manymatch models PRESET")


def split_list(*texts: str) -> list[str]:
    """Split texts at their commas."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]

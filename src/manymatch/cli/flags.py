"""Flags that several commands share, and ``--set`` for all other settings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._validate import choice, suggest
from manymatch.associate.candidates import Association
from manymatch.cli.console import print_plain, print_table
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
Camera1 = Annotated[str | None, "The second camera, likewise."]
SharedFocal = Annotated[
    bool | None,
    typer.Option(
        "--shared-focal/--no-shared-focal",
        help="Whether both images have one unknown focal length; by default if they have one size.",
        show_default=False,
    ),
]
WithRankOne = Annotated[
    bool,
    typer.Option("--with-rank-one", help="Also match with rank-one edges and plain consensus."),
]
CameraPer = Annotated[
    str,
    "Which images share an unknown focal length: those of a pair, an image in all of its pairs, "
    "those of one size in a folder, or all of one size: pair, image, folder or all.",
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
_RUNTIME = {"device": Device, "offline": Offline, "cache": Cache}
_DEFAULTS: dict[str, Any] = {"device": "auto", "offline": False}


def setting_flags(
    *parts: type, only: Collection[str] = FLAGS
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for the usual settings, ``--set`` for all, and ``--config``.

    The command gets the settings that the user gave as the keyword argument `settings`, ready for
    `MatcherConfig.of`; all others keep the values of the preset or the file. A command with the
    keyword argument `runtime` also gets the arguments ``device``, ``offline`` and ``cache`` of
    `Matcher` in it.

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

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["settings"]
        runtime = _RUNTIME if own.pop("runtime", None) else {}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in flags}
            if runtime:
                given["runtime"] = {name: given.pop(name) for name in runtime}
            command(**given, settings=_settings(values, fields))

        kind = inspect.Parameter.KEYWORD_ONLY
        parameters = [parameter.replace(kind=kind) for parameter in own.values()]
        parameters += [
            inspect.Parameter(name, kind, default=_DEFAULTS.get(name), annotation=annotation)
            for name, annotation in (flags | runtime).items()
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
    print_table({"setting": "left", "default": "left", "": "left"}, rows)
    print_plain("\nA preset has defaults of its own: manymatch models PRESET")


def split_list(*texts: str) -> list[str]:
    """Split texts at their commas."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]

"""The matcher's configuration as command-line flags, for every command that matches images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._validate import METHODS
from manymatch.matcher.config import PRESETS

_PANEL = "Matcher"
# Arguments of `Matcher` that are no part of its configuration.
_NO_SETTING = ("preset", "device", "offline", "cache")


def _flag(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=_PANEL, show_default=False)


Preset = Annotated[
    str | None,
    _flag("--preset", text=f"One of {', '.join(PRESETS)}; by default what is installed decides."),
]
ConfigFile = Annotated[
    Path | None, _flag("--config", text="A configuration in TOML, instead of a preset.")
]
Detector = Annotated[
    str | None, _flag("--detector", text="sift, superpoint, aliked, disk, xfeat or grid.")
]
Descriptor = Annotated[
    str | None,
    _flag("--descriptor", text="native, a name of manymatch models, hf:<id> or timm:<model>."),
]
Layer = Annotated[int | None, _flag("--layer", text="Block of the backbone, from 1.")]
Debias = Annotated[
    int | None, _flag("--debias", text="Rank of the positional subspace to remove; 0 for none.")
]
K = Annotated[int | None, _flag("--k", text="Candidates per keypoint.")]
MaxKeypoints = Annotated[int | None, _flag("--max-keypoints", text="Keypoints per image.")]
Gms = Annotated[
    bool | None,
    _flag(
        "--gms/--no-gms",
        text="Filter candidates by grid motion statistics, or not; by default as the method wants "
        "it: auto weighs what the filter says, the others see what it leaves.",
    ),
]
Method = Annotated[
    str | None, _flag("--method", text=f"One of {', '.join(METHODS)}; by default auto.")
]
ThresholdPx = Annotated[
    float | None,
    _flag("--threshold-px", text="Inlier threshold in pixels of the resized image."),
]
Seed = Annotated[int | None, _flag("--seed", text="Random seed.")]
Set = Annotated[
    list[str] | None,
    _flag("--set", text="Any other setting, as name=value; may be repeated."),
]
Device = Annotated[
    str, _flag("--device", text="auto, cuda, cuda:<n>, mps or cpu; where networks run.")
]
Offline = Annotated[bool, _flag("--offline", text="Never download weights.")]
Cache = Annotated[Path | None, _flag("--cache", text="Folder in which features are kept.")]


def matcher_settings(
    *,
    preset: str | None = None,
    config: Path | None = None,
    device: str = "auto",
    offline: bool = False,
    cache: Path | None = None,
    extra: list[str] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Collect the keyword arguments of `Matcher`: only what the user gave.

    Parameters
    ----------
    preset, config
        The flags of that name, of which one may be given.
    device, offline, cache
        As `Matcher` takes them.
    extra : list of str, optional
        The texts of ``--set``: ``name=value``, the value a JSON number, true, false, none, or
        else a text.
    **given
        Settings by their name in `MatcherConfig.of`; those that are None were not given.

    Raises
    ------
    ValueError
        If both a preset and a file are named, or a text of ``--set`` is none. Names and ranges
        are checked by `Matcher`.
    """
    if preset is not None and config is not None:
        raise ValueError(
            f"--preset and --config must not be given together, got {preset!r} and {str(config)!r}"
        )
    settings = {name: value for name, value in given.items() if value is not None}
    for text in extra or []:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--set must be followed by name=value, got {text!r}")
        if name in _NO_SETTING:
            raise ValueError(f"--set must name a setting, and {name} is a flag, got {text!r}")
        settings[name] = _value(value.strip())
    base = preset if config is None else config
    if base is not None:
        settings["preset"] = base
    return {**settings, "device": device, "offline": offline, "cache": cache}


def _value(text: str) -> Any:
    """Read a value as people write it."""
    if text.lower() in {"none", "true", "false"}:
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text

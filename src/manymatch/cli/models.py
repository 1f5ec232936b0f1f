"""``manymatch models``: which models can be loaded here, and how to get the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._validate import count, suggest
from manymatch.cli import console
from manymatch.features.registry import ALIASES, Model, find_model, models
from manymatch.features.weights import fetch_command, find_weights, whereabouts
from manymatch.matcher.config import PRESETS, MatcherConfig

if TYPE_CHECKING:
    _Record = dict[str, Any]

EXAMPLE = "Example: manymatch models dinov3-vitl16"
_INSTALL = 'pip install "manymatch[{}]"'
_GET = "get"
# How a model is made, which is of no use to people.
_INTERNAL = ("make", "entry", "tensors", "constants", "settings", "file", "checkpoint")


def run(
    first: Annotated[
        str | None,
        typer.Argument(metavar="get", help="Download the weights of a model or preset."),
    ] = None,
    second: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A model or preset; without get, all about it."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every size of every family.")] = False,
    as_json: console.Json = False,
) -> None:
    """List models and presets, whether their weights are here, and how to get them."""
    wanted, name = second is not None, first if second is None else second
    if wanted and first != _GET:
        raise ValueError(
            f"name must be one model or preset, or get and one, got {first!r} and {second!r}"
        )
    if first == _GET and second is None:
        raise ValueError("name is missing: manymatch models get NAME")
    known = {model.name: _model_record(model) for model in models().values()}
    presets = {preset: _preset_record(preset, known) for preset in PRESETS}
    if name is None:
        if as_json:
            console.print_json({"models": list(known.values()), "presets": presets})
        else:
            _print_all(known, presets, show_all=show_all)
        return
    entries = known | {alias: known[full] for alias, full in ALIASES.items()} | presets
    if name not in entries:
        raise ValueError(
            f"name must be a model or preset that `manymatch models --all` lists"
            f", got {name!r}{suggest(name, entries)}"
        )
    record = entries[name]
    if wanted:
        parts = map(find_model, record.get("models", [record["name"]]))
        got = {part.name: str(find_weights(part)) for part in parts if part.needs_weights}
        if as_json:
            console.print_json(got)
        elif got:
            console.print_table({"model": "left", "weights": "left"}, got.items())
        else:
            console.print_plain(f"{name} needs no weights.")
        return
    if as_json:
        console.print_json(record)
        return
    hidden = ("name", "commands", "needs_weights", *(() if name in presets else _INTERNAL))
    shown = {key: _text(value) for key, value in record.items() if key not in hidden}
    console.print_plain(record["name"], style="bold")
    console.print_table({"": "left", " ": "left"}, (row for row in shown.items() if row[1]))
    _print_commands("To get it:", (known[part] for part in record.get("models", [record["name"]])))


def _model_record(model: Model) -> _Record:
    """Return the facts about a model, and what of it is on this machine."""
    missing = model.missing_libraries
    # What runs without torch is in the smaller extra.
    extra = "images" if set(missing) <= {"cv2", "onnxruntime"} else "features"
    weights, place = whereabouts(model) or (None, "")
    complete = weights is not None or not model.needs_weights
    return {
        **dataclasses.asdict(model),
        "gate": model.gate,
        "published": model.published,
        "libraries": list(model.libraries),
        "missing_libraries": missing,
        "needs_weights": model.needs_weights,
        "weights": None if weights is None else str(weights),
        "place": place or None,
        "ready": complete and not missing,
        "commands": [
            *([_INSTALL.format(extra)] if missing else []),
            *([] if complete else [fetch_command(model)]),
        ],
    }


def _preset_record(name: str, known: dict[str, _Record]) -> _Record:
    sources = MatcherConfig.of(name).sources
    settings = [source.to_dict() for source in sources]
    names = list(dict.fromkeys(model.name for source in sources for model in source.models()))
    commands = [command for model in names for command in known[model]["commands"]]
    return {
        "name": name,
        "sources": [source.title for source in sources],
        "models": names,
        "ready": all(known[model]["ready"] for model in names),
        "settings": settings if len(settings) > 1 else settings[0],
        "commands": list(dict.fromkeys(commands)),
    }


def _text(value: Any) -> str:
    """Write a value of a record for people; nothing for none."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text}" for name, v in value.items() if (text := _text(v)))
    if isinstance(value, list):
        return ("\n\n" if value and isinstance(value[0], dict) else ", ").join(map(_text, value))
    return "" if value is None else str(value)


def _print_all(known: dict[str, _Record], presets: dict[str, _Record], *, show_all: bool) -> None:
    used = {model for preset in presets.values() for model in preset["models"]}
    shown = [r for r in known.values() if show_all or r["ready"] or r["name"] in used]
    columns = {"model": "left", "kind": "left", "licence": "left", "MB": "right"}
    rows = ((r["name"], r["kind"], r["licence"], _text(r["size_mb"]), _state(r)) for r in shown)
    console.print_table({**columns, "weights": "left"}, rows)
    console.print_plain("")
    if more := len(known) - len(shown):
        sizes = count(more, "more size")
        console.print_plain(f"and {sizes} of the same families: manymatch models --all")
    console.print_plain("Any other vision transformer is hf:<id or folder> or timm:<model>.\n")
    rows_of_presets = []
    for name, preset in presets.items():
        lacking = [part for part in preset["models"] if not known[part]["ready"]]
        state = f"lacks {', '.join(lacking)}" if lacking else "ready"
        rows_of_presets.append((name, " + ".join(preset["models"]), state))
    console.print_table({"preset": "left", "models": "left", "here": "left"}, rows_of_presets)
    _print_commands("What the presets lack:", (known[part] for part in sorted(used)))


def _state(record: _Record) -> str:
    if record["missing_libraries"]:
        return f"needs {', '.join(record['missing_libraries'])}"
    if not record["needs_weights"]:
        return "none needed"
    if record["weights"] is not None:
        return f"here, {record['place']}"
    return "missing, gated" if record["gated"] else "missing"


def _print_commands(title: str, records: Iterable[_Record]) -> None:
    """List the commands to run, each once and on one line, so that it can be copied."""
    commands = {}
    for record in records:
        for command in record["commands"]:
            commands[command] = {} if command.startswith("pip") else record
    if commands:
        console.print_plain(f"\n{title}")
    for command, record in commands.items():
        if page := record.get("checkpoint_page"):
            why = f"best {record['published']}, as {record['checkpoint_why']}: ask for"
            console.print_plain(f"  # {why}")
            console.print_plain(f"  # it at {page} and put it into the folder $MANYMATCH_WEIGHTS")
            console.print_plain("  # otherwise the hub's file:")
        if gate := record.get("gate"):
            console.print_plain(f"  # first accept the licence at {gate}")
        console.print_plain(f"  {command}")

"""``manymatch models``: which models can be loaded here, and how to get the others."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._validate import count, suggest
from manymatch.cli.console import Json, print_json, print_plain, print_table
from manymatch.features.feature_config import NATIVE, NO_DETECTOR
from manymatch.features.registry import ALIASES, Model, find_model, models
from manymatch.features.weights import fetch_command, whereabouts
from manymatch.matcher.config import PRESETS, MatcherConfig, SourceConfig

if TYPE_CHECKING:
    _Record = dict[str, Any]

EXAMPLE = "Example: manymatch models dinov3-vitl16"
_INSTALL = 'pip install "manymatch[features]"'


def run(
    name: Annotated[str | None, typer.Argument(help="A model or preset, for all about it.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every size of every family.")] = False,
    as_json: Json = False,
) -> None:
    """List models and presets, whether their weights are here, and how to get them."""
    known = {model.name: _model_record(model) for model in models().values()}
    presets = {preset: _preset_record(preset, known) for preset in PRESETS}
    if name is None:
        if as_json:
            print_json({"models": list(known.values()), "presets": presets})
        else:
            _print_all(known, presets, show_all=show_all)
        return
    if name in presets:
        record, title = presets[name], f"preset {name}"
        parts = [known[part] for part in record["models"]]
        facts: dict[str, object] = {"models": " + ".join(record["models"])}
        if isinstance(record["settings"], dict):
            facts |= record["settings"]
        else:
            facts["sources"] = "\n".join(record["sources"])
    elif name in known or name in ALIASES:
        record = known[find_model(name).name]
        title, parts, facts = record["name"], [record], _facts(record)
        uses = [preset for preset, entry in presets.items() if title in entry["models"]]
        facts["presets"] = ", ".join(uses)
    else:
        raise ValueError(
            f"name must be a model or preset that `manymatch models --all` lists"
            f", got {name!r}{suggest(name, [*known, *ALIASES, *presets])}"
        )
    if as_json:
        print_json(record)
        return
    print_plain(title, style="bold")
    rows = ((key, str(value)) for key, value in facts.items() if value not in (None, ""))
    print_table({"": "left", " ": "left"}, rows)
    _print_commands("To get it:", parts)


def _model_record(model: Model) -> _Record:
    """Return the facts about a model, and what of it is on this machine."""
    missing = [name for name in model.libraries if importlib.util.find_spec(name) is None]
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
            *([_INSTALL] if missing else []),
            *([] if complete else [fetch_command(model)]),
        ],
    }


def _state(record: _Record) -> str:
    if record["missing_libraries"]:
        return f"needs {', '.join(record['missing_libraries'])}"
    if not record["needs_weights"]:
        return "none needed"
    if record["weights"] is not None:
        return f"here, {record['place']}"
    return "missing, gated" if record["gated"] else "missing"


def _parts(source: SourceConfig) -> list[Model]:
    """Return the models of a source: its detector, backbone and pair matcher."""
    names = (source.features.detector, source.features.descriptor)
    found = [find_model(name) for name in names if name not in (NATIVE, NO_DETECTOR)]
    matcher = source.load_matcher()
    return found if matcher is None or matcher.model is None else [*found, matcher.model]


def _preset_record(name: str, known: dict[str, _Record]) -> _Record:
    sources = MatcherConfig.of(name).sources
    settings = [source.to_dict() for source in sources]
    names = list(dict.fromkeys(model.name for source in sources for model in _parts(source)))
    commands = [command for model in names for command in known[model]["commands"]]
    return {
        "name": name,
        "sources": [source.title for source in sources],
        "settings": settings if len(settings) > 1 else settings[0],
        "models": names,
        "ready": all(known[model]["ready"] for model in names),
        "commands": list(dict.fromkeys(commands)),
    }


def _print_all(known: dict[str, _Record], presets: dict[str, _Record], *, show_all: bool) -> None:
    used = {model for preset in presets.values() for model in preset["models"]}
    shown = [r for r in known.values() if show_all or r["ready"] or r["name"] in used]
    columns = {"model": "left", "kind": "left", "licence": "left", "size": "right"}
    print_table(
        {**columns, "weights": "left"},
        ((r["name"], r["kind"], r["licence"], _size(r), _state(r)) for r in shown),
    )
    print_plain("")
    if more := len(known) - len(shown):
        sizes = count(more, "more size")
        print_plain(f"and {sizes} of the same families: manymatch models --all")
    print_plain("Any other vision transformer is hf:<id or folder> or timm:<model>.\n")
    rows = []
    for name, preset in presets.items():
        lacking = [part for part in preset["models"] if not known[part]["ready"]]
        several = "both" if len(lacking) == 2 else f"{len(lacking)} of them"
        state = f"lacks {lacking[0] if len(lacking) == 1 else several}" if lacking else "ready"
        rows.append((name, " + ".join(preset["models"]), state))
    print_table({"preset": "left", "models": "left", "here": "left"}, rows)
    _print_commands("What the presets lack:", (known[part] for part in sorted(used)))


def _facts(record: _Record) -> dict[str, object]:
    """Return the lines of the table about one model; those without a value are not shown."""
    parameters, dim, cell = record["parameters"], record["dim"], record["patch_size"]
    return {
        "kind": record["kind"],
        "family": record["family"],
        "licence": record["licence"],
        "gate": f"accept the licence at {record['gate']}" if record["gated"] else "none",
        "hub": record["hub_id"],
        "revision": (record["revision"] or "not pinned") if record["hub_id"] else None,
        "package": record["package"],
        "address": record["url"],
        "published file": record["published"],
        "SHA-256": "\n".join(f"{digits} {name}" for name, digits in record["sha256"].items()),
        "parameters": None if parameters is None else f"{parameters:,}",
        "download": _size(record),
        "descriptor": None if dim is None else f"{dim} numbers",
        "layers": record["num_layers"],
        "cell": None if cell is None else f"{cell} pixels",
        "libraries": ", ".join(record["libraries"]) or "none",
        "weights": record["weights"] or _state(record),
        "instead": None if record["ready"] else record["alternative"],
    }


def _print_commands(title: str, records: Iterable[_Record]) -> None:
    """List the commands to run, each once and on one line, so that it can be copied."""
    commands = {}
    for record in records:
        for command in record["commands"]:
            commands[command] = {} if command == _INSTALL else record
    if commands:
        print_plain(f"\n{title}")
    for command, record in commands.items():
        if page := record.get("checkpoint_page"):
            print_plain(f"  # best {record['published']}, as {record['checkpoint_why']}: ask for")
            print_plain(f"  # it at {page} and put it into the folder $MANYMATCH_WEIGHTS")
            print_plain("  # otherwise the hub's file:")
        if gate := record.get("gate"):
            print_plain(f"  # first accept the licence at {gate}")
        print_plain(f"  {command}")


def _size(record: _Record) -> str:
    size = record["size_mb"]
    if size is None:
        return ""
    return f"{size:.1f} MB" if size < 1000 else f"{size / 1000:.1f} GB"

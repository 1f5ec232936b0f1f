"""``manymatch models``: what can be loaded here, and what is missing."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from manymatch._validate import suggest
from manymatch.cli._console import clean_exit, out, print_json
from manymatch.features.catalogue import ALIASES, MODELS, find_model
from manymatch.features.config import FEATURE_PRESETS, NATIVE, FeatureConfig
from manymatch.features.weights import fetch_command, whereabouts

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from manymatch.features.catalogue import Model

EXAMPLE = "Example: manymatch models dinov3-vitl16"


@dataclasses.dataclass(frozen=True)
class _Status:
    """What of a model is on this machine."""

    model: Model
    weights: Path | None
    place: str
    missing_libraries: tuple[str, ...]

    @property
    def has_weights(self) -> bool:
        return self.weights is not None or not self.model.needs_weights

    @property
    def ready(self) -> bool:
        return self.has_weights and not self.missing_libraries

    @property
    def commands(self) -> list[str]:
        """Return what to run to get what is missing."""
        libraries = ['pip install "manymatch[features]"'] if self.missing_libraries else []
        return libraries + ([] if self.has_weights else [fetch_command(self.model)])

    def record(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self.model),
            "libraries": list(self.model.libraries),
            "missing_libraries": list(self.missing_libraries),
            "needs_weights": self.model.needs_weights,
            "weights": None if self.weights is None else str(self.weights),
            "place": self.place or None,
            "ready": self.ready,
            "commands": self.commands,
        }


def models(
    name: Annotated[str | None, typer.Argument(help="A model or preset, for all about it.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every size of every family.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List models and presets: licence, size, whether their weights are here, how to get them."""
    with clean_exit():
        if name is not None and name in FEATURE_PRESETS:
            preset = _preset_record(name)
            if as_json:
                print_json(preset)
            else:
                _tell_preset(name)
        elif name is not None:
            known = [*MODELS, *ALIASES, *FEATURE_PRESETS]
            if name not in known:
                raise ValueError(
                    f"name must be a model or preset that `manymatch models --all` "
                    f"lists{suggest(name, known)}, got {name!r}"
                )
            status = _status(find_model(name))
            if as_json:
                print_json(status.record())
            else:
                _tell_one(status)
        elif as_json:
            print_json(
                {
                    "models": [_status(model).record() for model in MODELS.values()],
                    "presets": {preset: _preset_record(preset) for preset in FEATURE_PRESETS},
                }
            )
        else:
            _tell_all([_status(model) for model in MODELS.values()], show_all=show_all)


def _status(model: Model) -> _Status:
    missing = tuple(name for name in model.libraries if importlib.util.find_spec(name) is None)
    weights, place = whereabouts(model) or (None, "")
    return _Status(model, weights, place, missing)


def _parts(config: FeatureConfig) -> list[Model]:
    """Models of a preset: the detector, and the backbone where there is one."""
    backbone = [] if config.descriptor == NATIVE else [find_model(config.descriptor)]
    return [find_model(config.detector), *backbone]


def _preset_record(name: str) -> dict[str, Any]:
    config = FEATURE_PRESETS[name]
    parts = [_status(model) for model in _parts(config)]
    return {
        "name": name,
        "settings": config.to_dict(),
        "models": [part.model.name for part in parts],
        "ready": all(part.ready for part in parts),
        "commands": _commands(parts),
    }


def _commands(parts: list[_Status]) -> list[str]:
    """All commands in order, none twice."""
    return list(dict.fromkeys(command for part in parts for command in part.commands))


def _tell_all(rows: list[_Status], *, show_all: bool) -> None:
    console = out()
    in_presets = {part.name for config in FEATURE_PRESETS.values() for part in _parts(config)}
    shown = [row for row in rows if show_all or row.ready or row.model.name in in_presets]
    # Narrow enough for a terminal of 80 columns.
    table = _table("model", "kind", "licence", "size", "weights")
    table.columns[3].justify = "right"
    for row in shown:
        model = row.model
        table.add_row(model.name, model.kind, model.licence, _size(model), _where(row))
    console.print(table)
    left = len(rows) - len(shown)
    if left:
        console.print(f"\nand {left} more sizes of the same families: manymatch models --all")
    console.print(
        "Any other vision transformer is hf:<id or folder> or timm:<model>.\n", markup=False
    )
    table = _table("preset", "is made of", "here")
    missing: list[_Status] = []
    for name, config in FEATURE_PRESETS.items():
        parts = [_status(model) for model in _parts(config)]
        missing += [part for part in parts if not part.ready]
        what = " + ".join(part.model.name for part in parts)
        lacks = [part.model.name for part in parts if not part.ready]
        here = f"[yellow]lacks {'both' if len(lacks) > 1 else lacks[0]}[/]" if lacks else ""
        table.add_row(name, what, here or "[green]ready[/]")
    console.print(table)
    if missing:
        _tell_commands(console, "What the presets lack:", missing)


def _tell_one(row: _Status) -> None:
    console = out()
    model = row.model
    facts = [
        ("kind", model.kind),
        ("family", model.family),
        ("licence", model.licence),
        ("gate", f"accept the licence at {model.gate}" if model.gated else "none"),
        ("hub", model.hub_id),
        ("package", model.package),
        ("address", model.url),
        ("parameters", None if model.parameters is None else f"{model.parameters:,}"),
        ("download", None if model.size_mb is None else _size(model)),
        ("descriptor", None if model.dim is None else f"{model.dim} numbers"),
        ("layers", model.num_layers),
        ("cell", None if model.patch_size is None else f"{model.patch_size} pixels"),
        ("libraries", ", ".join(model.libraries) or "none"),
        ("weights", str(row.weights) if row.weights is not None else _where(row)),
        ("presets", ", ".join(_presets_of(model)) or None),
        ("instead", model.alternative if not row.ready else None),
    ]
    _print_facts(console, model.name, [(key, value) for key, value in facts if value is not None])
    _tell_commands(console, "To get it:", [row])


def _tell_preset(name: str) -> None:
    console = out()
    record = _preset_record(name)
    _print_facts(
        console,
        f"preset {name}",
        [
            ("is made of", " + ".join(record["models"])),
            ("here", "ready" if record["ready"] else "not all of it"),
            *((key, value) for key, value in record["settings"].items() if value is not None),
        ],
    )
    _tell_commands(console, "To get it:", [_status(find_model(part)) for part in record["models"]])


def _presets_of(model: Model) -> list[str]:
    """Say which presets use a model, with the layer and rank they take."""
    uses = []
    for name, config in FEATURE_PRESETS.items():
        if model not in _parts(config):
            continue
        details = []
        if model.kind == "backbone":
            details.append(f"layer {config.layer or model.num_layers}")
            if config.debias:
                details.append(f"debias {config.debias}")
        uses.append(f"{name} ({', '.join(details)})" if details else name)
    return uses


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _print_facts(console: Console, title: str, facts: list[tuple[str, object]]) -> None:
    console.print(f"[bold]{title}[/]")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for key, value in facts:
        table.add_row(key, str(value))
    console.print(table)


def _tell_commands(console: Console, title: str, parts: list[_Status]) -> None:
    """List what to run; long lines are not broken, so that they can be copied."""
    commands = _commands(parts)
    if not commands:
        return
    console.print(f"\n{title}")
    gates = {fetch_command(part.model): part.model.gate for part in parts if part.model.gated}
    for command in commands:
        if command in gates:
            note = f"  # first accept the licence at {gates[command]}"
            console.print(note, soft_wrap=True, markup=False)
        console.print(f"  {command}", soft_wrap=True, markup=False)


def _size(model: Model) -> str:
    if model.size_mb is None:
        return ""
    return f"{model.size_mb:.1f} MB" if model.size_mb < 1000 else f"{model.size_mb / 1000:.1f} GB"


def _where(row: _Status) -> str:
    if row.missing_libraries:
        return f"[yellow]needs {', '.join(row.missing_libraries)}[/]"
    if not row.model.needs_weights:
        return "[green]none needed[/]"
    if row.weights is not None:
        return f"[green]here, {row.place}[/]"
    return "[yellow]missing, gated[/]" if row.model.gated else "[yellow]missing[/]"

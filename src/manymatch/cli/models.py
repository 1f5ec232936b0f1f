"""``manymatch models``: what can be loaded here, and what is missing."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._validate import count, suggest
from manymatch.cli.console import Json, print_json, print_plain, print_table
from manymatch.features.config import NATIVE, NO_DETECTOR
from manymatch.features.registry import ALIASES, find_model, models
from manymatch.features.weights import fetch_command, whereabouts
from manymatch.matcher.config import PRESETS, MatcherConfig, SourceConfig

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from manymatch.features.registry import Model

EXAMPLE = "Example: manymatch models dinov3-vitl16"


def run(
    name: Annotated[str | None, typer.Argument(help="A model or preset, for all about it.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every size of every family.")] = False,
    as_json: Json = False,
) -> None:
    """List models and presets, whether their weights are here, and how to get them."""
    statuses = {model.name: _Status.of(model) for model in models().values()}
    presets = {preset: _preset_record(preset, statuses) for preset in PRESETS}
    if name is None:
        if as_json:
            records = [status.record() for status in statuses.values()]
            print_json({"models": records, "presets": presets})
        else:
            _print_all(list(statuses.values()), presets, show_all=show_all)
        return
    if name in presets:
        record = presets[name]
        title, parts = f"preset {name}", [statuses[part] for part in record["models"]]
        facts: dict[str, object] = {"models": " + ".join(record["models"])}
        if isinstance(record["settings"], dict):
            facts |= record["settings"]
        else:
            facts["sources"] = "\n".join(record["sources"])
    elif name in statuses or name in ALIASES:
        parts = [statuses[find_model(name).name]]
        title, record, facts = parts[0].model.name, parts[0].record(), _facts(parts[0])
    else:
        known = [*statuses, *ALIASES, *presets]
        raise ValueError(
            f"name must be a model or preset that `manymatch models --all` lists"
            f", got {name!r}{suggest(name, known)}"
        )
    if as_json:
        print_json(record)
        return
    print_plain(title, style="bold")
    rows = ((key, str(value)) for key, value in facts.items() if value not in (None, ""))
    print_table({"": "left", " ": "left"}, rows)
    _print_commands("To get it:", parts)


@dataclasses.dataclass(frozen=True)
class _Status:
    """What of a model is on this machine."""

    model: Model
    weights: Path | None
    place: str
    missing_libraries: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> _Status:
        missing = tuple(name for name in model.libraries if importlib.util.find_spec(name) is None)
        weights, place = whereabouts(model) or (None, "")
        return cls(model, weights, place, missing)

    @property
    def has_weights(self) -> bool:
        return self.weights is not None or not self.model.needs_weights

    @property
    def ready(self) -> bool:
        return self.has_weights and not self.missing_libraries

    @property
    def commands(self) -> list[str]:
        """What to run to get what is missing."""
        libraries = ['pip install "manymatch[features]"'] if self.missing_libraries else []
        return libraries + ([] if self.has_weights else [fetch_command(self.model)])

    @property
    def text(self) -> str:
        """Whether it can be loaded, in a few words."""
        if self.missing_libraries:
            return f"needs {', '.join(self.missing_libraries)}"
        if not self.model.needs_weights:
            return "none needed"
        if self.weights is not None:
            return f"here, {self.place}"
        return "missing, gated" if self.model.gated else "missing"

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


def _parts(source: SourceConfig) -> list[Model]:
    """Models of a source: its detector, and the backbone or the matcher where there is one."""
    names = (source.features.detector, source.features.descriptor)
    found = [find_model(name) for name in names if name not in (NATIVE, NO_DETECTOR)]
    matcher = source.load_matcher()
    return found if matcher is None or matcher.model is None else [*found, matcher.model]


def _preset_record(name: str, statuses: dict[str, _Status]) -> dict[str, Any]:
    config = MatcherConfig.of(name)
    settings = [source.to_dict() for source in config.sources]
    names = dict.fromkeys(model.name for source in config.sources for model in _parts(source))
    parts = [statuses[model] for model in names]
    return {
        "name": name,
        "sources": [source.title for source in config.sources],
        "settings": settings if len(settings) > 1 else settings[0],
        "models": list(names),
        "ready": all(part.ready for part in parts),
        "commands": list(dict.fromkeys(command for part in parts for command in part.commands)),
    }


def _print_all(
    statuses: list[_Status], presets: dict[str, dict[str, Any]], *, show_all: bool
) -> None:
    used = {model for record in presets.values() for model in record["models"]}
    shown = [s for s in statuses if show_all or s.ready or s.model.name in used]
    columns = {"model": "left", "kind": "left", "licence": "left", "size": "right"}
    print_table(
        {**columns, "weights": "left"},
        ((s.model.name, s.model.kind, s.model.licence, _size(s.model), s.text) for s in shown),
    )
    print_plain("")
    if len(shown) < len(statuses):
        more = len(statuses) - len(shown)
        sizes = count(more, "more size")
        print_plain(f"and {sizes} of the same families: manymatch models --all")
    print_plain("Any other vision transformer is hf:<id or folder> or timm:<model>.\n")
    by_name = {status.model.name: status for status in statuses}
    rows = []
    for name, record in presets.items():
        lacking = [part for part in record["models"] if not by_name[part].ready]
        state = f"lacks {_several(lacking)}" if lacking else "ready"
        rows.append((name, " + ".join(record["models"]), state))
    print_table({"preset": "left", "models": "left", "here": "left"}, rows)
    _print_commands("What the presets lack:", (by_name[part] for part in sorted(used)))


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else {2: "both"}.get(len(names), f"{len(names)} of them")


def _facts(status: _Status) -> dict[str, object]:
    model = status.model
    return {
        "kind": model.kind,
        "family": model.family,
        "licence": model.licence,
        "gate": f"accept the licence at {model.gate}" if model.gated else "none",
        "hub": model.hub_id,
        "revision": (model.revision or "not pinned") if model.hub_id else None,
        "package": model.package,
        "address": model.url,
        "published file": model.published,
        "SHA-256": "\n".join(f"{digits} {name}" for name, digits in model.sha256.items()),
        "parameters": None if model.parameters is None else f"{model.parameters:,}",
        "download": _size(model),
        "descriptor": None if model.dim is None else f"{model.dim} numbers",
        "layers": model.num_layers,
        "cell": None if model.patch_size is None else f"{model.patch_size} pixels",
        "libraries": ", ".join(model.libraries) or "none",
        "weights": status.weights or status.text,
        "presets": ", ".join(_presets_with(model)),
        "instead": None if status.ready else model.alternative,
    }


def _presets_with(model: Model) -> list[str]:
    """Presets that use a model, with the layer and rank that they take."""
    uses = []
    for name in PRESETS:
        for source in MatcherConfig.of(name).sources:
            if model in _parts(source):
                config = source.features
                layer = f" (layer {config.layer or model.num_layers}, debias {config.debias})"
                uses.append(name + (layer if model.kind == "backbone" else ""))
    return list(dict.fromkeys(uses))


def _print_commands(title: str, statuses: Iterable[_Status]) -> None:
    """List what to run, each command once and on one line, so that it can be copied."""
    commands = {}
    for status in statuses:
        for command in status.commands:
            gated = status.model.gated and command == fetch_command(status.model)
            commands[command] = status.model.gate if gated else None
    if commands:
        print_plain(f"\n{title}")
    for command, gate in commands.items():
        if gate:
            print_plain(f"  # first accept the licence at {gate}")
        print_plain(f"  {command}")


def _size(model: Model) -> str:
    if model.size_mb is None:
        return ""
    return f"{model.size_mb:.1f} MB" if model.size_mb < 1000 else f"{model.size_mb / 1000:.1f} GB"

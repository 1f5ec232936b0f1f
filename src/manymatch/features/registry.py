"""The backbones that can be asked for by name: ours, and those that other packages add."""

from __future__ import annotations

import dataclasses
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from manymatch._validate import refusal, suggest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from manymatch.features.backbone import Backbone

    Factory = TypeVar("Factory", bound=Callable[..., Backbone])

#: Other packages name their factories in this group.
ENTRY_POINTS = "manymatch.backbones"

# Families whose modules register themselves when imported.
_BUILTIN = ("dinov3", "dinov2", "siglip2", "vjepa", "efficientnet_lite", "hub", "timm")


@dataclasses.dataclass(frozen=True)
class _Registered:
    factory: Callable[..., Backbone]
    prefix: bool


_registered: dict[str, _Registered] = {}
_complete = False


def register_backbone(
    name: str, *, prefix: bool = False, replace: bool = False
) -> Callable[[Factory], Factory]:
    """Make a backbone available under a name; a decorator for its class or factory.

    Parameters
    ----------
    name : str
        What `Matcher(descriptor=name)` and the command line will call it.
    prefix : bool
        The name is the part before a colon (``"timm:vit_..."``); the rest is passed to the
        factory as the keyword `model`.
    replace : bool
        Allow a name that is taken.

    Returns
    -------
    callable
        Decorator. What it decorates is called as ``factory(weights=None, offline=False)`` with a
        file, a folder or None for `weights`, and returns a `Backbone`.

    Examples
    --------
    >>> @register_backbone("mine")                                   # doctest: +SKIP
    ... class Mine(Backbone): ...
    """
    if not _is_word(name):
        raise refusal("name", "a word without a colon", name)

    def decorate(factory: Factory) -> Factory:
        if not callable(factory):
            raise refusal("factory", "a class or function that makes a Backbone", factory)
        if name in _registered and not replace:
            raise ValueError(
                f"name must be one that is not taken (or replace=True given), got {name!r}"
            )
        _registered[name] = _Registered(factory, prefix)
        return factory

    return decorate


def backbone_names() -> list[str]:
    """Names of all backbones, those of other packages included; a trailing colon takes a model."""
    _find_all()
    return sorted(f"{name}:" if entry.prefix else name for name, entry in _registered.items())


def load_backbone(name: str, *, weights: object = None, offline: bool = False) -> Backbone:
    """Make a backbone and load its weights.

    Parameters
    ----------
    name : str
        One of `backbone_names`, or ``"hf:<id>"``, ``"timm:<model>"`` for any other ViT.
    weights : path or "random", optional
        A file or folder; by default they are looked for where `manymatch models` says.
    offline : bool
        Never download.

    Raises
    ------
    ValueError
        If there is no such backbone, or its weights are missing, damaged or of another network.
    """
    _find_all()
    if not isinstance(name, str):
        raise refusal("backbone", "a name", name)
    head, colon, model = name.partition(":")
    entry = _registered.get(head)
    if entry is None or entry.prefix != bool(colon):
        known = backbone_names()
        raise ValueError(
            f"backbone must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    extra = {"model": model} if entry.prefix else {}
    return entry.factory(weights=weights, offline=offline, **extra)


def _find_all() -> None:
    """Import our families and the entry points of other packages, once."""
    global _complete  # noqa: PLW0603
    if _complete:
        return
    for module in _BUILTIN:
        importlib.import_module(f"manymatch.features.backbones.{module}")
    for point in entry_points(group=ENTRY_POINTS):
        # Loaded only when asked for, so that a broken package breaks nothing but itself.
        if point.name not in _registered:
            _registered[point.name] = _Registered(_from_entry_point(point.name), prefix=False)
    _complete = True


def _from_entry_point(name: str) -> Callable[..., Backbone]:
    def factory(**keywords: object) -> Backbone:
        (point,) = tuple(entry_points(group=ENTRY_POINTS, name=name))[:1]
        made: Backbone = point.load()(**keywords)
        return made

    return factory


def _is_word(name: object) -> bool:
    return isinstance(name, str) and name != "" and ":" not in name and name == name.strip()

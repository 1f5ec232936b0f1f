"""What can be asked for by name: models and the facts about them, backbones, detectors, matchers.

Every module of `backbones`, `detectors` and `matchers` registers what it defines, with its facts,
when it is imported; all of them are imported when the first name is looked up. They import torch
only when a network is made, so that listing models needs neither torch nor a network.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal

from manymatch._validate import choice, refusal, suggest
from manymatch.associate.candidates import NEAREST
from manymatch.features.detectors.base import Selection
from manymatch.features.matchers.base import TAKES, FunctionMatcher, PairMatcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from manymatch.features.backbone import Backbone
    from manymatch.features.detectors.base import Detector
    from manymatch.features.matchers.base import Takes

    Factory = TypeVar("Factory", bound=Callable[..., Backbone])
    DetectorType = TypeVar("DetectorType", bound=type[Detector])
    MatcherType = TypeVar("MatcherType", bound=Callable[..., object])

#: Other packages name their factories of backbones in this group.
ENTRY_POINTS = "manymatch.backbones"
#: Other packages name their matchers in this group.
MATCHER_ENTRY_POINTS = "manymatch.matchers"
#: Short names of detectors.
ALIASES = {"aliked": "aliked-n16"}


@dataclasses.dataclass(frozen=True)
class Model:
    """Facts about one model.

    Attributes
    ----------
    name : str
        Under which this package knows it.
    kind : {"backbone", "detector", "matcher"}
        What it is for.
    family : str
        Models of one family share their code.
    hub_id : str, optional
        Repository on the model hub.
    licence : str
        Of the weights.
    gated : bool
        Whether the hub asks to accept the licence before it gives the weights.
    parameters : int, optional
        Number of parameters of the part that is used; None where there are none.
    size_mb : float, optional
        Megabytes that are downloaded; None where unknown or nothing is.
    dim : int, optional
        Length of a descriptor (of the last layer, where they differ).
    num_layers : int, optional
        Blocks that can be asked for.
    patch_size : int, optional
        Input pixels per cell of the last layer.
    package, file : str, optional
        Requirement for pip, and the weights' path inside the package it installs.
    checkpoint : str, optional
        Name of the file that the authors publish beside the hub's, which is read too.
    url : str, optional
        Where that file lies, if anyone may fetch it. It is downloaded when the weights are neither
        on the hub nor in a package.
    revision : str, optional
        Commit of the hub's repository that is downloaded; None takes the newest.
    sha256 : dict of str to str
        Hashes of files by their name, in hexadecimal digits, or the first ones where the publisher
        gives no more; files under other names have no known hash.
    alternative : str, optional
        A model of the same kind that is easier to get.
    libraries : tuple of str
        Optional packages that run it, as Python imports them.
    """

    name: str
    kind: Literal["backbone", "detector", "matcher"]
    family: str
    hub_id: str | None = None
    licence: str = "unknown"
    gated: bool = False
    parameters: int | None = None
    size_mb: float | None = None
    dim: int | None = None
    num_layers: int | None = None
    patch_size: int | None = None
    package: str | None = None
    file: str | None = None
    checkpoint: str | None = None
    url: str | None = None
    revision: str | None = None
    sha256: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)
    alternative: str | None = None
    libraries: tuple[str, ...] = ("torch", "transformers")

    @property
    def needs_weights(self) -> bool:
        """Whether there is anything to load."""
        return bool(self.hub_id or self.package or self.url)

    @property
    def published(self) -> str | None:
        """Name of the file that the authors publish, in a package or at an address."""
        named = self.checkpoint or self.url or self.file
        return None if named is None else named.rsplit("/", 1)[-1]

    @property
    def import_name(self) -> str | None:
        """Name of the package that holds the weights, as Python spells it."""
        return None if self.package is None else self.package.split("==")[0].replace("-", "_")

    @property
    def gate(self) -> str:
        """Where the licence is accepted; empty without a gate."""
        return f"https://huggingface.co/{self.hub_id}" if self.gated and self.hub_id else ""


def megabytes(parameters: int) -> float:
    """Size of a file of float32 numbers."""
    return round(4e-6 * parameters, 1)


@dataclasses.dataclass(frozen=True)
class _Registered:
    factory: Callable[..., Backbone]
    prefix: bool = False


_models: dict[str, Model] = {}
_backbones: dict[str, _Registered] = {}
_detectors: dict[str, type[Detector]] = {}
# Classes of matchers, functions, and entry points that have not been loaded yet.
_matchers: dict[str, type[PairMatcher] | FunctionMatcher | EntryPoint] = {}
# How models are listed.
_KINDS = ("detector", "matcher", "backbone")
_complete = False


def models() -> dict[str, Model]:
    """All models by name, detectors, matchers, backbones, those that need no download first."""
    _find_all()
    order = sorted(_models.values(), key=lambda m: (_KINDS.index(m.kind), bool(m.hub_id or m.url)))
    return {model.name: model for model in order}


def find_model(name: object) -> Model:
    """Return a model by name; an unknown one is a `ValueError`."""
    known = models()
    full = ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(full, str) or full not in known:
        raise ValueError(
            f"model must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    return known[full]


def register_backbone(
    name: str, *, prefix: bool = False, replace: bool = False, model: Model | None = None
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
    model : Model, optional
        Facts that `manymatch models` lists.

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
        if name in _backbones and not replace:
            raise ValueError(
                f"name must be one that is not taken (or replace=True given), got {name!r}"
            )
        _backbones[name] = _Registered(factory, prefix)
        if model is not None:
            _models[name] = model
        return factory

    return decorate


def register_detector(*variants: Model) -> Callable[[DetectorType], DetectorType]:
    """Make the variants of a detector available under their names; a decorator for its class."""

    def decorate(kind: DetectorType) -> DetectorType:
        for model in variants:
            _models[model.name] = model
            _detectors[model.name] = kind
        return kind

    return decorate


def register_matcher(
    name: str, *, takes: Takes | None = None, replace: bool = False
) -> Callable[[MatcherType], MatcherType]:
    """Make a matcher of two images available under a name; a decorator.

    Parameters
    ----------
    name : str
        What `Matcher(matcher=name)`, files of settings and the command line will call it.
    takes : {"images", "features"}, optional
        What a function gets of the two images; "images" by default. See `PairMatcher.match` for
        what either is and for what is returned.
    replace : bool
        Allow a name that is taken.

    Returns
    -------
    callable
        Decorator for a function of two images (or of their features), or for a `PairMatcher`.

    Examples
    --------
    >>> @register_matcher("mine")                                    # doctest: +SKIP
    ... def mine(image0, image1):
    ...     return points0, points1, scores
    """
    if not _is_word(name) or name == NEAREST:
        raise refusal("name", f"a word without a colon, other than {NEAREST!r}", name)

    def decorate(kind: MatcherType) -> MatcherType:
        if name in _matchers and not replace:
            raise ValueError(
                f"name must be one that is not taken (or replace=True given), got {name!r}"
            )
        _matchers[name] = _checked_matcher(name, kind, takes)
        return kind

    return decorate


def _checked_matcher(
    name: str, kind: object, takes: object = None
) -> type[PairMatcher] | FunctionMatcher:
    """Return a class of matchers, or a function as a matcher; models of a class are listed."""
    if isinstance(kind, type) and issubclass(kind, PairMatcher):
        _models.update({model.name: model for model in kind.weights.values()})
        return kind
    if isinstance(kind, type) or not callable(kind):
        raise refusal("matcher", "a function of two images or a PairMatcher", kind)
    gets: Any = choice(takes or getattr(kind, "takes", TAKES[1]), "takes", TAKES)
    return FunctionMatcher(name, kind, gets)


def matcher_names() -> list[str]:
    """Names of all matchers, those of other packages included."""
    _find_all()
    return sorted(_matchers)


def _registered_matcher(name: object) -> type[PairMatcher] | FunctionMatcher | EntryPoint:
    known = [NEAREST, *matcher_names()]
    if not isinstance(name, str) or name not in _matchers:
        raise ValueError(
            f"matcher must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    return _matchers[name]


def find_matcher(name: object) -> type[PairMatcher] | FunctionMatcher:
    """Return the class of a matcher, or the matcher of a function, by name."""
    found = _registered_matcher(name)
    if isinstance(found, EntryPoint):
        found = _matchers[found.name] = _checked_matcher(found.name, found.load())
    return found


def load_matcher(
    name: str, detector: str = "", *, device: str = "auto", offline: bool = False
) -> PairMatcher:
    """Make a matcher by name; its network is loaded when first used.

    Parameters
    ----------
    name : str
        One of `matcher_names`.
    detector : str
        Name of the detector whose features it gets.
    device, offline
        As in `Matcher`.

    Raises
    ------
    ValueError
        If there is no such matcher, or it was not trained for this detector.
    """
    found = find_matcher(name)
    if not isinstance(found, type):
        return found
    full = ALIASES.get(detector, detector) if found.takes == "features" else ""
    check_matcher(name, full)
    return found(full, device=device, offline=offline)


def check_matcher(name: object, detector: str) -> None:
    """Check that a matcher is registered and fits a detector, which is empty if it gets images.

    Nothing is loaded: a matcher of another package is checked once it is.
    """
    found = None if name == NEAREST else _registered_matcher(name)
    if isinstance(found, EntryPoint):
        return
    takes_images = found is not None and found.takes == "images"
    if takes_images and detector:
        raise ValueError(f"detector must be left out with the matcher {name!r}, got {detector!r}")
    if not takes_images and not detector:
        raise ValueError(f"detector must be one that finds keypoints with the matcher {name!r}")
    weights = {} if found is None or takes_images else found.weights
    if weights and ALIASES.get(detector, detector) not in weights:
        raise ValueError(
            f"matcher {name!r} must have the features of one of {', '.join(weights)}, got "
            f"those of {detector!r}"
        )


def backbone_names() -> list[str]:
    """Names of all backbones, those of other packages included; a trailing colon takes a model."""
    _find_all()
    return sorted(f"{name}:" if entry.prefix else name for name, entry in _backbones.items())


def detector_names() -> list[str]:
    """Names that `load_detector` takes, short ones included."""
    return [*(name for name, model in models().items() if model.kind == "detector"), *ALIASES]


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
    entry = _backbones.get(head)
    if entry is None or entry.prefix != bool(colon):
        known = backbone_names()
        raise ValueError(
            f"backbone must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    extra = {"model": model} if entry.prefix else {}
    return entry.factory(weights=weights, offline=offline, **extra)


def load_detector(
    name: str,
    *,
    max_keypoints: int = 2048,
    nms_radius: int | None = None,
    border: int = 4,
    threshold: float | None = None,
    weights: object = None,
    offline: bool = False,
) -> Detector:
    """Make a detector and load its weights.

    Parameters
    ----------
    name : str
        One of `detector_names`; "aliked" is the variant n16, and "grid:<n>" a grid of n pixels
        instead of 16.
    max_keypoints : int
        At most so many, those of the largest scores.
    nms_radius : int, optional
        No two keypoints within this many pixels along both axes. By default that of the published
        code: 4 for SuperPoint, 2 for ALIKED, DISK and XFeat, 0 (repeated positions only) for SIFT.
    border : int
        Pixels along the image's edge without keypoints.
    threshold : float, optional
        Scores must be larger; by default the detector's own.
    weights : path or "random", optional
        By default they are looked for where `manymatch models` says.
    offline : bool
        Never download.

    Raises
    ------
    ValueError
        If there is no such detector, a setting is out of range or has no meaning for it, or weights
        are missing, damaged or of another network.
    ModuleNotFoundError
        If a package is missing; the sentence says how to install it.
    """
    _find_all()
    if not isinstance(name, str):
        raise refusal("detector", "a name", name)
    head, colon, variant = name.partition(":")
    full = ALIASES.get(head, head)
    kind = _detectors.get(full)
    if kind is None or (colon and not kind.is_variant(variant)):
        known = detector_names()
        raise ValueError(
            f"detector must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    model = _models[full]
    for setting, value, exists in (
        ("nms_radius", nms_radius, kind.default_nms_radius is not None),
        ("threshold", threshold, kind.default_threshold is not None),
        ("weights", weights, model.needs_weights),
    ):
        if value is not None and not exists:
            raise refusal(setting, f"left out for the detector {name!r}", value)
    selection = Selection(
        max_keypoints,
        (kind.default_nms_radius or 0) if nms_radius is None else nms_radius,
        border,
        (kind.default_threshold or 0.0) if threshold is None else threshold,
    )
    return kind(model, selection, weights=weights, offline=offline, variant=variant)


def _find_all() -> None:
    """Import our families and find the entry points of other packages, once."""
    global _complete  # noqa: PLW0603
    if _complete:
        return
    for folder in ("backbones", "detectors", "matchers"):
        package = importlib.import_module(f"manymatch.features.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    for point in entry_points(group=ENTRY_POINTS):
        # Loaded only when asked for, so that a broken package breaks nothing but itself.
        if point.name not in _backbones:
            _backbones[point.name] = _Registered(_from_entry_point(point.name))
    for point in entry_points(group=MATCHER_ENTRY_POINTS):
        _matchers.setdefault(point.name, point)
    _complete = True


def _is_word(name: object) -> bool:
    return isinstance(name, str) and name != "" and ":" not in name and name == name.strip()


def _from_entry_point(name: str) -> Callable[..., Backbone]:
    def factory(**keywords: object) -> Backbone:
        (point,) = tuple(entry_points(group=ENTRY_POINTS, name=name))[:1]
        made: Backbone = point.load()(**keywords)
        return made

    return factory

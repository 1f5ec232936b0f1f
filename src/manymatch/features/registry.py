"""Models by name: the facts about them, and who makes backbones, detectors and matchers.

Facts about our own models are in ``models.toml``. The module that makes a model is imported when
the model is loaded, and entry points of other packages are loaded when one of them is asked for, so
listing names needs neither torch nor a network.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import tomllib
from collections.abc import Callable, Collection, Iterable
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from manymatch._validate import choice, refusal, suggest
from manymatch.associate.candidates import NEAREST
from manymatch.features.detectors import Detector, Selection
from manymatch.features.device import require_torch
from manymatch.features.matchers import TAKES, FunctionMatcher, PairMatcher, Takes

if TYPE_CHECKING:
    from manymatch.features.backbones import Backbone

    Found = type[PairMatcher] | FunctionMatcher
    Factory = TypeVar("Factory", bound=Callable[..., Backbone])
    MatcherType = TypeVar("MatcherType", bound=Callable[..., object])

#: Groups of entry points in which other packages name their factories and matchers.
ENTRY_POINTS = {"backbone": "manymatch.backbones", "matcher": "manymatch.matchers"}
#: Short names of detectors.
ALIASES = {"aliked": "aliked-n16"}
# Modules that import torch.
_WITH_TORCH = ("backbones.published", "backbones.vjepa", "detectors.superpoint")
# How models are listed.
_KINDS = ("detector", "matcher", "backbone")


@dataclasses.dataclass(frozen=True)
class Model:
    """Facts about one model; dimensions are those of the last layer."""

    name: str
    kind: Literal["backbone", "detector", "matcher"]
    #: Models of one family share their code.
    family: str
    #: Repository on the model hub.
    hub_id: str | None = None
    #: Of the weights, and whether the hub wants it accepted first.
    licence: str = "unknown"
    gated: bool = False
    #: Number of parameters of the part that is used, and megabytes that are downloaded, if known.
    parameters: int | None = None
    size_mb: float | None = None
    dim: int | None = None
    num_layers: int | None = None
    patch_size: int | None = None
    #: Requirement for pip, hash of the package, and the path of the weights inside it.
    package: str | None = None
    package_sha256: str = ""
    file: str | None = None
    #: Name of the file that the authors publish beside the hub's, which is read too, and its
    #: address. It is downloaded when the weights are neither on the hub nor in a package.
    checkpoint: str | None = None
    #: Where that file is asked for, and why it is better than the hub's, if it is.
    checkpoint_page: str | None = None
    checkpoint_why: str = ""
    url: str | None = None
    #: Commit of the hub's repository that is downloaded; None takes the newest.
    revision: str | None = None
    #: Hexadecimal hashes by file name, or the first digits where no more are published.
    sha256: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)
    #: Entry of the authors' file that holds the tensors, if it has several; expressions for the
    #: names of its tensors with the names in the network, applied in turn, where an empty name
    #: leaves a tensor out; and constants of the network that the file lacks.
    entry: str | None = None
    tensors: list[list[str]] = dataclasses.field(default_factory=list, hash=False)
    constants: list[str] = dataclasses.field(default_factory=list, hash=False)
    #: A model of the same kind that is easier to get.
    alternative: str | None = None
    #: Optional packages that run it, as Python imports them.
    libraries: tuple[str, ...] = ("torch", "transformers")
    #: Detector whose features a matcher takes.
    detector: str | None = None
    #: Module and name of the factory, below this package, and its settings for this model.
    make: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def needs_weights(self) -> bool:
        """Whether there is anything to load."""
        return bool(self.hub_id or self.package or self.url)

    @property
    def missing_libraries(self) -> list[str]:
        """Optional packages that are not installed; in place of ONNX Runtime torch will do."""
        installed = {name for name in (*self.libraries, "torch") if importlib.util.find_spec(name)}
        stand_ins = {"onnxruntime"} if "torch" in installed else set()
        return [name for name in self.libraries if name not in installed | stand_ins]

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


# Registered while the program runs, or loaded; models are those of registered matchers.
_models: dict[str, Model] = {}
_backbones: dict[str, Callable[..., Backbone]] = {}
_matchers: dict[str, Found] = {}
# Our own factories that are not in the catalogue; a name with a colon takes the name of a model.
_OWN_PREFIXES = {"hf:": "backbones.published:load_hub", "timm:": "backbones.published:load_timm"}
_OWN_MATCHERS = {"lightglue": "matchers.lightglue:LightGlue"}


@functools.cache
def _catalogue() -> dict[str, Model]:
    text = (resources.files("manymatch.features") / "models.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    known = {}
    for name, own in content["model"].items():
        facts = {**content["family"].get(own.pop("of", ""), {})}
        settings = {**facts.pop("settings", {}), **own.pop("settings", {})}
        facts = {"name": name, **facts, **own, "settings": settings}
        facts["libraries"] = tuple(facts.get("libraries", Model.libraries))
        known[name] = Model(**facts)
    return known


def models() -> dict[str, Model]:
    """All models by name: detectors, matchers, backbones, those that need no download first."""
    known = (_catalogue() | _models).values()
    order = sorted(known, key=lambda m: (_KINDS.index(m.kind), bool(m.hub_id or m.url)))
    return {model.name: model for model in order}


def find_model(name: object) -> Model:
    """Return a model by name; an unknown one is a `ValueError`."""
    known = models()
    return known[_known(ALIASES.get(name, name) if isinstance(name, str) else name, "model", known)]


def register_backbone(name: str, *, replace: bool = False) -> Callable[[Factory], Factory]:
    """Make a backbone available under a name; a decorator for its class or factory.

    Parameters
    ----------
    name : str
        What `Matcher(descriptor=name)` and the command line will call it.
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
    taken = {known.removesuffix(":") for known in (*_own_backbones(), *_backbones)}
    _check_name(name, () if replace else taken)

    def decorate(factory: Factory) -> Factory:
        if not callable(factory):
            raise refusal("factory", "a class or function that makes a Backbone", factory)
        _backbones[name] = factory
        return factory

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
        Whether a function gets the two images (the default) or their features; see
        `PairMatcher.match` for these and for the result.
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
    taken = () if replace else {*_matchers, *_OWN_MATCHERS}
    _check_name(name, taken, other_than=NEAREST)

    def decorate(kind: MatcherType) -> MatcherType:
        _matchers[name] = _checked_matcher(name, kind, takes)
        return kind

    return decorate


def _check_name(name: object, taken: Collection[str], other_than: str = "") -> None:
    want = "a word without a colon" + (f", other than {other_than!r}" if other_than else "")
    word = isinstance(name, str) and name == name.strip() and ":" not in name
    if not word or name in ("", other_than):
        raise refusal("name", want, name)
    if name in taken:
        raise refusal("name", "one that is not taken (or replace=True given)", name)


def _checked_matcher(name: str, kind: object, takes: object = None) -> Found:
    """Return a class of matchers, or a function as a matcher; models of a class are listed."""
    if isinstance(kind, type) and issubclass(kind, PairMatcher):
        _models.update({model.name: model for model in kind.weights.values()})
        return kind
    if isinstance(kind, type) or not callable(kind):
        raise refusal("matcher", "a function of two images or a PairMatcher", kind)
    gets: Any = choice(takes or getattr(kind, "takes", TAKES[1]), "takes", TAKES)
    return FunctionMatcher(name, kind, gets)


def matcher_names() -> list[str]:
    """Names of all matchers, including those of other packages."""
    return sorted({*_matchers, *_OWN_MATCHERS, *_entry_points("matcher")})


def find_matcher(name: object) -> Found:
    """Return the class of a matcher, or the matcher of a function, by name."""
    if name not in matcher_names():
        _known(name, "matcher", [NEAREST, *matcher_names()])
    wanted = str(name)
    if wanted not in _matchers:
        own = _OWN_MATCHERS.get(wanted)
        kind = _imported(own) if own else _entry_points("matcher")[wanted].load()
        _matchers[wanted] = _checked_matcher(wanted, kind)
    return _matchers[wanted]


def load_matcher(
    name: str, detector: str = "", *, device: str = "auto", offline: bool = False
) -> PairMatcher:
    """Make a matcher by name, for the features of a detector; it loads its network when used."""
    found = find_matcher(name)
    if not isinstance(found, type):
        return found
    full = ALIASES.get(detector, detector) if found.takes == "features" else ""
    check_matcher(name, full)
    return found(full, device=device, offline=offline)


def check_matcher(name: object, detector: str) -> None:
    """Check that a matcher is registered and fits a detector, which is empty if it gets images."""
    found = PairMatcher if name == NEAREST else find_matcher(name)
    if found.takes == "images" and detector:
        raise ValueError(f"detector must be left out with the matcher {name!r}, got {detector!r}")
    if found.takes != "images" and not detector:
        raise ValueError(f"detector must be one that finds keypoints with the matcher {name!r}")
    weights = found.weights if detector else {}
    if weights and ALIASES.get(detector, detector) not in weights:
        raise ValueError(
            f"matcher {name!r} must have the features of one of {', '.join(weights)}, got "
            f"those of {detector!r}"
        )


def backbone_names() -> list[str]:
    """Names of all backbones, also of other packages; a name with a colon takes a model's name."""
    return sorted({*_backbones, *_own_backbones(), *_entry_points("backbone")})


def _own_backbones() -> dict[str, str]:
    """Factories of our own backbones by name, as `_imported` takes them."""
    listed = {m.name: m.make for m in _catalogue().values() if m.kind == "backbone"}
    return listed | _OWN_PREFIXES


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
    """
    head, colon, rest = str(name).partition(":")
    key = _known(
        head + colon if head + colon in _OWN_PREFIXES else name, "backbone", backbone_names()
    )
    factory = _backbones.get(key)
    if factory is None and key in _own_backbones():
        found = _imported(_own_backbones()[key])
        factory = functools.partial(found, rest if colon else _catalogue()[key])
    elif factory is None:
        factory = _entry_points("backbone")[key].load()
    backbone: Backbone = factory(weights=weights, offline=offline)
    return backbone


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

    `name` is one of `detector_names`; "aliked" is the variant n16. The other arguments are as in
    `Selection` and `load_backbone`. By default radius and threshold are those of the published
    code: a radius of 4 for SuperPoint, 2 for ALIKED and XFeat. SIFT and ORB have none.
    """
    model = find_model(_known(name, "detector", detector_names()))
    kind: type[Detector] = _imported(model.make)
    for setting, value, exists in (
        ("nms_radius", nms_radius, kind.default_nms_radius is not None),
        ("threshold", threshold, kind.default_threshold is not None),
        ("weights", weights, model.needs_weights),
    ):
        if value is not None and not exists:
            raise refusal(setting, f"left out for the detector {name!r}", value)
    radius = (kind.default_nms_radius or 0) if nms_radius is None else nms_radius
    least = (kind.default_threshold or 0.0) if threshold is None else threshold
    selection = Selection(max_keypoints, radius, border, least)
    return kind(model, selection, weights=weights, offline=offline)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    if module in _WITH_TORCH:
        require_torch()
    return getattr(importlib.import_module(f"manymatch.features.{module}"), name)


@functools.cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    """Entry points of other packages by name, not loaded: a broken one breaks only itself."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS[kind])}


def _known(name: object, kind: str, known: Iterable[str]) -> str:
    """Return a name that is known."""
    listed = list(known)
    if isinstance(name, str) and name in listed:
        return name
    raise ValueError(
        f"{kind} must be one of {', '.join(listed)}{suggest(name, listed)}, got {name!r}"
    )

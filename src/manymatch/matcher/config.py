"""The configuration of a matcher: a tuple of sources and the settings of the estimator."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tomli_w

from manymatch._validate import METHODS, checked_method, refusal, suggest
from manymatch.associate.candidates import NEAREST, Association
from manymatch.features.device import default_preset
from manymatch.features.feature_config import (
    CHOSEN_FOR,
    FEATURE_PRESETS,
    NATIVE,
    NO_DETECTOR,
    OF_BACKBONES,
    FeatureConfig,
)
from manymatch.features.matchers import FunctionMatcher, PairMatcher
from manymatch.features.registry import (
    Model,
    check_matcher,
    find_matcher,
    find_model,
    load_matcher,
    matcher_names,
)
from manymatch.io.files import read_toml, reading, write_text
from manymatch.options import Options, setting, settings

#: Presets of several sources, as a user would write them.
SOURCE_PRESETS: dict[str, tuple[str | dict[str, Any], ...]] = {
    "fast": ({"name": "xfeat", "detector": "xfeat"}, "embedded"),
    "fused": (
        {"name": "xfeat", "detector": "xfeat"},
        "embedded",
        {"name": "aliked", "detector": "aliked-t16"},
        {"name": "embedded-aliked", "preset": "embedded", "detector": "aliked-t16"},
        # Beside the others, half of the pixels and keypoints do as well as all of them.
        {"name": "sift", "preset": "classic", "longest": 724, "max_keypoints": 1024},
    ),
    "best": (
        {"name": "aliked-lightglue", "detector": "aliked", "matcher": "lightglue"},
        "embedded",
    ),
}
PRESETS: tuple[str, ...] = (*FEATURE_PRESETS, *SOURCE_PRESETS)

_FEATURES = tuple(field.name for field in dataclasses.fields(FeatureConfig))
_ASSOCIATION = tuple(field.name for field in dataclasses.fields(Association))
_OPTIONS = tuple(field.name for field in dataclasses.fields(Options))
#: Names of all settings that `MatcherConfig.of` and ``--set`` take.
SETTINGS: tuple[str, ...] = (*_FEATURES, *_ASSOCIATION, *_OPTIONS, "method")
# Sections of a TOML file that hold for all sources, and the fields of each.
_SECTIONS = {
    "features": _FEATURES,
    "association": _ASSOCIATION,
    "estimation": ("method", *_OPTIONS),
}
# Settings that distinguish a source from the others; with several sources they are set in one.
_OF_ONE_SOURCE = (
    *("detector", "descriptor", "layer", "norm", "debias", "probe", "patches", "nms_radius"),
    *("threshold", "weights", "detector_weights", "matcher"),
)
_WANT = "a configuration in TOML"
# Stands for None in TOML.
_NONE = "none"
# Names of sources are part of the names of folders.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,59}")


@settings
@dataclasses.dataclass(frozen=True)
class SourceConfig:
    """One source of candidates: features, and how those of two images become candidates.

    Raises
    ------
    ValueError
        If the name is not a short word, or the matcher is unknown or does not fit the features.

    Examples
    --------
    >>> SourceConfig("own", FeatureConfig("aliked"), Association(matcher="lightglue")).title
    'aliked + lightglue'
    """

    name: str = setting("classic", "Name of the source in results.")
    features: FeatureConfig = setting(FEATURE_PRESETS["classic"], "Detector and descriptor.")
    association: Association = setting(Association(), "From features to candidates.")
    function: Callable[..., Any] | None = setting(
        None,
        "The pair matcher, if it is a function that is not registered: of two images or, if there "
        "is a detector, of their features; see PairMatcher.match.",
    )

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            want = "a word of at most 60 letters, digits, '.', '_', '+' and '-'"
            raise refusal("name of a source", want, name)
        if self.function is not None:
            return
        matcher = self.association.matcher
        if matcher != NEAREST and self.features.descriptor != NATIVE:
            raise ValueError(
                f"descriptor must be {NATIVE!r} with the matcher {matcher!r}, got "
                f"{self.features.descriptor!r}"
            )
        check_matcher(matcher, "" if self.takes_images else self.features.detector)

    @property
    def takes_images(self) -> bool:
        """Whether a pair matcher gets the images: keypoints then belong to pairs, not to images."""
        return self.features.detector == NO_DETECTOR

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        matcher = self.association.matcher
        registered = self.function is None and matcher != NEAREST
        return self.features.needs_torch or (registered and find_matcher(matcher).needs_torch)

    @property
    def title(self) -> str:
        """Features and pair matcher in a few words."""
        matcher = self.association.matcher
        if self.takes_images:
            return matcher
        return f"{self.features.detector} + " + (
            self.features.descriptor if matcher == NEAREST else matcher
        )

    def models(self) -> list[Model]:
        """Return its models: those of the detector, the descriptor and the pair matcher."""
        names = (self.features.detector, self.features.descriptor)
        found = [find_model(name) for name in names if name not in (NATIVE, NO_DETECTOR)]
        matcher = self.load_matcher()
        return found if matcher is None or matcher.model is None else [*found, matcher.model]

    def load_matcher(self, *, device: str = "auto", offline: bool = False) -> PairMatcher | None:
        """Make the pair matcher; None for nearest neighbours. Its network is loaded when used."""
        name = self.association.matcher
        if self.function is not None:
            takes: Any = "images" if self.takes_images else "features"
            return FunctionMatcher(name, self.function, takes)
        if name == NEAREST:
            return None
        return load_matcher(name, self.features.detector, device=device, offline=offline)

    def changed(self, changes: Mapping[str, Any], notes: list[str]) -> SourceConfig:
        """Change settings; those that lose their meaning get their default, and `notes` say so."""
        features = {name: value for name, value in changes.items() if name in _FEATURES}
        association = {name: value for name, value in changes.items() if name in _ASSOCIATION}
        if self.function is None and _takes_images(association.get("matcher", NEAREST)):
            features = {"detector": NO_DETECTOR, "descriptor": NATIVE} | features
        old, defaults = self.features, FeatureConfig()
        for part, names in CHOSEN_FOR.items():
            new = features.get(part)
            if new in (None, getattr(old, part)):
                continue
            named = (*names, *OF_BACKBONES) if new == NATIVE else names
            unnamed = {name: getattr(old, name) for name in named if name not in features}
            lost = {name: v for name, v in unnamed.items() if v != getattr(defaults, name)}
            if lost:
                values = ", ".join(f"{name}={value}" for name, value in lost.items())
                why = "is left out: it was" if len(lost) == 1 else "are left out: they were"
                chosen = f"chosen for the {part} {getattr(old, part)}."
                notes.append(f'{values} of the preset "{self.name}" {why} {chosen}')
                features |= {name: getattr(defaults, name) for name in lost}
        return dataclasses.replace(
            self,
            features=self.features.replace(**features),
            association=dataclasses.replace(self.association, **association),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as one dict of plain values."""
        return {"name": self.name, **self.features.to_dict(), **self.association.to_dict()}

    @classmethod
    def of(cls, value: object, notes: list[str]) -> list[SourceConfig]:
        """Make the sources that a user describes in one value; add to the notes.

        A text is a preset, which may have several sources, or a registered matcher of images. A
        table has any fields of `FeatureConfig` and `Association`, and may have a ``name`` and a
        ``preset``. A function is a matcher of two images.
        """
        if isinstance(value, SourceConfig):
            return [value]
        if isinstance(value, str) and value in SOURCE_PRESETS:
            return [source for part in SOURCE_PRESETS[value] for source in cls.of(part, notes)]
        table = {"matcher": value} if callable(value) else value
        if isinstance(value, str):
            known = [*PRESETS, *(name for name in matcher_names() if _takes_images(name))]
            _check_known([value], known, "sources must be tables or among")
            table = {"preset" if value in FEATURE_PRESETS else "matcher": value}
        if not isinstance(table, Mapping):
            raise refusal("sources", "names of presets, tables of settings or functions", value)
        known = ["name", "preset", *_FEATURES, *_ASSOCIATION]
        _check_known(table, known, "a source must have fields among")
        values = {field: None if entry == _NONE else entry for field, entry in table.items()}
        name, preset = values.pop("name", None), values.pop("preset", None)
        function = values.get("matcher") if callable(values.get("matcher")) else None
        if function is not None:
            label = getattr(function, "__name__", type(function).__name__)
            values["matcher"] = label if _NAME.fullmatch(label) else "function"
        if preset is not None:
            if not isinstance(preset, str) or preset not in FEATURE_PRESETS:
                want = f"one of {', '.join(FEATURE_PRESETS)}"
                raise refusal("preset of a source", want, preset)
            base = cls(preset, FEATURE_PRESETS[preset], function=function)
        elif function is not None and "detector" not in values:
            base = cls("function", FeatureConfig(detector=NO_DETECTOR), function=function)
        elif "detector" in values or _takes_images(values.get("matcher", NEAREST)):
            base = cls(function=function)
        else:
            want = "a table with a preset, a detector or a matcher of images"
            raise refusal("sources", want, dict(table))
        made = base.changed(values, notes)
        if name is None:
            name = preset if preset and not values else made.title.replace(" + ", "-")
        return [dataclasses.replace(made, name=name)]


@settings
@dataclasses.dataclass(frozen=True)
class MatcherConfig:
    """All settings of a matcher that decide what it returns for two images.

    Examples
    --------
    >>> MatcherConfig.of("classic", k=3, max_keypoints=1000).sources[0].association.k
    3
    """

    preset: str = setting("classic", "Name of the preset that it started from; a label.")
    sources: tuple[SourceConfig, ...] = setting(
        (SourceConfig(),), "Sources of candidates; those of all sources make one graph."
    )
    method: str = setting("auto", "Method of the estimator.", panel="Estimation", choices=METHODS)
    options: Options = setting(
        Options(),
        "Of the estimator. Its threshold_px counts pixels of the resized image, so that it means "
        "the same for a photograph of any size.",
    )
    notes: tuple[str, ...] = setting(
        (),
        "Why the preset is the default, and which of its settings were left out. Not compared and "
        "not written to files.",
        compare=False,
    )

    def __post_init__(self) -> None:
        checked_method(self.method)
        if not self.sources:
            raise refusal("sources", "at least one source", self.sources)
        names = [source.name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sources must have different names, got {name!r} twice")

    @property
    def title(self) -> str:
        """Features and pair matchers of all sources in a few words."""
        return ", ".join(source.title for source in self.sources)

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        return any(source.needs_torch for source in self.sources)

    def for_method(self) -> tuple[Association, ...]:
        """Return the association of every source, completed by what the method decides."""
        return tuple(source.association.for_method(self.method) for source in self.sources)

    @classmethod
    def paper(
        cls, preset: object = None, *, sources: Iterable[object] | None = None, **changes: Any
    ) -> MatcherConfig:
        """Return the paper's practical configuration with parts of it changed, as `of` does.

        It has DINOv3 features, five mutual candidates with caps and motion filter, and the
        two-stage estimator with the default options, which are the paper's. A preset or sources
        that are named replace the features and matchers only.
        """
        named = "dinov3" if preset is None and sources is None else preset
        paper: dict[str, Any] = {"method": "hcm-mcm", "options": Options()}
        own = cls.of(named, sources=sources, **paper, **Association.paper().to_dict())
        return cls.of(own, **changes)

    @classmethod
    def of(
        cls, preset: object = None, *, sources: Iterable[object] | None = None, **changes: Any
    ) -> MatcherConfig:
        """Take a preset, a TOML file, a configuration or sources, and change parts of it.

        Parameters
        ----------
        preset : str, path or MatcherConfig, optional
            A name of `PRESETS`, a file that ends in .toml, or a configuration. By default "fused"
            or, with settings of one source such as a detector, "embedded"; "classic" where their
            packages are not installed.
        sources : list, optional
            Instead of a preset: the sources of candidates, as in ``["classic", "embedded"]``.
            Each is a preset, a matcher of images by its name, a `SourceConfig`, a dict of any
            fields of `FeatureConfig` and `Association` with an optional ``name`` and ``preset``,
            or a function of two images, see `register_matcher`.
        **changes
            Any field of `FeatureConfig`, `Association`, `Options` (or all of the latter as
            `options`), or `method`. Settings of the preset that were chosen for another detector
            or descriptor, such as a layer of the backbone, are left out, and `notes` say so. With
            several sources the changes hold for all of them; a setting that distinguishes a
            source, such as its detector, is refused here.
        """
        if sources is not None and preset is not None:
            raise ValueError(
                f"preset and sources must not be given together, got {preset!r} and sources"
            )
        notes: list[str] = []
        if sources is not None:
            base = cls._of_sources(sources)
        elif isinstance(preset, MatcherConfig):
            base = preset
        elif preset is None:
            one = not changes.keys().isdisjoint(_OF_ONE_SOURCE)
            default, why = default_preset(one_source=one)
            base, notes = cls._of_sources([default], default), [why]
        elif isinstance(preset, str) and preset in PRESETS:
            base = cls._of_sources([preset], preset)
        elif isinstance(preset, os.PathLike) or str(preset).endswith(".toml"):
            base = cls.load(preset)
        else:
            want = f"one of {', '.join(PRESETS)}, a .toml file or a MatcherConfig"
            raise ValueError(f"{refusal('preset', want, preset)}{suggest(str(preset), PRESETS)}")
        method, options = changes.pop("method", base.method), changes.pop("options", None)
        if isinstance(options, dict):
            options = Options.from_dict(options)
        if options is not None and not isinstance(options, Options):
            raise refusal("options", "an Options, a dict of its fields or None", options)
        _check_known(changes, (*SETTINGS, "options"), "settings must be among")
        estimation = {name: changes.pop(name) for name in _OPTIONS if name in changes}
        notes, several, made = [*base.notes, *notes], len(base.sources) > 1, []
        for name in _OF_ONE_SOURCE if several else ():
            if name in changes:
                names = ", ".join(source.name for source in base.sources)
                raise ValueError(
                    f"{name} must be set in its source where there are several ({names}), as in "
                    f'sources=[{{"preset": "{base.sources[-1].name}", "{name}": ...}}, ...], got '
                    f"{changes[name]!r}"
                )
        for source in base.sources:
            left_out = {"precision"} if several and source.features.descriptor == NATIVE else set()
            own = {name: value for name, value in changes.items() if name not in left_out}
            made.append(source.changed(own, notes))
        return dataclasses.replace(
            base,
            sources=tuple(made),
            options=(options or base.options).changed(**estimation),
            method=method,
            notes=tuple(notes),
        )

    @classmethod
    def _of_sources(cls, sources: object, preset: str | None = None) -> MatcherConfig:
        """Make a configuration of sources; its label is the preset or their names."""
        if isinstance(sources, str | Mapping) or not isinstance(sources, Iterable):
            raise refusal("sources", "a list of presets, tables of settings or functions", sources)
        notes: list[str] = []
        made = [source for value in sources for source in SourceConfig.of(value, notes)]
        label = "+".join(source.name for source in made)
        if preset not in (None, label, *PRESETS):
            raise refusal("preset", f"one of {', '.join(PRESETS)}", preset)
        return cls(preset or label, tuple(made), notes=tuple(notes))

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as nested dicts of plain values, the inverse of `from_dict`.

        ``sources`` is a list with one dict per source. A function is written by its name, and
        cannot be read again.
        """
        return {
            "preset": self.preset,
            "sources": [source.to_dict() for source in self.sources],
            "estimation": {"method": self.method, **self.options.to_dict()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MatcherConfig:
        """Make a configuration of nested dicts; settings that are absent are those of the preset.

        ``sources`` is a list of presets and tables of settings, by default the preset alone. The
        sections ``features``, ``association`` and ``estimation`` hold for all sources. An unknown
        section or field is an error.
        """
        own = {name: v for name, v in values.items() if name not in ("preset", "sources")}
        _check_known(own, (*_SECTIONS, "sources"), "configuration must have the sections")
        changes: dict[str, Any] = {}
        for section, content in own.items():
            if not isinstance(content, dict):
                raise refusal(section, "a table of fields", content)
            _check_known(content, _SECTIONS[section], f"{section} must have fields among")
            changes |= {name: None if v == _NONE else v for name, v in content.items()}
        preset = values.get("preset")
        if "sources" in values:
            return cls.of(cls._of_sources(values["sources"], preset), **changes)
        if preset is not None and preset not in PRESETS:
            raise refusal("preset", f"one of {', '.join(PRESETS)}", preset)
        return cls.of(preset, **changes)

    def to_toml(self) -> str:
        """Return the configuration as TOML text; TOML has no null, so that None is "none"."""
        return tomli_w.dumps(_without_none(self.to_dict()))

    def save(self, path: object) -> None:
        """Write a TOML file."""
        write_text(path, self.to_toml())

    @classmethod
    def load(cls, path: object) -> MatcherConfig:
        """Read a TOML file; unknown keys are errors."""
        values = read_toml(path, _WANT)
        with reading(path, _WANT, ValueError):
            return cls.from_dict(values)

    def __str__(self) -> str:
        return self.to_toml()


def _takes_images(matcher: object) -> bool:
    return matcher != NEAREST and find_matcher(matcher).takes == "images"


def _check_known(names: Iterable[str], known: Iterable[str], must: str) -> None:
    """Refuse a name that is not known, with a suggestion."""
    for name in names:
        if name not in known:
            raise ValueError(f"{must} {', '.join(known)}, got {name!r}{suggest(name, known)}")


def _without_none(value: Any) -> Any:
    """Write None as a word, in nested dicts and lists."""
    if isinstance(value, dict):
        return {name: _without_none(content) for name, content in value.items()}
    if isinstance(value, list):
        return [_without_none(content) for content in value]
    return _NONE if value is None else value

"""The whole configuration of a matcher: presets by name, TOML files, settings by keyword."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tomli_w

from manymatch._validate import METHODS, checked_method, refusal, suggest
from manymatch.associate.candidates import NEAREST, Association
from manymatch.features.config import FEATURE_PRESETS, NATIVE, NO_DETECTOR, FeatureConfig
from manymatch.features.device import default_preset
from manymatch.features.matchers.base import FunctionMatcher
from manymatch.features.registry import find_matcher, load_matcher, matcher_names
from manymatch.io.files import as_path, read_text, reading, write_text
from manymatch.options import Options, setting, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from manymatch.features.matchers.base import PairMatcher

_SECTIONS = ("features", "association", "estimation")
_WANT = "a configuration in TOML"
# Many times what all settings take; the time to parse some texts grows with the square of this.
_LONGEST = 50_000
# In TOML.
_NONE = "none"


_PARTS: dict[str, Any] = {
    "features": FeatureConfig,
    "association": Association,
    "options": Options,
}
# What makes a source another one than its neighbours; with several it is said in the source.
_OF_ONE_SOURCE = (
    *("detector", "descriptor", "layer", "norm", "debias", "probe", "patches", "nms_radius"),
    *("threshold", "weights", "detector_weights", "matcher"),
)
#: Presets of several sources, as a user would write them.
SOURCE_PRESETS: dict[str, tuple[str | dict[str, str], ...]] = {
    "fused": (
        {"name": "sift", "preset": "classic"},
        {"name": "xfeat", "detector": "xfeat"},
        "embedded",
    ),
    "best": (
        {"name": "aliked-lightglue", "detector": "aliked", "matcher": "lightglue"},
        "embedded",
    ),
}
PRESETS: tuple[str, ...] = (*FEATURE_PRESETS, *SOURCE_PRESETS)
# Names of sources are part of names of folders.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,59}")


@settings
@dataclasses.dataclass(frozen=True)
class SourceConfig:
    """One source of candidates: features, and how those of two images become candidates.

    Raises
    ------
    ValueError
        If the name is no short word, or the matcher is unknown or does not fit the features.

    Examples
    --------
    >>> SourceConfig("own", FeatureConfig("aliked"), Association(matcher="lightglue")).title
    'aliked + lightglue'
    """

    name: str = setting("classic", "Under which results mention it.")
    features: FeatureConfig = setting(FEATURE_PRESETS["classic"], "Detector and descriptor.")
    association: Association = setting(Association(), "From features to candidates.")
    function: Callable[..., Any] | None = setting(
        None,
        "The matcher, where it is a function that is not registered: of two images or, if there "
        "is a detector, of their features; see PairMatcher.match.",
    )

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            want = "a word of at most 60 letters, digits, '.', '_', '+' and '-'"
            raise refusal("name of a source", want, name)
        matcher, detector = self.association.matcher, self.features.detector
        wants_images = self.takes_images
        if self.function is None:
            wants_images = _takes_images(matcher)
        if wants_images != self.takes_images:
            want = "left out" if wants_images else "one that finds keypoints"
            raise ValueError(
                f"detector must be {want} with the matcher {matcher!r}, got {detector!r}"
            )
        if self.function is None and matcher != NEAREST and self.features.descriptor != NATIVE:
            raise ValueError(
                f"descriptor must be {NATIVE!r} with the matcher {matcher!r}, got "
                f"{self.features.descriptor!r}"
            )
        self.load_matcher()

    @property
    def takes_images(self) -> bool:
        """Whether a matcher gets the images: keypoints then belong to pairs, not to images."""
        return self.features.detector == NO_DETECTOR

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        matcher = self.load_matcher()
        return self.features.needs_torch or (matcher is not None and matcher.needs_torch)

    @property
    def title(self) -> str:
        """Features and matcher in a few words."""
        matcher = self.association.matcher
        if self.takes_images:
            return matcher
        return f"{self.features.detector} + " + (
            self.features.descriptor if matcher == NEAREST else matcher
        )

    def load_matcher(self, *, device: str = "auto", offline: bool = False) -> PairMatcher | None:
        """Make the matcher, whose network is loaded when used; None for nearest neighbours."""
        name = self.association.matcher
        if self.function is not None:
            takes: Any = "images" if self.takes_images else "features"
            return FunctionMatcher(name, self.function, takes)
        if name == NEAREST:
            return None
        return load_matcher(name, self.features.detector, device=device, offline=offline)

    def changed(
        self, features: Mapping[str, Any], association: Mapping[str, Any]
    ) -> tuple[SourceConfig, list[str]]:
        """Change settings; what then has no meaning becomes the default, and notes say so."""
        changes = dict(features)
        matcher = association.get("matcher", NEAREST)
        if matcher != NEAREST and self.function is None and _takes_images(matcher):
            changes = {"detector": NO_DETECTOR, "descriptor": NATIVE} | changes
        left_out: dict[str, Any] = {}
        notes = []
        for part, names in self.features.outdated(changes).items():
            left_out |= {name: getattr(FeatureConfig, name) for name in names}
            if names:
                values = ", ".join(f"{name}={getattr(self.features, name)}" for name in names)
                why = "is left out: it was" if len(names) == 1 else "are left out: they were"
                notes.append(
                    f'{values} of the preset "{self.name}" {why} chosen for the {part} '
                    f"{getattr(self.features, part)}."
                )
        made = dataclasses.replace(
            self,
            features=self.features.replace(**left_out, **changes),
            association=dataclasses.replace(self.association, **association),
        )
        return made, notes

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as one dict of plain values."""
        return {"name": self.name, **self.features.to_dict(), **self.association.to_dict()}

    @classmethod
    def of(cls, value: object) -> tuple[list[SourceConfig], list[str]]:
        """Make what a user calls a source, and notes; a preset may have several.

        A text is a preset or a registered matcher of images. A table has the optional fields
        ``name`` and ``preset``, and any of `FeatureConfig` and `Association`. A function is a
        matcher of two images.
        """
        if isinstance(value, SourceConfig):
            return [value], []
        if isinstance(value, str):
            if value in FEATURE_PRESETS:
                return [cls(value, FEATURE_PRESETS[value])], []
            if value in SOURCE_PRESETS:
                return [source for part in SOURCE_PRESETS[value] for source in cls.of(part)[0]], []
            known = [*PRESETS, *(name for name in matcher_names() if _takes_images(name))]
            if value not in known:
                raise ValueError(
                    f"sources must be tables or among {', '.join(known)}, got "
                    f"{value!r}{suggest(value, known)}"
                )
            value = {"matcher": value}
        elif callable(value):
            value = {"matcher": value}
        if not isinstance(value, Mapping):
            raise refusal("sources", "names of presets, tables of settings or functions", value)
        made, notes = cls._of_table(value)
        return [made], notes

    @classmethod
    def _of_table(cls, table: Mapping[str, Any]) -> tuple[SourceConfig, list[str]]:
        values = {field: None if value == _NONE else value for field, value in table.items()}
        name, preset = values.pop("name", None), values.pop("preset", None)
        allowed = {part: _field_names(part) for part in ("features", "association")}
        known = ["name", "preset", *(field for fields in allowed.values() for field in fields)]
        for field in values:
            if field not in known:
                raise ValueError(
                    f"a source must have fields among {', '.join(known)}{suggest(field, known)}, "
                    f"got {field!r}"
                )
        function = values.get("matcher") if callable(values.get("matcher")) else None
        if function is not None:
            label = getattr(function, "__name__", type(function).__name__)
            values["matcher"] = label if _NAME.fullmatch(label) else "function"
        if preset is not None:
            if not isinstance(preset, str) or preset not in FEATURE_PRESETS:
                want = f"one of {', '.join(FEATURE_PRESETS)}"
                raise refusal("preset of a source", want, preset)
            base = cls(preset, FEATURE_PRESETS[preset])
        elif function is not None and "detector" not in values:
            base = cls("function", FeatureConfig(detector=NO_DETECTOR), Association(), function)
        elif "detector" in values or _takes_images(values.get("matcher", NEAREST)):
            base = cls()
        else:
            want = "a table with a preset, a detector or a matcher of images"
            raise refusal("sources", want, dict(table))
        base = dataclasses.replace(base, function=function)
        parts = [
            {field: values[field] for field in fields if field in values}
            for fields in allowed.values()
        ]
        made, notes = base.changed(*parts)
        if name is None:
            name = preset if preset and not values else made.title.replace(" + ", "-")
        return dataclasses.replace(made, name=name), notes


def _takes_images(matcher: object) -> bool:
    return matcher != NEAREST and find_matcher(matcher).takes == "images"


@settings
@dataclasses.dataclass(frozen=True)
class MatcherConfig:
    """Everything that decides what a matcher returns for two images.

    Examples
    --------
    >>> MatcherConfig.of("classic", k=3, max_keypoints=1000).association.k
    3
    """

    preset: str = setting("classic", "Name of the preset that it started from; a label.")
    features: FeatureConfig = setting(FEATURE_PRESETS["classic"], "Detector and descriptor.")
    association: Association = setting(Association(), "From descriptors to candidates.")
    method: str = setting("auto", "Method of the estimator.", panel="Estimation", choices=METHODS)
    options: Options = setting(
        Options(),
        "Of the estimator. Its threshold_px counts pixels of the resized image, so that it means "
        "the same for a photograph of any size.",
    )
    notes: tuple[str, ...] = setting(
        (),
        "Why the preset is the default, and what of it was left out; no part of equality or files.",
        compare=False,
    )
    source: str = setting("", "Name of the source of these features; by default the preset.")
    function: Callable[..., Any] | None = setting(
        None, "The matcher of these features where it is a function, see SourceConfig."
    )
    further: tuple[SourceConfig, ...] = setting(
        (), "Further sources of candidates; those of all sources make one graph."
    )

    def __post_init__(self) -> None:
        checked_method(self.method)
        names = [source.name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sources must have different names, got {name!r} twice")

    @property
    def sources(self) -> tuple[SourceConfig, ...]:
        """All sources of candidates, usually one."""
        name = self.source or self.preset
        if not self.source and not _NAME.fullmatch(name):
            name = "features"  # a label may be any text
        return (SourceConfig(name, self.features, self.association, self.function), *self.further)

    @property
    def title(self) -> str:
        """Features and matchers of all sources in a few words."""
        return ", ".join(source.title for source in self.sources)

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        return any(source.needs_torch for source in self.sources)

    def for_method(self) -> tuple[Association, ...]:
        """Return the association of every source, with what the method decides about it."""
        return tuple(source.association.for_method(self.method) for source in self.sources)

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
            Instead of a preset: what candidates are made of, as in ``["classic", "embedded"]``.
            Each is a preset, a matcher of images by its name, a `SourceConfig`, a dict of any
            fields of `FeatureConfig` and `Association` with an optional ``name`` and ``preset``,
            or a function of two images, see `register_matcher`.
        **changes
            Any field of `FeatureConfig`, `Association`, `Options` (or all of the latter as
            `options`), or `method`. What the preset has for another detector or descriptor than
            these say, such as a layer of the backbone, is left out, and `notes` say so. With
            several sources they hold for all of them, and what distinguishes a source, such as
            its detector, is refused here.
        """
        if sources is not None and preset is not None:
            raise ValueError(
                f"preset and sources must not be given together, got {preset!r} and sources"
            )
        if sources is not None:
            base = cls._of_sources(sources)
        elif preset is None:
            default, why = default_preset(one_source=not changes.keys().isdisjoint(_OF_ONE_SOURCE))
            base = dataclasses.replace(cls._base(default), notes=(why,))
        else:
            base = cls._base(preset)
        parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        fields = cls.field_names()
        method = changes.pop("method", base.method)
        options = changes.pop("options", None)
        if isinstance(options, dict):
            options = Options.from_dict(options)
        if options is not None and not isinstance(options, Options):
            raise refusal("options", "an Options, a dict of its fields or None", options)
        for name, value in changes.items():
            if name not in fields:
                known = [*fields, "method", "options"]
                raise ValueError(
                    f"settings must be among {', '.join(known)}, got {name!r}{suggest(name, known)}"
                )
            parts[fields[name]][name] = value
        made, notes = _changed(base, parts["features"], parts["association"])
        return dataclasses.replace(
            base,
            features=made[0].features,
            association=made[0].association,
            further=tuple(made[1:]),
            options=(options or base.options).changed(**parts["options"]),
            method=method,
            notes=(*base.notes, *notes),
        )

    @classmethod
    def _of_sources(cls, sources: object, preset: str | None = None) -> MatcherConfig:
        """Make a configuration of sources, called as they are or by a preset."""
        if isinstance(sources, str | Mapping) or not hasattr(sources, "__iter__"):
            raise refusal("sources", "a list of presets, tables of settings or functions", sources)
        made: list[SourceConfig] = []
        notes: list[str] = []
        for value in sources:
            several, said = SourceConfig.of(value)
            made, notes = made + several, notes + said
        if not made:
            raise refusal("sources", "at least one source", made)
        label = "+".join(source.name for source in made)
        plain = label in FEATURE_PRESETS and made[0].function is None
        if preset not in (None, label, *PRESETS):
            raise refusal("preset", f"one of {', '.join(PRESETS)}", preset)
        return cls(
            preset or label,
            made[0].features,
            made[0].association,
            notes=tuple(notes),
            source="" if plain else made[0].name,
            function=made[0].function,
            further=tuple(made[1:]),
        )

    @staticmethod
    def field_names() -> dict[str, str]:
        """Return the names of all settings, and of the part that each belongs to."""
        return {name: part for part in _PARTS for name in _field_names(part)}

    @classmethod
    def _base(cls, preset: object) -> MatcherConfig:
        if isinstance(preset, MatcherConfig):
            return preset
        name = preset
        if isinstance(name, str) and name in FEATURE_PRESETS:
            return cls(name, FEATURE_PRESETS[name])
        if isinstance(name, str) and name in SOURCE_PRESETS:
            return cls._of_sources([name], name)
        if not isinstance(name, str) or name.endswith(".toml"):
            try:
                path = as_path(name)
            except ValueError:
                raise refusal("preset", "a name, a .toml file or a MatcherConfig", name) from None
            return cls.load(path)
        raise ValueError(
            f"preset must be one of {', '.join(PRESETS)} or a .toml file, got {name!r}"
            f"{suggest(name, PRESETS)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as nested dicts of plain values, the inverse of `from_dict`.

        One source is a dict of features and one of the association, several are ``sources``, a
        list with one dict each. A function is there by its name, and cannot be read again.
        """
        estimation = {"method": self.method, **self.options.to_dict()}
        if self.source:
            sources = [source.to_dict() for source in self.sources]
            return {"preset": self.preset, "sources": sources, "estimation": estimation}
        return {
            "preset": self.preset,
            "features": self.features.to_dict(),
            "association": self.association.to_dict(),
            "estimation": estimation,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MatcherConfig:
        """Make a configuration of nested dicts; what is absent comes from the named preset.

        With ``sources``, a list of presets and tables of settings, these are the sources, and what
        the sections say holds for all. An unknown section or field is an error.
        """
        rest = {name: values[name] for name in values if name not in ("preset", "sources")}
        changes: dict[str, Any] = {}
        for section, content in rest.items():
            if section not in _SECTIONS:
                known = (*_SECTIONS, "sources")
                raise ValueError(
                    f"configuration must have the sections {', '.join(known)}"
                    f"{suggest(section, known)}, got {section!r}"
                )
            if not isinstance(content, dict):
                raise refusal(section, "a table of fields", content)
            if section == "estimation":
                allowed = ["method", *_field_names("options")]
            else:
                allowed = _field_names(section)
            for name, value in content.items():
                if name not in allowed:
                    raise ValueError(
                        f"{section} must have fields among {', '.join(allowed)}"
                        f"{suggest(name, allowed)}, got {name!r}"
                    )
                changes[name] = None if value == _NONE else value
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
        text = read_text(path, _WANT)
        with reading(path, _WANT, ValueError, RecursionError):
            if len(text) > _LONGEST:
                raise ValueError(f"it is longer than {_LONGEST:,} characters")
            return cls.from_dict(tomllib.loads(text))

    def __str__(self) -> str:
        return self.to_toml()


def _field_names(part: str) -> list[str]:
    return [field.name for field in dataclasses.fields(_PARTS[part])]


def _without_none(value: Any) -> Any:
    """Write None as a word, in nested dicts and lists."""
    if isinstance(value, dict):
        return {name: _without_none(content) for name, content in value.items()}
    if isinstance(value, list):
        return [_without_none(content) for content in value]
    return _NONE if value is None else value


def _changed(
    base: MatcherConfig, features: dict[str, Any], association: dict[str, Any]
) -> tuple[list[SourceConfig], list[str]]:
    """Change the settings of all sources, and return notes on what they leave without meaning."""
    sources = base.sources
    if len(sources) > 1:
        for name, value in (features | association).items():
            if name in _OF_ONE_SOURCE:
                names = ", ".join(source.name for source in sources)
                raise ValueError(
                    f"{name} must be set in its source where there are several ({names}), as in "
                    f'sources=[{{"preset": "{sources[-1].name}", "{name}": ...}}, ...], got '
                    f"{value!r}"
                )
    changed, notes = [], []
    for source in sources:
        own = features
        if len(sources) > 1 and source.features.descriptor == NATIVE:
            own = {name: features[name] for name in features if name != "precision"}
        made, said = source.changed(own, association)
        changed.append(made)
        notes += said
    return changed, notes

"""The whole configuration of a matcher: presets by name, TOML files, settings by keyword."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import TYPE_CHECKING, Any

import tomli_w

from manymatch._files import as_path, read_text, reading, write_text
from manymatch._settings import setting, settings
from manymatch._validate import METHODS, checked_method, refusal, suggest
from manymatch.associate.candidates import Association
from manymatch.estimate.options import Options
from manymatch.features.config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.device import default_preset

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESETS: tuple[str, ...] = tuple(FEATURE_PRESETS)
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

    def __post_init__(self) -> None:
        checked_method(self.method)

    @classmethod
    def of(cls, preset: object = None, **changes: Any) -> MatcherConfig:
        """Take a preset, a TOML file or a configuration, and change parts of it.

        Parameters
        ----------
        preset : str, path or MatcherConfig, optional
            A name of `PRESETS`, a file that ends in .toml, or a configuration; None for the
            default (see `default_preset`).
        **changes
            Any field of `FeatureConfig`, `Association`, `Options` (or all of the latter as
            `options`), or `method`. What the preset has for another detector or descriptor than
            these say, such as a layer of the backbone, is left out, and `notes` say so.
        """
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
        left_out, notes = _left_out(base, parts["features"])
        return dataclasses.replace(
            base,
            features=base.features.replace(**left_out, **parts["features"]),
            association=dataclasses.replace(base.association, **parts["association"]),
            options=(options or base.options).changed(**parts["options"]),
            method=method,
            notes=(*base.notes, *notes),
        )

    @staticmethod
    def field_names() -> dict[str, str]:
        """Return the names of all settings, and of the part that each belongs to."""
        return {name: part for part in _PARTS for name in _field_names(part)}

    @classmethod
    def _base(cls, preset: object) -> MatcherConfig:
        if isinstance(preset, MatcherConfig):
            return preset
        if preset is None:
            default, why = default_preset()
            return cls(default, FEATURE_PRESETS[default], notes=(why,))
        name = preset
        if isinstance(name, str) and name in FEATURE_PRESETS:
            return cls(name, FEATURE_PRESETS[name])
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
        """Return everything as nested dicts of plain values, the inverse of `from_dict`."""
        return {
            "preset": self.preset,
            "features": self.features.to_dict(),
            "association": self.association.to_dict(),
            "estimation": {"method": self.method, **self.options.to_dict()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MatcherConfig:
        """Make a configuration of nested dicts; what is absent comes from the named preset.

        An unknown section or field is an error.
        """
        rest = {name: value for name, value in values.items() if name != "preset"}
        changes: dict[str, Any] = {}
        for section, content in rest.items():
            if section not in _SECTIONS:
                raise ValueError(
                    f"configuration must have the sections {', '.join(_SECTIONS)}"
                    f"{suggest(section, _SECTIONS)}, got {section!r}"
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
        if preset is not None and preset not in PRESETS:
            raise refusal("preset", f"one of {', '.join(PRESETS)}", preset)
        return cls.of(preset, **changes)

    def to_toml(self) -> str:
        """Return the configuration as TOML text; TOML has no null, so that None is "none"."""
        tables = {
            section: {name: _NONE if value is None else value for name, value in content.items()}
            for section, content in self.to_dict().items()
            if section != "preset"
        }
        return tomli_w.dumps({"preset": self.preset, **tables})

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


def _left_out(base: MatcherConfig, changes: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the defaults of what changes of the features leave without meaning, and notes."""
    defaults: dict[str, Any] = {}
    notes = []
    for part, names in base.features.outdated(changes).items():
        defaults |= {name: getattr(FeatureConfig, name) for name in names}
        if names:
            values = ", ".join(f"{name}={getattr(base.features, name)}" for name in names)
            why = "is left out: it was" if len(names) == 1 else "are left out: they were"
            notes.append(
                f'{values} of the preset "{base.preset}" {why} chosen for the {part} '
                f"{getattr(base.features, part)}."
            )
    return defaults, notes

"""Flags made from dataclasses: all fields, types, and only what was given."""

import dataclasses
import inspect
from pathlib import Path
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from manymatch.associate.candidates import Association
from manymatch.cli import batch, demo, match, solve
from manymatch.cli.flags import setting_flags
from manymatch.features.config import FeatureConfig
from manymatch.matcher.config import MatcherConfig
from manymatch.options import Options, setting
from manymatch_lab.commands import eval as eval_module

EVERY = (FeatureConfig, Association, Options)


def names(*classes):
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (match, names(*EVERY) | {"method"}),
        (batch, (names(*EVERY) | {"method"}) - {"threads"}),
        (eval_module, (names(*EVERY) | {"method"}) - {"seed", "threads"}),
        (solve, names(Options) | {"method", "max_edges", "threshold"}),
        (demo, {"method", "seed", "precision"}),
    ],
)
def test_the_flags_of_a_command_are_the_fields_it_uses(module, expected):
    flags = set(inspect.signature(module.run).parameters)
    assert flags & (names(*EVERY) | {"method"}) == expected
    assert not {"settings", "runtime"} & flags


@pytest.fixture
def given():
    """A function that runs a command with all flags and returns what the command got."""
    app = typer.Typer()
    seen = {}

    @app.command()
    @setting_flags(*EVERY)
    def show(settings, runtime):
        seen.update(settings=settings, runtime=runtime)

    def invoke(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if isinstance(result.exception, ValueError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return seen["settings"]

    invoke.seen = seen
    invoke.help = lambda: CliRunner(env={"COLUMNS": "150"}).invoke(app, ["--help"]).stdout
    return invoke


def test_nothing_is_given(given):
    assert given() == {}
    assert given.seen["runtime"] == {"device": "auto", "offline": False, "cache": None}
    given("--device", "cpu", "--offline", "--cache", "x")
    assert given.seen["runtime"] == {"device": "cpu", "offline": True, "cache": Path("x")}


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (("--k", 3), "k", 3),
        (("--q", 0.25), "q", 0.25),
        (("--seed", 0), "seed", 0),
        (("--gms",), "gms", True),
        (("--no-gms",), "gms", False),
        (("--no-norm",), "norm", False),
        (("--layer", 4), "layer", 4),
        (("--layer", "none"), "layer", None),
        (("--max-edges", "NONE"), "max_edges", None),
        (("--threshold", 0.5), "threshold", 0.5),
        (("--threshold-px", 2), "threshold_px", 2.0),
        (("--threshold-px", "auto"), "threshold_px", "auto"),
        (("--threshold-px", "AUTO"), "threshold_px", "auto"),
        (("--set", "threshold_px=auto"), "threshold_px", "auto"),
        (("--weights", "random"), "weights", "random"),
        (("--disable", "ranks", "--disable", "polish"), "disable", ["ranks", "polish"]),
        (("--method", "cm"), "method", "cm"),
        (("--preset", "classic"), "preset", "classic"),
        (("--config", "a.toml"), "preset", Path("a.toml")),
        (("--set", "pool-size = 7"), "pool_size", 7),
        (("--set", "layer=none"), "layer", None),
        (("--set", "enlarge=False"), "enlarge", False),
        (("--set", "weights=/a=b/c d"), "weights", "/a=b/c d"),
        (("--set", 'weights="7"'), "weights", "7"),
        (("--set", 'disable=["ranks"]'), "disable", ["ranks"]),
    ],
)
def test_a_value_has_the_type_of_its_field(given, arguments, name, value):
    settings = given(*arguments)
    assert settings == {name: value}
    assert type(settings[name]) is type(value)


@pytest.mark.parametrize("preset", ["classic", "dinov3"])
def test_what_is_given_overrides_the_preset_and_nothing_else_does(given, preset):
    base = MatcherConfig.of(preset)
    assert MatcherConfig.of(**given("--preset", preset)) == base
    config = MatcherConfig.of(**given("--preset", preset, "--border", 9, "--keep", 7, "--q", 0.4))
    assert config.sources[0].features == base.sources[0].features.replace(border=9)
    assert config.sources[0].association == dataclasses.replace(base.sources[0].association, keep=7)
    assert config.options == base.options.replace(q=0.4)


def test_what_is_given_overrides_a_file(given, tmp_path):
    MatcherConfig.of("classic", k=3, seed=5).save(tmp_path / "a.toml")
    config = MatcherConfig.of(**given("--config", tmp_path / "a.toml", "--seed", 6))
    assert (config.sources[0].association.k, config.options.seed) == (3, 6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--preset", "classic", "--config", "a.toml"), "must not be given together"),
        (("--set", "q"), "--set must be followed by name=value"),
        (("--set", "qq=3"), "--set must name one of .*got 'qq=3'"),
        (("--set", "device=cpu"), "--set must name one of"),
    ],
)
def test_bad_settings_are_named(given, arguments, says):
    with pytest.raises(ValueError, match=says):
        given(*arguments)


@dataclasses.dataclass(frozen=True)
class Words:
    """Settings that may be a word instead of a number."""

    size: int | Literal["small", "large"] | None = setting(3, "A size.")
    scale: float | Literal["auto"] = setting("auto", "A scale.")


def test_a_setting_may_be_a_number_or_a_word():
    app, seen = typer.Typer(), {}

    @app.command()
    @setting_flags(Words)
    def show(settings):
        seen.update(settings)

    def invoke(*arguments):
        seen.clear()
        return CliRunner(env={"COLUMNS": "150"}).invoke(app, list(map(str, arguments)))

    for text, value in (("5", 5), ("Large", "large"), ("none", None)):
        assert invoke("--size", text, "--scale", 1).exit_code == 0
        assert seen == {"size": value, "scale": 1.0}
    for flag, text, want in (
        ("--size", "huge", "a whole number or small or large or none"),
        ("--size", "2.5", "a whole number or small or large or none"),
        ("--scale", "none", "a number or auto"),
    ):
        result = invoke(flag, text)
        assert result.exit_code == 2
        assert f"it must be {want}, got '{text}'" in " ".join(result.output.split())
    told = invoke("--help").stdout
    assert "<float or auto>" in told
    assert "<int or small or large or none>" in told

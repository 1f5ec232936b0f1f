"""Flags of the commands: the usual settings as flags, all others by ``--set``, a short help."""

import dataclasses
import inspect
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from manymatch.cli import align, batch, demo, match, solve
from manymatch.cli.flags import FLAGS, setting_flags
from manymatch.matcher.config import SETTINGS, MatcherConfig
from tests.support.command import one_sentence, run

LINES = 90  # two screens


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (match, set(FLAGS)),
        (align, set(FLAGS)),
        (batch, set(FLAGS)),
        (demo, {"method", "seed"}),
        (solve, {"method", "seed", "threshold_px", "threshold", "max_edges"}),
    ],
)
def test_usual_settings_are_flags(module, expected):
    flags = set(inspect.signature(module.run).parameters)
    assert flags & set(SETTINGS) == expected
    assert not {"settings", "runtime"} & flags


@pytest.mark.parametrize("name", ["demo", "match", "batch", "align", "solve", "models"])
def test_help_fits_on_two_screens(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = run(name, "--help").stdout
    assert len(text.splitlines()) <= LINES
    assert "Example: manymatch" in text
    assert "--json" in text
    # Types are those of a value that is typed; the one switch left is Typer's own --help.
    assert (text.count("<bool>"), text.count("list[")) == (1, 0)


@pytest.mark.parametrize(
    ("command", "flag", "use"),
    [
        ("match", "--nms-radius", "nms_radius=VALUE"),
        ("align", "--max-iterations", "max_iterations=VALUE"),
        ("batch", "--no-gms", "gms=false"),
        ("solve", "--pool-size", "pool_size=VALUE"),
    ],
)
def test_former_flag_is_refused_with_its_set_form(command, flag, use):
    sentence = one_sentence(run(command, "a", flag, "4"), 2)
    assert f"{command} has no option {flag}; use --set {use}" in sentence


def test_set_help_lists_all_settings():
    text = run("match", "a", "b", "--set", "help").stdout
    assert all(name in text for name in SETTINGS)


@pytest.fixture
def given():
    """Return a function that runs a command and returns the settings that it got."""
    app = typer.Typer()
    seen = {}

    @app.command()
    @setting_flags()
    def show(settings, runtime):
        seen.update(settings=settings, runtime=runtime)

    def invoke(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if isinstance(result.exception, ValueError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return seen["settings"]

    invoke.seen = seen
    return invoke


def test_settings_that_are_not_given_are_absent(given):
    assert given() == {}
    assert given.seen["runtime"] == {"device": "auto", "offline": False, "cache": None}
    given("--device", "cpu", "--offline", "--cache", "x")
    assert given.seen["runtime"] == {"device": "cpu", "offline": True, "cache": Path("x")}


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (("--k", 3), "k", 3),
        (("--set", "q=0.25"), "q", 0.25),
        (("--seed", 0), "seed", 0),
        (("--set", "gms=true"), "gms", True),
        (("--set", "max_edges=NONE"), "max_edges", None),
        (("--threshold-px", 2), "threshold_px", 2),
        (("--threshold-px", "auto"), "threshold_px", "auto"),
        (("--threshold-px", "AUTO"), "threshold_px", "auto"),
        (("--set", "threshold_px=auto"), "threshold_px", "auto"),
        (("--set", "disable=ranks, polish"), "disable", ["ranks", "polish"]),
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
def test_value_has_the_type_of_its_field(given, arguments, name, value):
    settings = given(*arguments)
    assert settings == {name: value}
    assert type(settings[name]) is type(value)


@pytest.mark.parametrize("preset", ["classic", "dinov3"])
def test_given_settings_override_the_preset(given, preset):
    base = MatcherConfig.of(preset)
    assert MatcherConfig.of(**given("--preset", preset)) == base
    changes = ("--k", 4, "--set", "border=9", "--set", "q=0.4")
    config = MatcherConfig.of(**given("--preset", preset, *changes))
    assert config.sources[0].features == base.sources[0].features.replace(border=9)
    assert config.sources[0].association == dataclasses.replace(base.sources[0].association, k=4)
    assert config.options == base.options.replace(q=0.4)


def test_given_settings_override_a_file(given, tmp_path):
    MatcherConfig.of("classic", k=3, seed=5).save(tmp_path / "a.toml")
    config = MatcherConfig.of(**given("--config", tmp_path / "a.toml", "--seed", 6))
    assert (config.sources[0].association.k, config.options.seed) == (3, 6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--preset", "classic", "--config", "a.toml"), "must not be given together"),
        (("--source", "classic", "--preset", "classic"), "--preset and --source must not be given"),
        (("--set", "q"), "--set must be followed by name=value"),
        (("--set", "qq=3"), "--set must name one of .*got 'qq=3'"),
        (("--set", "nms_radus=3"), "did you mean 'nms_radius'"),
        (("--set", "device=cpu"), "--set must name one of"),
    ],
)
def test_bad_settings_are_named(given, arguments, says):
    with pytest.raises(ValueError, match=says):
        given(*arguments)

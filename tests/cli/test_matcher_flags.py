from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from manymatch.cli import _matcher_flags as flags
from manymatch.matcher.config import MatcherConfig

ALWAYS = {"device": "auto", "offline": False, "cache": None}


def test_only_what_was_given():
    assert flags.matcher_settings(k=None, gms=None, seed=None) == ALWAYS
    assert flags.matcher_settings(k=3, gms=False, seed=0, debias=0) == {
        "k": 3,
        "gms": False,
        "seed": 0,
        "debias": 0,
        **ALWAYS,
    }


def test_preset_or_file():
    assert flags.matcher_settings(preset="classic")["preset"] == "classic"
    assert flags.matcher_settings(config=Path("a.toml"))["preset"] == Path("a.toml")
    with pytest.raises(ValueError, match="must not be given together"):
        flags.matcher_settings(preset="classic", config=Path("a.toml"))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("q=0.25", "q", 0.25),
        ("pool-size = 7", "pool_size", 7),
        ("layer=none", "layer", None),
        ("enlarge=False", "enlarge", False),
        ("norm=true", "norm", True),
        ("probe=noise", "probe", "noise"),
        ("weights=/a=b/c d", "weights", "/a=b/c d"),
        ('weights="7"', "weights", "7"),
        ("gms=none", "gms", None),
        ('without=["ranks"]', "without", ["ranks"]),
    ],
)
def test_set(text, name, value):
    settings = flags.matcher_settings(extra=[text])
    assert settings == {name: value, **ALWAYS}
    assert type(settings[name]) is type(value)


@pytest.mark.parametrize("text", ["q", "=3", "", "device=cpu", "preset=classic", "cache=x"])
def test_bad_set(text):
    with pytest.raises(ValueError, match=r"^--set must"):
        flags.matcher_settings(extra=[text])


def test_what_is_set_reaches_the_configuration():
    settings = flags.matcher_settings(
        preset="classic", k=2, max_keypoints=99, extra=["q=0.25", "max_edges=none", "k=4"]
    )
    for name in ALWAYS:
        del settings[name]
    config = MatcherConfig.of(**settings)
    assert config.features.max_keypoints == 99
    assert config.association.k == 4
    assert config.association.max_edges is None
    assert config.options.q == 0.25


def test_flags_on_a_command_line(tmp_path):
    app = typer.Typer()
    seen = []

    @app.command()
    def show(
        config: flags.ConfigFile = None,
        gms: flags.Gms = None,
        extra: flags.Set = None,
        device: flags.Device = "auto",
        offline: flags.Offline = False,
    ) -> None:
        seen.append(
            flags.matcher_settings(
                config=config, gms=gms, extra=extra, device=device, offline=offline
            )
        )

    path = tmp_path / "a.toml"
    for arguments in (
        [],
        ["--no-gms", "--offline", "--device", "cpu"],
        ["--gms", "--set", "q=0.5", "--set", "probe=grey", "--config", str(path)],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [
        ALWAYS,
        {"gms": False, "device": "cpu", "offline": True, "cache": None},
        {"gms": True, "q": 0.5, "probe": "grey", "preset": path, **ALWAYS},
    ]

"""What a user asks for: names and cameras from elsewhere, and the command that does the same."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from manymatch.app.jobs import Jobs, ready_presets
from manymatch.app.request import (
    PairRequest,
    checked_camera,
    checked_changes,
    command_line,
    python_lines,
    safe_name,
)
from manymatch.cli.app import app as command
from tests.app.conftest import DEMO


@given(st.text())
def test_any_name_becomes_a_plain_one(text):
    name = safe_name(text)
    assert name
    assert Path(name).name == name
    assert not name.startswith((".", "-"))
    assert len(name.encode()) < 100
    assert not set(name) & set("/\\<>&\"'`$ \n\0|;*?")
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("IMG_0001.JPG", "IMG_0001.JPG"),
        ("../../etc/passwd", "passwd"),
        ("C:\\photos\\a b.png", "a-b.png"),
        ("Straße 5.jpeg", "Straße-5.jpeg"),
        ("...", "photo"),
        ("a" * 300 + ".jpg", "a" * 80 + ".jpg"),
    ],
)
def test_usual_and_unusual_names(given, expected):
    assert safe_name(given) == expected


def test_a_number_is_a_focal_length():
    assert checked_camera(768, "Camera 0") == "768"


@pytest.mark.parametrize("text", ["", "  ", None])
def test_empty_camera_is_that_of_exif(text):
    assert checked_camera(text, "Camera 0") is None


@pytest.mark.parametrize(
    "text", ["unknown", "768", "768,768,320,240", "SIMPLE_PINHOLE,640,480,500,320,240", "7.6e2"]
)
def test_typed_cameras(text):
    assert checked_camera(text, "Camera 0") == text


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "cameras.txt", "../x", "camera.json", "s3://b/c", "1;ls", "9" * 400]
)
def test_camera_cannot_be_a_file(text):
    with pytest.raises(ValueError, match="Camera 0 must be empty, unknown"):
        checked_camera(text, "Camera 0")


def test_only_changed_settings_are_kept():
    assert checked_changes("classic", 5, "1", "auto", 0) == {}
    found = checked_changes("classic", 3.0, " 2 px", "cm", 7)
    assert found == {"k": 3, "threshold_px": 2.0, "method": "cm", "seed": 7}
    assert checked_changes("classic", 5, "auto", "auto", 0) == {"threshold_px": "auto"}


@pytest.mark.parametrize(
    "settings",
    [
        ("classic", "many", "1", "auto", 0),
        ("classic", 5, "thin", "auto", 0),
        ("classic", 5, "1", "magic", 0),
        ("classic", 5, "1", "auto", -1),
        ("classic", 0, "1", "auto", 0),
        ("classic", 5, "-2", "auto", 0),
        ("classic", None, "1", "auto", 0),
        ("classic", float("nan"), "1", "auto", 0),
        ("classic", float("inf"), "1", "auto", 0),
        ("classic", 10**400, "1", "auto", 0),
        ("classic", 5, "1", "auto", "1e999"),
        ("no such preset", 5, "1", "auto", 0),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings):
    with pytest.raises(ValueError, match=r"must") as caught:
        checked_changes(*settings)
    assert "\n" not in str(caught.value)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, file in (("it's 1.jpg", "street2.jpg"), ("b.jpg", "street3.jpg")):
        shutil.copy(DEMO / file, tmp_path / name)
    return tmp_path / "it's 1.jpg", tmp_path / "b.jpg"


REQUESTS = {
    "plain": {},
    "all": {
        "cameras": ("768", "unknown"),
        "changes": {"k": 3, "threshold_px": 1.5, "method": "hcm-mcm", "seed": 4},
        "with_rank_one": True,
    },
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_shown_command_and_python_give_the_same_result(photos, kind, monkeypatch):
    request = PairRequest(photos, **REQUESTS[kind])
    jobs = Jobs(lambda _: None)
    # Features are kept: the second result is solved again from those of the first.
    jobs.match(PairRequest(photos))
    files = jobs.export(request, ["json", "npz"], photos[0].parent / "export")
    record, own = json.loads(files[0].read_text()), np.load(files[1])
    words = shlex.split(command_line(request, "by-command"))
    assert words[0] == "manymatch"
    done = CliRunner().invoke(command, words[1:])
    assert done.exit_code in (0, 1), done.output
    monkeypatch.setattr("builtins.print", lambda *_: None)
    exec(compile(python_lines(request), "shown", "exec"), {})  # noqa: S102
    for folder in ("by-command", "out"):
        other = json.loads(Path(folder, "result.json").read_text())
        for name in ("images", "pose", "counts", "confidence", "iterations", "rank_one"):
            assert without_times(other[name]) == without_times(record[name]), name
        arrays = np.load(Path(folder, "matches.npz"))
        for name in ("matches", "keypoints0", "keypoints1"):
            np.testing.assert_array_equal(arrays[name], own[name])


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.startswith("timing")}
    return value


def test_ready_presets_begin_with_the_default():
    presets = ready_presets()
    assert "classic" in presets
    assert len(presets) == len(set(presets))

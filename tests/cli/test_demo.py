"""``manymatch demo``."""

import errno
import json
import re
import shutil
import sys

import pytest

from manymatch.geometry.pose import RelativePose, pose_error_deg
from manymatch.io.pairs import demo_pair
from manymatch.matcher.matcher import Matcher
from tests.support.command import one_sentence, run

pytest.importorskip("cv2")
pytest.importorskip("PIL")

QUICK = ("--preset", "classic", "--set", "longest=320", "--set", "max_keypoints=500")


def test_demo_prints_and_draws(tmp_path):
    result = run("demo", "--out", tmp_path, *QUICK)
    assert result.exit_code in (0, 1)
    for name in ("street2.jpg", "street3.jpg", "rank_one.png", "matches.png", "report.html"):
        assert (tmp_path / name).stat().st_size > 5_000, name
        assert str(tmp_path / name) in result.stdout


def test_demo_json_is_one_document_with_both_errors(tmp_path):
    record = json.loads(run("demo", "--json", "--out", tmp_path, *QUICK).stdout)
    true = demo_pair("classic")
    for entry, name in ((record, "error_deg"), (record["rank_one"], "rank_one_error_deg")):
        pose = entry["pose"] and RelativePose(entry["pose"]["R"], entry["pose"]["t"])
        assert record[name] == pytest.approx(pose_error_deg(pose, true.R, true.t), abs=1e-9)


@pytest.mark.parametrize(
    ("preset", "seed"),
    [("classic", 0), ("classic", 3), pytest.param("embedded", 1, marks=pytest.mark.nightly)],
)
def test_demo_shows_the_gain_of_several_candidates(tmp_path, preset, seed):
    """With SIFT it needs no torch."""
    result = run("demo", "--out", tmp_path, "--preset", preset, "--seed", seed)
    assert "Two rendered photographs" in result.stdout
    assert "keeping several candidates gives the right one" in result.stdout
    *_, own, rank_one = re.findall(r"(?:auto|rank-one, plain) .* ([\d.]+)\n", result.stdout)
    assert float(own) < 5.0 < float(rank_one)


def test_demo_needs_no_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--out", tmp_path, *QUICK)
    assert result.exit_code in (0, 1)
    assert (tmp_path / "report.html").is_file()
    assert {path.name for path in tmp_path.glob("*.png")} == {"matches.png", "rank_one.png"}


def test_bad_folder_is_refused_before_matching(tmp_path, monkeypatch):
    monkeypatch.delattr(Matcher, "match")
    (tmp_path / "file").write_text("in the way")
    sentence = one_sentence(run("demo", "--out", tmp_path / "file", *QUICK))
    assert "--out must be a folder that can be written to" in sentence


def test_a_full_disk_leaves_no_half_photograph(tmp_path, monkeypatch):
    def full(source, folder):
        (folder / source.name).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy", full)
    result = run("demo", "--out", tmp_path, *QUICK)
    assert result.exit_code == 2
    assert result.stderr == f"manymatch: No space left on device: '{tmp_path}'\n"
    assert not list(tmp_path.iterdir())

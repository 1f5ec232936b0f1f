"""``manymatch demo``."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from manymatch import AssociationGraph
from manymatch.cli import demo as demo_module
from manymatch.datasets import demo_pair
from manymatch.geometry.pose import RelativePose
from manymatch.geometry.pose_error import pose_error_deg
from tests.support.command import one_sentence, run

pytest.importorskip("cv2")
pytest.importorskip("PIL")

QUICK = ("--preset", "classic", "--set", "longest=320", "--set", "max_keypoints=500")


def test_demo_prints_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    result = run("demo", "--out", tmp_path, *QUICK)
    assert result.exit_code in (0, 1)
    for name in ("street0.jpg", "street1.jpg", "rank_one.png", "matches.png", "report.html"):
        assert (tmp_path / name).stat().st_size > 5_000, name
        assert str(tmp_path / name) in result.stdout


def test_demo_json_is_one_document_with_both_errors(tmp_path):
    record = json.loads(run("demo", "--json", "--out", tmp_path, *QUICK).stdout)
    true = demo_pair()
    for entry, name in ((record, "error_deg"), (record["rank_one"], "rank_one_error_deg")):
        pose = entry["pose"] and RelativePose(entry["pose"]["R"], entry["pose"]["t"])
        assert record[name] == pytest.approx(pose_error_deg(pose, true.R, true.t), abs=1e-9)


@pytest.mark.parametrize(
    ("plain", "own", "words"),
    [(30.0, 1.0, "gives a wrong pose here"), (1.0, 1.0, "Both ways"), (1.0, 30.0, "not found")],
)
def test_demo_says_what_it_shows(plain, own, words):
    graph = AssociationGraph(np.eye(3, 2), np.eye(3, 2), [(0, 0), (1, 2)], rank=[1, 2])
    estimate = SimpleNamespace(matches=np.array([[0, 0], [1, 2]]))
    text = demo_module._summary(SimpleNamespace(graph=graph, estimate=estimate), own, plain)
    assert words in text
    if plain > own:
        assert "1 of the 2 resolved matches" in text


def test_demo_without_matplotlib_still_reports(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--out", tmp_path, *QUICK)
    assert result.exit_code in (0, 1)
    assert (tmp_path / "report.html").is_file()
    assert not list(tmp_path.glob("*.png"))


def test_demo_into_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert "file" in one_sentence(run("demo", "--out", tmp_path / "file" / "folder", *QUICK))

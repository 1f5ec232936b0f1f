"""``manymatch-lab all``: what the reference data allow, in miniature, on one page."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from manymatch_lab import command
from manymatch_lab.command import app
from manymatch_lab.engine import EXPERIMENTS, NOT_IN_PAPER
from manymatch_lab.everything import PAPER_ITEMS, discovered
from tests.support.data_folder import data_folder

DATA = (data_folder() or Path()).resolve()


@pytest.fixture
def miniature(tmp_path):
    """A few of the reference data, under the names of their folders."""
    root = tmp_path / "data"
    for name in ("graphs/effnet/kitti_vo", "posed_pairs/kitti_vo", "real_index"):
        if not (DATA / name).is_dir():
            pytest.skip("needs the reference data: MANYMATCH_DATA")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(DATA / name)
    return root


def test_everything_of_the_paper_has_a_place():
    assert set(PAPER_ITEMS) == set(EXPERIMENTS) - set(NOT_IN_PAPER)


def test_sets_are_found_and_those_of_the_paper_that_are_not_say_why(miniature):
    found = discovered(miniature)
    assert found.sets == [str(miniature / "graphs"), str(miniature / "posed_pairs")]
    assert found.graphs == [str(miniature / "graphs")]
    # Figures of one pair take a single set.
    assert found.diagnostic == [str(miniature / "posed_pairs")]
    assert "root must have" in found.missing["scannet1500"]


def test_one_page_with_the_papers_numbers_and_what_could_not_run(miniature, tmp_path, monkeypatch):
    out = tmp_path / "out"
    arguments = ["all", "--root", str(miniature), "--out", str(out), "--limit", "1"]
    arguments += ["--seeds", "1", "--max-iterations", "200", "--workers", "1", "--offline"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    page = (out / "index.html").read_text(encoding="utf-8")
    for name in ("epipolar", "toy", "q1", "q2", "q3", "sensitivity"):
        assert f"<h2 id='{name}'>" in page
        assert (out / name / f"{name}.json").is_file()
    # The paper's averages stand below ours.
    assert re.search(r"<td>HCM→MCM</td>.*?<td><i>14.2 / 27.1 / 42.0</i></td>", page)
    # Features of the paper and its sets are not here: that is said, and graphs are used.
    assert re.search(r"<td>q1</td><td>made with the graphs alone</td>", page)
    assert re.search(r"<td>q1</td><td>images</td><td>weights of", page)
    assert re.search(r"<td>diagnose</td><td>could not be run</td>", page)
    assert re.search(r"<td>diagnose</td><td>all</td><td>\w+", page)
    assert re.search(r"<td>all</td><td>scannet1500</td><td>root must have", page)
    assert re.search(r"<td>q4</td><td>OmniGlue</td><td>", page)
    for figure in re.findall(r'<img src="([^"]+)"', page):
        assert (out / figure).is_file()
    # Finished pairs are not run again.
    part = next((out / "q2").rglob("parts/*.parquet"))
    written = part.stat().st_mtime_ns
    monkeypatch.setattr(command, "PAPER_ITEMS", {"q2": "Q2"})
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert part.stat().st_mtime_ns == written


def test_nothing_to_run_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    arguments = ["all", "--root", str(tmp_path / "empty"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--offline"])
    assert "q1: Do candidates" in result.output
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert re.search(r"<td>q1</td><td>could not be run</td>", page)
    assert re.search(r"<td>q1</td><td>all</td><td>\w+", page)

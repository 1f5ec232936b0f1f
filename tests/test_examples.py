"""Every example runs and says what its docstring promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name, folder):
    result = subprocess.run(  # noqa: S603 - files of this repository
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert list(folder.iterdir()) == [], "an example must leave nothing behind"
    return result.stdout


def test_all_examples_are_tested_here():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name not in source] == []


def test_estimate_from_candidates(tmp_path):
    text = run("01_estimate_from_candidates.py", tmp_path)
    assert float(re.search(r"pose error ([\d.]+) degrees", text)[1]) < 2.0


def test_score_a_pose(tmp_path):
    text = run("02_score_a_pose.py", tmp_path)
    true, turned = (float(value) for value in re.findall(r"hcm ([\d.]+)", text))
    assert true > 2 * turned


def test_many_pairs(tmp_path):
    text = run("03_many_pairs.py", tmp_path)
    auc = {m: float(v) for m, v in re.findall(r"^(\S+): .* degrees ([\d.]+)", text, re.MULTILINE)}
    assert min(auc["hcm-mcm"], auc["auto"]) > auc["cm"] + 20


def test_own_backbone(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    text = run("04_own_backbone.py", tmp_path)
    assert "no problems found" in text
    assert "median motion [40. 24.] px" in text


def test_match_images(tmp_path):
    pytest.importorskip("cv2")
    pytest.importorskip("PIL")
    text = run("05_match_images.py", tmp_path)
    assert "keypoints," in text
    assert "matches.npz" in text
    assert "report.html" in text


def test_evaluate(tmp_path):
    text = run("06_evaluate.py", tmp_path)
    auc = {m: float(v) for m, v in re.findall(r"^(\S+): AUC@5 ([\d.]+)", text, re.MULTILINE)}
    assert auc["two-stage"] > auc["consensus"] + 20

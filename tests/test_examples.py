"""Every example runs and says what its docstring promises."""

import re
from pathlib import Path

import numpy as np
import pytest

import manymatch as mm
from tests.support.missing_packages import run_without

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PHOTOS = EXAMPLES / "photos"


def execute(name, folder, *arguments, without=()):
    code = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    return run_without(without, code, EXAMPLES / name, *arguments, cwd=folder)


def run(name, folder, *arguments, without=()):
    result = execute(name, folder, *arguments, without=without)
    assert result.returncode == 0, result.stderr
    assert list(folder.iterdir()) == [], "an example must leave nothing behind"
    assert not re.search(r"(?i)\buncertain\b|ambiguous|degenerate|failed", result.stdout), (
        result.stdout
    )
    return result.stdout


def test_all_examples_are_tested_here():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name not in source] == []


@pytest.mark.parametrize("arguments", [[], [PHOTOS / "candidates.csv"]])
def test_estimate_from_candidates(tmp_path, arguments):
    text = run("01_estimate_from_candidates.py", tmp_path, *arguments)
    assert "Solved" in text
    numbers = np.array([float(word) for word in re.findall(r"-?\d+\.\d*", text)[:12]])
    pair = mm.io.read_pairs(PHOTOS / "pairs.txt", PHOTOS)[2]
    left, _, right = np.linalg.svd(numbers[:9].reshape(3, 3))  # printed with four digits
    pose = mm.RelativePose(left @ right, numbers[9:])
    assert mm.pose_error_deg(pose, pair.R, pair.t) < 1.0


def test_score_a_pose(tmp_path):
    text = run("02_score_a_pose.py", tmp_path)
    true, turned = (float(value) for value in re.findall(r"HCM score ([\d.]+)", text))
    assert true > 2 * turned


def test_many_pairs(tmp_path):
    pytest.importorskip("cv2")
    text = run("03_many_pairs.py", tmp_path)
    errors = [float(error) for error in re.findall(r"solved .*, pose error ([\d.]+)", text)]
    assert len(errors) == 6
    assert max(errors) < 1.5


def test_switch_from_opencv(tmp_path):
    pytest.importorskip("cv2")
    text = run("08_switch_from_opencv.py", tmp_path)
    pair = mm.io.read_pairs(PHOTOS / "pairs.txt", PHOTOS)[2]
    _, ours = text.splitlines()
    assert ours.startswith("manymatch: ")
    direction = [float(word) for word in re.findall(r"-?\d+\.\d*", ours)[1:]]
    assert mm.pose_error_deg(mm.RelativePose(pair.R, direction), pair.R, pair.t) < 2.0


def test_own_backbone(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    text = run("04_own_backbone.py", tmp_path)
    assert "no problems found" in text
    assert "Solved" in text


# The preset is "fused" with torch and "classic" without.
@pytest.mark.parametrize(
    ("arguments", "without"),
    [([], ()), ([PHOTOS / "street1.jpg", PHOTOS / "street3.jpg"], ("torch",))],
)
def test_match_images(tmp_path, arguments, without):
    pytest.importorskip("cv2")
    pytest.importorskip("PIL")
    pytest.importorskip("h5py")
    text = run("05_match_images.py", tmp_path, *arguments, without=without)
    assert "Solved" in text
    assert "px from EXIF" in text
    assert "matches.npz, report.html" in text


def test_evaluate(tmp_path):
    text = run("06_evaluate.py", tmp_path)
    auc = {m: float(v) for m, v in re.findall(r"^(\S+): AUC@5 ([\d.]+)", text, re.MULTILINE)}
    assert auc["two-stage"] > auc["consensus"] + 20


def test_reconstruct(tmp_path):
    pytest.importorskip("cv2")
    pytest.importorskip("pycolmap")
    text = run("07_reconstruct.py", tmp_path)
    assert "Model: 4 of 4 photographs" in text
    assert "6 of 6 pairs accepted." in text
    assert "street0.jpg is solved" in text
    assert float(re.search(r"reprojection error ([\d.]+)", text)[1]) < 0.5
    # The photographs were taken about a metre apart, along a line.
    rows = re.findall(r"^street\d.jpg at \[(.*)\]", text, re.MULTILINE)
    centres = np.array([[float(word) for word in row.split()] for row in rows])
    steps = np.linalg.norm(np.diff(centres, axis=0), axis=1)
    walk = mm.io.read_pairs(PHOTOS / "pairs.txt", PHOTOS)
    true = [np.linalg.norm(pair.t) for pair in (walk[0], walk[3], walk[5])]
    np.testing.assert_allclose(steps / steps.sum(), true / np.sum(true), atol=0.02)


def test_own_matcher(tmp_path):
    pytest.importorskip("cv2")
    pytest.importorskip("PIL")
    text = run("10_own_matcher.py", tmp_path)
    assert "Solved" in text
    for name in ("classic", "orb"):
        assert int(re.search(rf"{name}: \d+ candidates, (\d+) matches", text)[1]) > 50


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("04_own_backbone.py", "torch", "features"), ("07_reconstruct.py", "pycolmap", "sfm")],
)
def test_a_missing_package_is_one_sentence(tmp_path, name, package, extra):
    result = execute(name, tmp_path, without=(package,))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f'This example needs {package}: pip install ".[{extra}]"\n'


def test_register_clouds(tmp_path):
    text = run("09_register_clouds.py", tmp_path)
    matches, right, turn = re.search(r"(\d+) matches, (\d+)% right, .* ([\d.]+) deg", text).groups()
    assert int(matches) > 280
    assert int(right) >= 99
    assert float(turn) < 0.1

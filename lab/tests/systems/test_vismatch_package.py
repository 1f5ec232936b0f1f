"""The adapter of vismatch on the package itself, in an environment of its own.

vismatch wants an older kornia than this package. It and what it imports are installed, without
torch, into a folder below build/ that only a process of its own puts before everything else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[3]
VERSION = "1.4.0"
# What the four matchers import and this package does not bring.
OTHERS = (
    "cloudpickle", "einops", "joblib", "kornia<0.8.3", "lazy_loader", "lightning_utilities",
    "loguru", "py3_wget", "pytorch_lightning", "scikit-image", "torchmetrics", "yacs"
)  # fmt: skip


def environment():
    """Folder of the packages, made once."""
    # A torchvision belongs to one torch, and is 15 minor versions behind.
    minor = int(torch.__version__.split(".")[1]) + 15
    folder = ROOT / "build" / f"vismatch-{VERSION}-torchvision-0.{minor}"
    if not (folder / "complete").is_file():
        wanted = [f"vismatch=={VERSION}", f"torchvision==0.{minor}.*", *OTHERS]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        try:
            done = subprocess.run(  # noqa: S603
                # Most modules are never imported, and need not be compiled.
                [*pip, "--no-deps", "--no-compile", "--upgrade", "--target", folder, *wanted],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip("vismatch could not be installed within five minutes")
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            pytest.skip(f"vismatch cannot be installed here: {last}")
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """What the script beside this file found."""
    for name in ("transformers", "cv2", "PIL"):
        pytest.importorskip(name)
    target = tmp_path_factory.mktemp("vismatch") / "facts.json"
    paths = [environment(), *filter(None, sys.path), ROOT]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", Path(__file__).parent / "vismatch_checks.py", target],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(target.read_text())


def test_every_name_is_known(facts):
    assert facts["version"] == VERSION
    assert facts["unknown"] == []


def test_images_for_mast3r_are_those_of_its_own_loader(facts):
    assert facts["mast3r"]["loader_equal"] == [True] * 6


def test_matches_of_mast3r_are_pixels_of_its_grid(facts):
    found = facts["mast3r"]
    assert found["matches"] > 100
    assert found["largest_difference"] == 0.0
    assert found["whole_pixels"]
    # It starts at every eighth pixel from the fourth, and keeps three from the edge.
    assert found["corners"] == [[4.0, 4.0], [508.0, 92.0]]


def test_xoftr_resizes_to_multiples_of_eight_and_back(facts):
    found = facts["xoftr"]
    assert found["parameters"] > 10_000_000
    assert found["seen"] == [[1, 1, 104, 200]] * 2
    # 203 pixels became 200 in the first image; the better match comes first.
    assert found["points0"] == [pytest.approx([81.2, 40.0]), pytest.approx([8.12, 16.0])]
    assert found["points1"] == [[88.0, 48.0], [16.0, 24.0]]
    assert found["scores"] == pytest.approx([0.9, 0.5])


def test_roma_counts_from_the_edge_of_the_image(facts):
    # Nearly the corners, and the middle, of 100 x 60 and 80 x 40 pixels.
    assert facts["roma"]["points0"] == [
        pytest.approx([-0.45, -0.47], abs=1e-4), pytest.approx([49.5, 29.5])
    ]  # fmt: skip
    assert facts["roma"]["points1"] == [
        pytest.approx([79.46, 39.48], abs=1e-4), pytest.approx([39.5, 19.5])
    ]  # fmt: skip


def test_omniglue_matches_our_detections(facts):
    found = facts["omniglue"]
    assert found["own_detections"] == 0
    assert found["inputs"]["keypoints0"] == [1, 2, 2]
    assert found["inputs"]["keypoints1"] == [1, 3, 2]
    assert found["inputs"]["scores1"] == [1, 3, 1]
    # Each image with its own descriptors.
    assert found["inputs"]["descriptors"] == [1.0, 2.0]
    assert found["points0"] == [[30.5, 20.25], [10.0, 12.0]]
    assert found["points1"] == [[11.0, 13.0], [31.0, 21.0]]
    assert found["scores"] == [0.8, 0.6]

"""``manymatch pca``: columns, notes and bad flags."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from manymatch.features import registry
from tests.support.command import one_sentence, run

for name in ("torch", "cv2", "matplotlib", "PIL"):
    pytest.importorskip(name)


@pytest.fixture
def pair(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for seed, (path, size) in enumerate(zip(paths, ((60, 80), (90, 50)), strict=True)):
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        pillow.fromarray(pixels).save(path)
    return paths


def test_every_layer_and_rank_is_a_column(pair, tmp_path):
    picture = tmp_path / "pca.png"
    result = run(
        "pca", *pair, "--layer", "10,4", "--debias", "0,5", "--longest", 0,
        "--set", "weights=random", "--out", picture, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["descriptor"] == "efficientnet-lite0"
    assert record["columns"] == [
        {"layer": layer, "debias": rank} for layer in (4, 10) for rank in (0, 5)
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_note_if_the_network_has_no_positional_subspace(pair, tmp_path):
    # Positions of this network are relative: an image without content has none.
    name = "vjepa2.1-vitb16"
    settings = {"entry": "any", "hidden": 64, "normed": [1, 2, 3, 4]}
    small = dataclasses.replace(registry.find_model(name), dim=64, settings=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._catalogue(), name, small)
        result = run(
            "pca", *pair, "--descriptor", name, "--debias", 3, "--longest", 96,
            "--set", "weights=random",
            "--out", tmp_path / "pca.png",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "debias 3 removed 0 directions" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--layer", "x"), "--layer must be whole numbers"),
        (("--debias", "-3"), "--debias must be whole numbers"),
        (("--debias", "500"), "debias must be at most"),
        (("--preset", "classic"), r"one with dense features \(embedded, .*got 'classic'"),
    ],
)
def test_bad_flags_are_named(pair, tmp_path, arguments, says):
    arguments = [*arguments, *(() if "--debias" in arguments else ("--debias", "1"))]
    weights = ("--longest", 0, "--set", "weights=random", "--out", tmp_path / "pca.png")
    assert re.search(says, one_sentence(run("pca", *pair, *arguments, *weights)))
    assert not (tmp_path / "pca.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "file/pca.png"), "'file' is a file"),
        (("--out", "pca.doc"), "--out must be a picture whose name ends in one of"),
        (("--layer", "x"), "--layer must be whole numbers"),
    ],
)
def test_bad_flag_is_refused_before_an_image_is_read(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    for name in ("file", "none.png"):
        (tmp_path / name).write_text("in the way, and no image")
    assert says in one_sentence(run("pca", "none.png", "none.png", *arguments))


@pytest.mark.parametrize("out", [".", "new/folder", "p.png"])
def test_out_is_a_picture_or_a_folder_and_any_preset_with_a_backbone_will_do(
    pair, tmp_path, monkeypatch, out
):
    monkeypatch.chdir(tmp_path)
    result = run(
        "pca", *pair, "--preset", "fused", "--longest", 0, "--set", "weights=random", "--out", out
    )
    assert result.exit_code == 0, result.output
    picture = tmp_path / (out if out == "p.png" else f"{out}/pca.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"Picture: {Path(out) if out == 'p.png' else Path(out, 'pca.png')}" in result.stdout


def test_missing_network_is_a_sentence_with_advice_that_helps(pair, monkeypatch):
    monkeypatch.setattr("manymatch.features.weights.whereabouts", lambda _: None)
    says = one_sentence(run("pca", *pair, "--offline")).strip()
    assert says.endswith("run `manymatch models get efficientnet-lite0`")
    monkeypatch.setitem(sys.modules, "torch", None)
    says = one_sentence(run("pca", *pair)).strip()
    assert says.endswith('manymatch pca needs torch: pip install "manymatch[features]"')

import importlib.util
import json
import subprocess
import sys

import pytest

from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE
from manymatch.features.registry import models
from manymatch.matcher.config import PRESETS
from tests.support import command


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch, tmp_path):
    for name in ("MANYMATCH_WEIGHTS", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments):
    return command.run("models", *arguments)


def as_json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_listing_has_the_models_of_the_presets():
    result = run()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for config in FEATURE_PRESETS.values():
        if config.descriptor != NATIVE:
            assert any(line.startswith(config.descriptor) for line in lines)


def test_json_holds_everything():
    content = as_json()
    assert [model["name"] for model in content["models"]] == list(models())
    assert set(content["presets"]) == set(PRESETS)
    best = content["presets"]["best"]
    assert best["models"] == ["aliked-n16", "aliked-lightglue", "xfeat", "efficientnet-lite0"]
    assert [source["name"] for source in best["settings"]] == ["aliked-lightglue", "embedded"]
    by_name = {model["name"]: model for model in content["models"]}
    dinov3 = by_name["dinov3-vitl16"]
    assert dinov3["gated"] is True
    assert dinov3["ready"] is False
    assert dinov3["weights"] is None
    command = (
        f"hf download facebook/dinov3-vitl16-pretrain-lvd1689m --revision {dinov3['revision']}"
    )
    assert dinov3["commands"][-1] == command
    assert dinov3["sha256"]["dinov3_vitl16_pretrain_lvd1689m-8aa4cbdd.pth"].startswith("8aa4cbdd")
    assert (dinov3["dim"], dinov3["num_layers"], dinov3["patch_size"]) == (1024, 24, 16)
    assert by_name["grid"] | {"ready": True, "needs_weights": False} == by_name["grid"]
    preset = content["presets"]["dinov3"]
    assert preset["models"] == ["superpoint", "dinov3-vitl16"]
    assert preset["settings"]["layer"] == 19
    assert preset["ready"] is False


def test_weights_in_own_folder_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    file = tmp_path / "dinov2-vits14.safetensors"
    file.write_bytes(b"x")
    entry = as_json("dinov2-vits14")
    assert (entry["weights"], entry["place"]) == (str(file), "own folder")


def test_hashes_and_revisions_are_listed():
    text = "".join(run("dinov3-vitl16").stdout.split())
    for part in ("revisionea8dc2863c51be0a", "8aa4cbddda325040", "dcb2e45127cccbf1601e5f42"):
        assert part in text


def test_the_file_of_the_reference_comes_first():
    lines = run("dinov3").stdout.splitlines()
    (first,) = [
        i for i, line in enumerate(lines) if "dinov3_vitl16_pretrain" in line and "best" in line
    ]
    (hub,) = [i for i, line in enumerate(lines) if "hf download facebook/dinov3" in line]
    assert "rotary periods" in lines[first]
    assert "https://ai.meta.com/" in lines[first + 1]
    assert first < hub


def test_missing_libraries_are_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    entry = as_json("dinov2-vits14")
    assert entry["missing_libraries"] == ["torch", "transformers"]
    assert entry["ready"] is False
    assert 'pip install "manymatch[features]"' in entry["commands"]
    assert as_json("grid")["ready"] is True
    small = as_json("xfeat")
    assert small["missing_libraries"] == ["onnxruntime"]
    assert small["commands"] == ['pip install "manymatch[images]"', "manymatch models get xfeat"]


def test_unknown_name_is_one_sentence():
    result = run("dinov4")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "did you mean 'dinov" in result.stderr


@pytest.mark.parametrize("name", ["sift", "classic"])
def test_what_needs_no_weights_says_so(name):
    assert run("get", name).stdout == f"{name} needs no weights.\n"


def test_neither_torch_nor_a_network_is_used():
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from manymatch.cli.app import app\n"
        "app(['models'], standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'cv2', 'timm'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"

"""Backbones by name: ours, those that a decorator adds, those that other packages bring."""

import subprocess
import sys

import pytest

from manymatch.features import Backbone, backbone_names, load_backbone, register_backbone
from manymatch.features.device import choose_device, weights_hash
from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE
from manymatch.features.registry import (
    ALIASES,
    _backbones,
    detector_names,
    find_model,
    models,
)
from manymatch.features.weights import locate


class Plain(Backbone):
    name, patch_size, dim, num_layers = "plain", 4, 2, 1

    def __init__(self, weights=None, offline=False):
        self.given = (weights, offline)

    def forward(self, pixels, layers, norm):
        raise NotImplementedError


@pytest.fixture
def clean():
    before = dict(_backbones)
    yield
    _backbones.clear()
    _backbones.update(before)


@pytest.mark.usefixtures("clean")
def test_by_decorator():
    assert register_backbone("plain")(Plain) is Plain
    assert "plain" in backbone_names()
    assert load_backbone("plain", weights="w", offline=True).given == ("w", True)
    with pytest.raises(ValueError, match="name must be one that is not taken"):
        register_backbone("plain")(Plain)
    register_backbone("plain", replace=True)(Plain)


@pytest.mark.parametrize("name", ["", " x", "a:b", 3, None])
def test_names_are_words(name):
    with pytest.raises(ValueError, match="name must be a word"):
        register_backbone(name)


@pytest.mark.usefixtures("clean")
def test_what_is_backbones_makes_backbones():
    with pytest.raises(ValueError, match="factory must be"):
        register_backbone("x")(3)


@pytest.mark.parametrize("name", ["dinov3", "dinov3-vitl16:x", "hf", "", 3])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="backbone must be"):
        load_backbone(name)


_PACKAGE = """
from manymatch.features import Backbone

class Theirs(Backbone):
    name, patch_size, dim, num_layers = "theirs", 8, 3, 2
    def __init__(self, weights=None, offline=False): pass
    def forward(self, pixels, layers, norm): ...
"""


def test_by_entry_point_of_another_package(tmp_path):
    (tmp_path / "theirs.py").write_text(_PACKAGE)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[manymatch.backbones]\ntheirs = theirs:Theirs\nbroken = absent:Nothing\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from manymatch.features import backbone_names, load_backbone\n"
        "print('theirs' in backbone_names(), 'broken' in backbone_names())\n"
        "print(load_backbone('theirs').patch_size)\n"
    )
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "8"]


def test_devices():
    pytest.importorskip("torch")
    assert choose_device("cpu") == "cpu"
    assert (choose_device("torch").type, choose_device("torch").torch) == ("torch", "cpu")
    assert not choose_device("torch").runs_onnx
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    for device in ("abacus", 3.5, "meta", "cuda:99"):
        with pytest.raises(ValueError, match="device must be"):
            choose_device(device)


def test_weights_hash_sees_every_number():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    before = weights_hash(module)
    assert before == weights_hash(module)
    with torch.no_grad():
        module[1].running_var[1] += 1e-6
    assert weights_hash(module) != before
    assert weights_hash(None) == ""


PACKAGED = [model.name for model in models().values() if model.package is not None]


def test_every_backbone_and_detector_is_listed():
    by_kind = {
        kind: {model.name for model in models().values() if model.kind == kind}
        for kind in ("backbone", "detector")
    }
    ours = {name for name in backbone_names() if not name.endswith(":")}
    assert by_kind["backbone"] <= ours
    assert by_kind["detector"] == set(detector_names()) - set(ALIASES)


def test_presets_name_models():
    for config in FEATURE_PRESETS.values():
        assert find_model(config.detector).kind == "detector"
        if config.descriptor != NATIVE:
            model = find_model(config.descriptor)
            assert model.kind == "backbone"
            assert (config.layer or 1) <= model.num_layers


def test_names_are_unique_and_facts_complete():
    for name, model in models().items():
        assert model.name == name
        assert model.licence != "unknown"
        assert bool(model.package) == bool(model.file)
        # One source each, so that it is clear which one counts.
        assert not (model.package and (model.hub_id or model.url))
        if model.kind == "backbone":
            assert None not in (model.dim, model.num_layers, model.patch_size, model.parameters)
        assert (model.gate != "") == model.gated


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_files_have_the_stated_size(name):
    path = locate(models()[name])
    if path is None:
        pytest.skip(f"{models()[name].package} is not installed")
    assert round(1e-6 * path.stat().st_size, 1) == models()[name].size_mb

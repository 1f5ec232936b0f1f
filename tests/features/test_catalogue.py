"""What the catalogue says of models that are not of transformers."""

from __future__ import annotations

import pytest

from manymatch.features.registry import ALIASES, MODELS, find_model
from manymatch.features.config import FEATURE_PRESETS, NATIVE
from manymatch.features.registry import DETECTORS
from manymatch.features.registry import backbone_names
from manymatch.features.weights import locate

PACKAGED = [model.name for model in MODELS.values() if model.package is not None]


def test_every_backbone_and_detector_is_listed():
    by_kind = {
        kind: {model.name for model in MODELS.values() if model.kind == kind}
        for kind in ("backbone", "detector")
    }
    ours = {name for name in backbone_names() if not name.endswith(":")}
    assert by_kind["backbone"] <= ours
    assert by_kind["detector"] == set(DETECTORS) - set(ALIASES)


def test_presets_name_models():
    for config in FEATURE_PRESETS.values():
        assert find_model(config.detector).kind == "detector"
        if config.descriptor != NATIVE:
            model = find_model(config.descriptor)
            assert model.kind == "backbone"
            assert (config.layer or 1) <= model.num_layers


def test_names_are_unique_and_facts_complete():
    for name, model in MODELS.items():
        assert model.name == name
        assert model.licence != "unknown"
        assert bool(model.package) == bool(model.file)
        # One source each, so that it is clear which one counts.
        assert sum(map(bool, (model.hub_id, model.package, model.url))) <= 1
        if model.kind == "backbone":
            assert None not in (model.dim, model.num_layers, model.patch_size, model.parameters)
        assert (model.gate != "") == model.gated


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_files_have_the_stated_size(name):
    path = locate(MODELS[name])
    if path is None:
        pytest.skip(f"{MODELS[name].package} is not installed")
    assert round(1e-6 * path.stat().st_size, 1) == MODELS[name].size_mb


@pytest.mark.parametrize("name", [n for n in MODELS if n.startswith("vjepa")])
def test_vjepa(name):
    torch = pytest.importorskip("torch")
    from manymatch.features.backbones._vjepa import Network, Size
    from manymatch.features.backbones.vjepa import _SIZES

    dim, hidden, normed, _ = _SIZES[name]
    with torch.device("meta"):
        module = Network(Size(dim, hidden, normed))
    model = MODELS[name]
    assert (dim, normed[-1]) == (model.dim, model.num_layers)
    assert sum(parameter.numel() for parameter in module.parameters()) == model.parameters


def test_efficientnet_lite():
    torch = pytest.importorskip("torch")
    from manymatch.features.backbones._efficientnet_lite import Network
    from manymatch.features.backbones.efficientnet_lite import EfficientNetLite0

    model = MODELS["efficientnet-lite0"]
    for fact in ("dim", "num_layers", "patch_size"):
        assert getattr(EfficientNetLite0, fact) == getattr(model, fact)
    with torch.device("meta"):
        module = Network()
    assert sum(parameter.numel() for parameter in module.parameters()) == model.parameters

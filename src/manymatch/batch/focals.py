"""One focal length for each camera of a run, from all pairs that contain it.

Unknown focal lengths are found pair by pair. Where the user says which images have the same camera,
the pairs are estimated again with the focal length that all pairs of a camera give together. It
needs nothing but columns of the rows, so it does not depend on their order or on interruptions.
"""

from __future__ import annotations

import dataclasses
import math
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.estimate.result import FOCAL_DETERMINED

if TYPE_CHECKING:
    from manymatch.batch import CameraPer
    from manymatch.estimate.relative_pose import RelativePoseEstimate
    from manymatch.geometry.camera import Camera

#: Columns of a row about focal lengths that were unknown. `own_focal` is the estimate of the pair
#: by itself, where it determines one; `focal`, a column of all pairs, is the one that was used.
FOCAL_COLUMNS: dict[str, str] = {
    **dict.fromkeys(("focal0_sd_px", "focal1_sd_px"), "float64"),
    "focal_determined": "bool",
    **dict.fromkeys(("camera0_group", "camera1_group"), "string"),
    **dict.fromkeys(("own_focal0_px", "own_focal1_px"), "float64"),
    **dict.fromkeys(("own_focal0_sd_px", "own_focal1_sd_px"), "float64"),
    **dict.fromkeys(("prior_focal0_px", "prior_focal1_px"), "float64"),
    **dict.fromkeys(("prior_sigma0", "prior_sigma1"), "float64"),
}
_OF_FIRST_PASS = [name for name in FOCAL_COLUMNS if name.startswith(("camera", "own_", "prior"))]

# Relative error that pairs have in common, as the principal point is not quite at the centre and
# lenses distort: no number of pairs gives a smaller one.
_COMMON_SIGMA = 0.005
# Width of the Cauchy weights: 95 % as efficient as the mean if the deviations are right.
_CAUCHY = 2.385
_STEPS = 100
# Median of the square of a normal number.
_NORMAL_MEDIAN = 0.455
# A focal length is used for all pairs of its camera if at least this number of pairs determine it,
# with at most this relative standard deviation. One wrong pair would harm all others.
_FEWEST_PAIRS = 3
_LARGEST_SIGMA = 0.1


@dataclasses.dataclass(frozen=True)
class SharedFocal:
    """A focal length in pixels from `pairs` pairs of a camera, and its standard deviation."""

    focal_px: float
    sd_px: float
    pairs: int

    @property
    def reliable(self) -> bool:
        """Whether enough pairs agree for it to be used for all of them."""
        return self.pairs >= _FEWEST_PAIRS and self.sd_px <= _LARGEST_SIGMA * self.focal_px


def camera_group(camera_per: CameraPer, name: str, camera: Camera) -> str | None:
    """Name the camera of an image if its focal length is unknown: a text that its images share.

    Images of one camera have the same size, maybe turned by a quarter, and the same prior; a zoom
    lens has one per focal length that EXIF has.
    """
    if camera.known_focal:
        return None
    if camera_per in ("pair", "image"):
        return name
    folder = f"{posixpath.dirname(name)}/" if camera_per == "folder" else ""
    shorter, longer = sorted((camera.width or 0, camera.height or 0))
    return f"{folder}{longer}x{shorter}, {camera.focal!r} px, {camera.focal_sigma!r}"


def is_shared(
    camera_per: CameraPer, names: tuple[str, str], cameras: Sequence[Camera]
) -> bool | None:
    """Whether the two images of a pair have one focal length, as estimators take it."""
    groups = [camera_group(camera_per, *one) for one in zip(names, cameras, strict=True)]
    return None if camera_per == "pair" or None in groups else groups[0] == groups[1]


def focal_row(
    camera_per: CameraPer,
    names: tuple[str, str],
    priors: Sequence[Camera],
    estimate: RelativePoseEstimate,
    *,
    trusted: bool = True,
) -> dict[str, Any]:
    """Columns of a pair whose focal lengths were found; empty if all are known.

    `priors` are its cameras before, and `trusted` says whether its focal lengths may be used for
    other pairs.
    """
    if all(camera.known_focal for camera in priors):
        return {}
    found = zip(priors, estimate.cameras, estimate.focal_sd_px or (None, None), strict=True)
    row: dict[str, Any] = {}
    if estimate.focal_sd_px:
        row["focal_determined"] = estimate.focal_determined
    for side, (prior, own, deviation) in enumerate(found):
        group = camera_group(camera_per, names[side], prior)
        if group is None:
            continue
        row[f"camera{side}_group"], row[f"focal{side}_sd_px"] = group, deviation
        row[f"prior_focal{side}_px"], row[f"prior_sigma{side}"] = prior.focal, prior.focal_sigma
        limit = FOCAL_DETERMINED * (prior.focal_sigma or 0.0) * own.focal
        # Zero where it was taken over from other pairs.
        if trusted and deviation is not None and 0.0 < deviation <= limit:
            row[f"own_focal{side}_px"], row[f"own_focal{side}_sd_px"] = own.focal, deviation
    return {name: row[name] for name in FOCAL_COLUMNS if row.get(name) is not None}


def shared_focals(rows: Iterable[Mapping[str, Any]]) -> dict[str, SharedFocal]:
    """Combine prior and found focal lengths of each group of which any pair determines it."""
    said: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        groups = (row.get("camera0_group"), row.get("camera1_group"))
        for side in (0,) if groups[0] == groups[1] else (0, 1):
            found = _likelihood(row, side)
            if found is not None:
                of_group = said[str(groups[side])]
                prior = math.log(row[f"prior_focal{side}_px"]), row[f"prior_sigma{side}"]
                of_group += [found] if of_group else [prior, found]
    return {
        group: SharedFocal(*combined(said[group]), pairs=len(said[group]) - 1)
        for group in sorted(said)
    }


def groups_of(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the cameras of all rows."""
    found = {row.get(f"camera{side}_group") for row in rows for side in (0, 1)}
    return {group for group in found if group is not None}


@dataclasses.dataclass(frozen=True)
class FirstPass:
    """Rows of the first pass by the index of their pair, and the focal lengths of all pairs.

    The first pass may have had a sample of the pairs only.
    """

    rows: Mapping[int, Mapping[str, Any]]
    focals: Mapping[str, SharedFocal]

    @classmethod
    def of(cls, rows: Mapping[int, Mapping[str, Any]]) -> FirstPass:
        """Find the focal lengths that enough rows agree on."""
        found = shared_focals(rows.values())
        return cls(rows, {group: focal for group, focal in found.items() if focal.reliable})

    def _focal(self, row: Mapping[str, Any], side: int) -> SharedFocal | None:
        return self.focals.get(row.get(f"camera{side}_group", ""))

    def camera(self, group: str | None, camera: Camera) -> Camera:
        """Return the camera of an image with the focal length of its group, if known."""
        found = self.focals.get(group or "")
        return camera if found is None else camera.with_focal(found.focal_px)

    def is_stale(self, row: Mapping[str, Any]) -> bool:
        """Whether the row of a pair is with other focal lengths than those of its groups."""
        for side in (0, 1):
            wanted = self._focal(row, side)
            if wanted is not None:
                used = row.get(f"focal{side}_px", 0.0), row.get(f"focal{side}_sd_px", 0.0)
                if not np.allclose(used, (wanted.focal_px, wanted.sd_px), rtol=1e-9, atol=0.0):
                    return True
        return False

    def updated(self, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of the second pass with what its pair said by itself in the first."""
        first = self.rows.get(index, row)
        new = {name: value for name, value in row.items() if name not in FOCAL_COLUMNS}
        new |= {name: first[name] for name in _OF_FIRST_PASS if first.get(name) is not None}
        for side in (0, 1):
            shared = self._focal(first, side)
            deviation = row.get(f"focal{side}_sd_px") if shared is None else shared.sd_px
            if deviation is not None:
                new[f"focal{side}_sd_px"] = deviation
        if row["success"]:
            new["focal_determined"] = row.get("focal_determined", True)
        return new


def combined(said: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Combine focal lengths, given by their logarithms and the standard deviations of these.

    Returns a focal length and its standard deviation. The mean is weighted by the variances and
    robust against pairs that are wrong. Its deviation is larger where pairs disagree by more than
    they should.
    """
    log_focal, sigma = np.array(sorted(said), dtype=np.float64).T
    variance = sigma**2 + _COMMON_SIGMA**2
    share = np.cumsum(1.0 / variance)
    mean = float(log_focal[np.searchsorted(share, 0.5 * share[-1])])
    inverse = 1.0 / variance
    for _ in range(_STEPS):
        squared = (log_focal - mean) ** 2
        scale = max(1.0, float(np.median(squared / variance)) / _NORMAL_MEDIAN)
        inverse = 1.0 / (scale * variance + squared / _CAUCHY**2)
        mean = float(inverse @ log_focal / inverse.sum())
    deviation = math.sqrt(1.0 / float(inverse.sum()) + _COMMON_SIGMA**2)
    return math.exp(mean), math.exp(mean) * deviation


def _likelihood(row: Mapping[str, Any], side: int) -> tuple[float, float] | None:
    """Return the logarithm of a pair's focal length and its deviation, if it determines one."""
    # Without its prior, which would otherwise count once for every pair.
    focal, deviation = row.get(f"own_focal{side}_px"), row.get(f"own_focal{side}_sd_px")
    if focal is None or deviation is None:
        return None
    prior, broad, sigma = row[f"prior_focal{side}_px"], row[f"prior_sigma{side}"], deviation / focal
    if not 0.0 < sigma < broad:
        return None
    precision = 1.0 / sigma**2 - 1.0 / broad**2
    mean = (math.log(focal) / sigma**2 - math.log(prior) / broad**2) / precision
    return mean, 1.0 / math.sqrt(precision)

"""What made scenes look like: the parameters and the named configurations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from manymatch._validate import integer, real, refusal


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """What a made scene looks like; lengths are in scene units, camera 0 is at the origin.

    Parameters
    ----------
    num_points : int
        Near points with descriptors of their own.
    num_outliers : int
        Keypoints without a partner, in each image.
    num_rows : int
        Rows that both images see entirely.
    num_hub_rows : (int, int)
        Range of the number of rows of which one image sees ``hub_partners`` members only: image 1
        its last ones in the first hub row, image 0 its first ones in the second, and so on.
    row_length, hub_partners : int
        Members of a row.
    row_spacing_px : float
        Distance between neighbours of a row, in pixels of image 0.
    row_depth : (float, float)
        Range of the rows' depth.
    row_angle_deg : (float, float)
        Range of the angle between the rows and the true baseline.
    rows_share_descriptor : bool
        False gives every member its own descriptor and leaves all else as it is.
    row_noise : float
        Descriptor noise of row members, relative to a unit descriptor.
    family_size : int
        Points in groups of this size look alike; 1 means no look-alikes.
    family_spread : float
        How far the true descriptors of a family are apart. Below ``descriptor_noise`` the true
        partner is often at rank 2 to ``family_size``.
    descriptor_noise : float
        Noise of each image's descriptors, relative to a unit descriptor.
    descriptor_dim : int
        Length of a descriptor.
    noise_px : float
        Standard deviation of the keypoint noise in each image and axis.
    depth : (float, float)
        Range of the points' depth in camera 0.
    planar : bool
        Put every near point on one slanted plane through the middle of ``depth``.
    baseline : (float, float)
        Range of the distance between the cameras; ``(0, 0)`` is a pure rotation, and the true
        translation is then only a direction without effect.
    rotation_deg : (float, float)
        Range of the relative rotation angle.
    width, height : int
        Image size of both cameras.
    focal0, focal1 : float
        Focal lengths in pixels.
    k : int
        Candidates: mutual k-nearest neighbours.
    max_edges : int, optional
        Keep only that many edges, best first.
    """

    num_points: int = 80
    num_outliers: int = 20
    num_rows: int = 0
    num_hub_rows: tuple[int, int] = (0, 0)
    row_length: int = 6
    hub_partners: int = 2
    row_spacing_px: float = 40.0
    row_depth: tuple[float, float] = (60.0, 80.0)
    row_angle_deg: tuple[float, float] = (60.0, 90.0)
    rows_share_descriptor: bool = True
    row_noise: float = 0.1
    family_size: int = 1
    family_spread: float = 0.3
    descriptor_noise: float = 0.3
    descriptor_dim: int = 64
    noise_px: float = 0.5
    depth: tuple[float, float] = (4.0, 10.0)
    planar: bool = False
    baseline: tuple[float, float] = (0.5, 1.0)
    rotation_deg: tuple[float, float] = (2.0, 10.0)
    width: int = 1024
    height: int = 768
    focal0: float = 800.0
    focal1: float = 800.0
    k: int = 5
    max_edges: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_points", "num_outliers", "num_rows"):
            integer(getattr(self, name), name, 0)
        for name in ("width", "height", "descriptor_dim", "row_length", "family_size", "k"):
            integer(getattr(self, name), name, 1)
        low, high = self.num_hub_rows
        integer(high, "num_hub_rows", integer(low, "num_hub_rows", 0))
        integer(self.hub_partners, "hub_partners", 1, self.row_length)
        if self.max_edges is not None:
            integer(self.max_edges, "max_edges", 1)
        for name in ("family_spread", "descriptor_noise", "row_noise", "noise_px"):
            real(getattr(self, name), name, 0.0, closed=True)
        for name in ("focal0", "focal1", "row_spacing_px"):
            real(getattr(self, name), name, 0.0)
        for name in ("baseline", "rotation_deg", "row_angle_deg"):
            _range(getattr(self, name), name, low=0.0)
        for name in ("depth", "row_depth"):
            _range(getattr(self, name), name, low=1e-6)


def _range(value: tuple[float, float], name: str, low: float) -> None:
    first, last = value
    if not low <= first <= last < math.inf:
        raise refusal(name, f"a finite range (low, high) from {low:g} on", value)


#: Distinct points, little noise: every method finds the pose.
EASY = SceneConfig(descriptor_noise=0.1, num_outliers=10)

#: All near points on one plane.
PLANAR = SceneConfig(planar=True, num_points=120)

#: A pure rotation: the translation cannot be known.
LOW_PARALLAX = SceneConfig(baseline=(0.0, 0.0), num_points=120)

#: Near points against a far facade of hub rows, few in some scenes and many in others. Accuracy is
#: expected to rise clearly from CM over HCM to MCM, with the two-stage estimator as good as MCM,
#: for 1,000 to 20,000 iterations a pair; benchmarks/accuracy/ordering.py measures it.
ORDERING = SceneConfig(
    num_points=92,
    num_outliers=0,
    num_hub_rows=(4, 40),
    row_depth=(150.0, 200.0),
    baseline=(0.5, 1.5),
    descriptor_dim=128,
    max_edges=600,
)

#: The same keypoints as ORDERING, every one with its own descriptor: no method should differ.
CONTROL = replace(ORDERING, rows_share_descriptor=False)

#: One scene to look at, like those of ORDERING but with fewer points.
DEMO = replace(ORDERING, num_points=60, num_hub_rows=(16, 16))

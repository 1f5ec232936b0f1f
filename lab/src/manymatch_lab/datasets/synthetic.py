"""Synthetic two-view scenes with known pose, descriptors and candidate graphs.

A scene has up to four kinds of keypoints:

* *points*: near, each with a descriptor of its own, optionally in families of look-alikes;
* *rows*: parallel rows of equally spaced points whose members all carry one descriptor, like the
  windows of a facade;
* *hub rows*: rows of which one image sees all members and the other only a few, so that many
  keypoints compete for few partners;
* *outliers*: keypoints without a partner in the other image.

Rows separate the scores, because they are far away and the true baseline hardly moves them. A
wrong pose that moves the camera along the rows, by the distance of a few windows, explains them as
well, and makes consistent not one candidate per window but every candidate with the same offset.
CM counts each of these edges. HCM counts a vertex at most once, but on both sides and with a larger
weight where it has several consistent candidates, and in a hub row it counts every competing
vertex. A maximum matching (MCM) counts every possible one-to-one match once, so that the near
points, which only the true pose explains, decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from manymatch.associate.neighbours import associate
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph
from manymatch_lab.checks import BoolArray, FloatArray, IndexArray, integer, real, refusal

# Keypoints stay this far inside the image, so that noise does not push them out.
_BORDER_PX = 8.0
# Draws per wanted point or row before a configuration counts as impossible.
_MAX_TRIES = 2_000


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """What a synthetic scene looks like; lengths are in scene units, camera 0 is at the origin.

    Ranges are (low, high). `family_size` points at a time look alike; where `family_spread`, the
    distance of their true descriptors, is below `descriptor_noise`, the true partner is often at
    rank 2 to `family_size`. With `rows_share_descriptor` False every member of a row has its own
    descriptor and all else stays as it is. A `baseline` of (0, 0) is a pure rotation; the true
    translation is then only a direction without effect.
    """

    num_points: int = 80  # near points with descriptors of their own
    num_outliers: int = 20  # keypoints without a partner, in each image
    num_rows: int = 0  # rows that both images see entirely
    # Rows of which one image sees `hub_partners` members only: image 1 the last ones of the first
    # hub row, image 0 the first ones of the second, and so on.
    num_hub_rows: tuple[int, int] = (0, 0)
    row_length: int = 6  # members of a row
    hub_partners: int = 2
    row_spacing_px: float = 40.0  # distance of neighbours of a row, pixels of image 0
    row_depth: tuple[float, float] = (60.0, 80.0)
    row_angle_deg: tuple[float, float] = (60.0, 90.0)  # between the rows and the true baseline
    rows_share_descriptor: bool = True
    row_noise: float = 0.1  # descriptor noise of row members, relative to length 1
    family_size: int = 1
    family_spread: float = 0.3
    descriptor_noise: float = 0.3  # of each image, relative to length 1
    descriptor_dim: int = 64
    noise_px: float = 0.5  # standard deviation of the keypoint noise per image and axis
    depth: tuple[float, float] = (4.0, 10.0)  # of the near points in camera 0
    planar: bool = False  # near points on one slanted plane through the middle of `depth`
    baseline: tuple[float, float] = (0.5, 1.0)  # distance between the cameras
    rotation_deg: tuple[float, float] = (2.0, 10.0)
    width: int = 1024
    height: int = 768
    focal0: float = 800.0
    focal1: float = 800.0
    k: int = 5  # candidates: mutual k-nearest neighbours
    max_edges: int | None = None  # keep only this many edges, best first; None for all

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

#: The named configurations, by name.
CONFIGS = {
    "ordering": ORDERING,
    "control": CONTROL,
    "planar": PLANAR,
    "low-parallax": LOW_PARALLAX,
    "easy": EASY,
    "demo": DEMO,
}


@dataclass(frozen=True, eq=False)
class Scene:
    """A synthetic pair of views and everything that is true about it.

    The graph has the mutual k-nearest candidates of the unit descriptors; `is_true` (E,) marks its
    edges that are true matches. The pose, camera 0 to camera 1, has a unit translation; `baseline`
    is the distance between the cameras in scene units. `true_matches` (M, 2) are all keypoints that
    show the same 3D point, by increasing first index, and `points3d` (M, 3) these points in camera
    0; they need not all be candidates. `row0` and `row1` are the row a keypoint belongs to, -1 for
    none, numbered alike in both images, hub rows after full rows; `row_direction` (3,) is the unit
    direction of the rows in camera 0.
    """

    graph: AssociationGraph
    camera0: Camera
    camera1: Camera
    pose: RelativePose
    baseline: float
    true_matches: IndexArray
    points3d: FloatArray
    is_true: BoolArray
    descriptors0: FloatArray
    descriptors1: FloatArray
    row0: IndexArray
    row1: IndexArray
    row_direction: FloatArray
    config: SceneConfig
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of both images in pixels."""
        return self.config.width, self.config.height

    def __repr__(self) -> str:
        rows = len(np.union1d(self.row0[self.row0 >= 0], self.row1[self.row1 >= 0]))
        return (
            f"Scene(seed={self.seed}, {len(self.row0)} + {len(self.row1)} keypoints, {rows} rows, "
            f"{self.graph.num_edges} candidate edges, {int(self.is_true.sum())} of "
            f"{len(self.true_matches)} true matches among them)"
        )


def make_scene(config: SceneConfig = EASY, seed: int = 0) -> Scene:
    """Make one scene, a function of ``config`` and ``seed`` (zero or more) only.

    ``ORDERING``, ``CONTROL``, ``PLANAR``, ``LOW_PARALLAX``, ``EASY`` and ``DEMO`` are ready made.
    Cameras that hardly see the same points are a `ValueError`.
    """
    integer(seed, "seed", 0)
    # One stream each, so that changing what descriptors look like leaves the geometry as it is.
    pose_seed, point_seed, noise_seed, look_seed, order_seed = np.random.SeedSequence(seed).spawn(5)
    size = (config.width, config.height)
    rig = _make_rig(config, np.random.default_rng(pose_seed))
    streams = (np.random.default_rng(stream) for stream in (point_seed, noise_seed, look_seed))
    tracks = _make_tracks(config, rig, *streams)
    # Keypoints are shuffled, so that their order does not reveal the true matches.
    shuffle = np.random.default_rng(order_seed)
    order0, order1 = (shuffle.permutation(np.flatnonzero(seen)) for seen in tracks.seen)
    points = tracks.pixels[0][order0], tracks.pixels[1][order1]
    looks = tracks.descriptors[0][order0], tracks.descriptors[1][order1]
    edges, similarity, rank = associate(*looks, k=config.k, max_edges=config.max_edges)
    # Keypoints of both images that show the same track.
    place1 = np.full(len(tracks.row), -1, dtype=np.int64)
    place1[order1] = np.arange(len(order1))
    index0 = np.flatnonzero(place1[order0] >= 0)
    return Scene(
        graph=AssociationGraph(points[0], points[1], edges, similarity, rank),
        camera0=Camera.from_matrix(rig.K0, *size),
        camera1=Camera.from_matrix(rig.K1, *size),
        pose=RelativePose(rig.R, rig.t),
        baseline=rig.baseline,
        true_matches=np.column_stack((index0, place1[order0[index0]])),
        points3d=tracks.points3d[order0[index0]],
        is_true=order0[edges[:, 0]] == order1[edges[:, 1]],
        descriptors0=looks[0],
        descriptors1=looks[1],
        row0=tracks.row[order0],
        row1=tracks.row[order1],
        row_direction=rig.rows,
        config=config,
        seed=seed,
    )


def make_scenes(config: SceneConfig, count: int, seed: int = 0) -> Iterator[Scene]:
    """Scenes of ``count`` consecutive seeds, starting at ``seed``, one after the other."""
    integer(count, "count", 0)
    return (make_scene(config, seed + offset) for offset in range(count))


@dataclass(frozen=True)
class _Rig:
    """Two pinhole cameras; ``X1 = R @ X0 + baseline * t`` maps camera 0 to camera 1.

    ``rows`` is the unit direction of all rows, in camera 0.
    """

    K0: FloatArray
    K1: FloatArray
    size: tuple[int, int]
    R: FloatArray
    t: FloatArray
    baseline: float
    rows: FloatArray

    def project(self, points: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Pixels in both images (N, 2) of points (N, 3) in camera 0, and whether both see them."""
        moved = points @ self.R.T + self.baseline * self.t
        pixels = []
        seen = np.ones(len(points), dtype=np.bool_)
        for K, X in ((self.K0, points), (self.K1, moved)):
            depth = np.where(X[:, 2] > 0, X[:, 2], np.inf)
            x = X[:, :2] / depth[:, None] * K[0, 0] + K[:2, 2]
            low, high = _BORDER_PX, np.array(self.size) - 1 - _BORDER_PX
            seen &= (X[:, 2] > 0) & np.all((x >= low) & (x <= high), axis=1)
            pixels.append(x)
        return pixels[0], pixels[1], seen

    def lift(self, pixels: FloatArray, depth: FloatArray) -> FloatArray:
        """Points (N, 3) in camera 0 at these pixels (N, 2) of image 0 and depths (N,)."""
        ray = (pixels - self.K0[:2, 2]) / self.K0[0, 0]
        return np.column_stack((ray, np.ones(len(pixels)))) * depth[:, None]


def _make_rig(config: SceneConfig, rng: np.random.Generator) -> _Rig:
    """Draw a relative pose whose baseline makes an angle in ``row_angle_deg`` with the rows."""
    axis = rng.standard_normal(3)
    axis /= np.linalg.norm(axis)
    R = rotation_matrix(axis * np.deg2rad(rng.uniform(*config.rotation_deg)))
    turn = rng.uniform(0.0, np.pi)
    rows = np.array([np.cos(turn), np.sin(turn), 0.0])
    # The camera's centre moves mostly in the image plane: forward motion has little parallax.
    across = np.array([-np.sin(turn), np.cos(turn), 0.0])
    forward = np.array([0.0, 0.0, 1.0])
    lean = rng.uniform(-np.pi / 6, np.pi / 6)
    side = rng.choice((-1.0, 1.0)) * (np.cos(lean) * across + np.sin(lean) * forward)
    angle = np.deg2rad(rng.uniform(*config.row_angle_deg))
    centre = np.cos(angle) * rng.choice((-1.0, 1.0)) * rows + np.sin(angle) * side
    t = -R @ centre
    # The middle of the image, with the centre of the top-left pixel at (0, 0).
    cx, cy = (config.width - 1) / 2, (config.height - 1) / 2
    K0, K1 = (
        np.array([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]])
        for focal in (config.focal0, config.focal1)
    )
    baseline = float(rng.uniform(*config.baseline))
    size = (config.width, config.height)
    return _Rig(K0, K1, size, R, t / np.linalg.norm(t), baseline, rows)


def rotation_matrix(vector: FloatArray) -> FloatArray:
    """Rotation (3, 3) about ``vector`` by its length in radians."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / angle if angle > 0 else np.zeros(3)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(
        np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross),
        dtype=np.float64,
    )


def _unit_rows(vectors: FloatArray) -> FloatArray:
    """Rows of ``vectors`` (N, D) scaled to length one."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / norm, dtype=np.float64)


@dataclass(frozen=True)
class _Tracks:
    """Everything that can be a keypoint; a track seen by both images is a true match.

    ``points3d`` (P, 3) is NaN and ``pixels`` are unused where a track has no 3D point (outliers)
    or is not ``seen``. ``row`` (P,) is -1 for tracks that belong to no row.
    """

    points3d: FloatArray
    pixels: tuple[FloatArray, FloatArray]
    seen: tuple[BoolArray, BoolArray]
    descriptors: tuple[FloatArray, FloatArray]
    row: IndexArray


def _make_tracks(
    config: SceneConfig,
    rig: _Rig,
    place: np.random.Generator,
    noise: np.random.Generator,
    look: np.random.Generator,
) -> _Tracks:
    """All tracks of a scene: near points, rows, hub rows, outliers of image 0, of image 1."""
    low, high = config.num_hub_rows
    num_hubs = int(place.integers(low, high, endpoint=True))
    num_rows = config.num_rows + num_hubs
    near = _near_points(config, rig, place)
    rows = [_row(config, rig, place) for _ in range(num_rows)]
    points3d = np.concatenate([near, *rows, np.full((2 * config.num_outliers, 3), np.nan)])
    row = np.full(len(points3d), -1, dtype=np.int64)
    members = slice(len(near), len(near) + num_rows * config.row_length)
    row[members] = np.repeat(np.arange(num_rows), config.row_length)

    real = np.isfinite(points3d[:, 0])
    seen = real.copy(), real.copy()
    for hub in range(num_hubs):
        # Image 1 keeps the last members and image 0 the first ones: every wrong candidate of every
        # hub row then moves the same way along the rows, so one wrong pose can have them all.
        of_row = np.flatnonzero(row == config.num_rows + hub)
        if hub % 2 == 0:
            seen[1][of_row[: -config.hub_partners]] = False
        else:
            seen[0][of_row[config.hub_partners :]] = False
    stray = np.flatnonzero(~real)
    seen[0][stray[: config.num_outliers]] = True
    seen[1][stray[config.num_outliers :]] = True

    pixels = np.zeros((len(row), 2)), np.zeros((len(row), 2))
    x0, x1, _ = rig.project(points3d[real])
    for image, exact in enumerate((x0, x1)):
        pixels[image][real] = exact + config.noise_px * noise.standard_normal(exact.shape)
        pixels[image][~real] = place.uniform((0, 0), np.array(rig.size) - 1, (len(stray), 2))
    return _Tracks(points3d, pixels, seen, _descriptors(config, row, len(near), look), row)


def _near_points(config: SceneConfig, rig: _Rig, rng: np.random.Generator) -> FloatArray:
    """Points (num_points, 3) that both cameras see."""
    # A slanted plane z = depth / (1 - slant . ray), as inverse depth is linear in the image.
    slant = rng.uniform(-0.3, 0.3, 2)
    found = np.zeros((0, 3))
    for _ in range(_MAX_TRIES):
        if len(found) >= config.num_points:
            return found[: config.num_points]
        count = config.num_points
        pixels = rng.uniform((0, 0), np.array(rig.size) - 1, (count, 2))
        depth = rng.uniform(*config.depth, count)
        if config.planar:
            ray = (pixels - rig.K0[:2, 2]) / rig.K0[0, 0]
            depth = np.mean(config.depth) / (1.0 - ray @ slant)
        points = rig.lift(pixels, depth)
        found = np.concatenate((found, points[rig.project(points)[2]]))
    raise ValueError(_no_overlap("num_points"))


def _row(config: SceneConfig, rig: _Rig, rng: np.random.Generator) -> FloatArray:
    """Equally spaced points (row_length, 3) on a line in 3D that both cameras see."""
    steps = np.arange(config.row_length) - (config.row_length - 1) / 2
    for _ in range(_MAX_TRIES):
        depth = rng.uniform(*config.row_depth)
        middle = rig.lift(rng.uniform((0, 0), np.array(rig.size) - 1, (1, 2)), np.array([depth]))
        spacing = config.row_spacing_px * depth / config.focal0
        points = middle + steps[:, None] * spacing * rig.rows
        if rig.project(points)[2].all():
            return np.asarray(points, dtype=np.float64)
    raise ValueError(_no_overlap("num_rows"))


def _descriptors(
    config: SceneConfig, row: IndexArray, num_near: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw unit descriptors (P, D) of every track in image 0 and in image 1."""
    count, dim = len(row), config.descriptor_dim
    looks = _unit_rows(rng.standard_normal((count, dim)))
    in_row = row >= 0
    if config.family_size > 1:
        common = _unit_rows(rng.standard_normal((num_near, dim)))
        family = np.arange(num_near) // config.family_size
        looks[:num_near] = common[family] + config.family_spread * looks[:num_near]
    noise = np.full(count, config.descriptor_noise)
    if config.rows_share_descriptor:
        first = np.searchsorted(row[in_row], row[in_row])
        looks[in_row] = looks[in_row][first]
        noise[in_row] = config.row_noise
    scale = noise[:, None] / np.sqrt(dim)
    images = [_unit_rows(looks + scale * rng.standard_normal((count, dim))) for _ in range(2)]
    return images[0], images[1]


def _no_overlap(name: str) -> str:
    return (
        f"{name} must be points that both cameras see, got too few of them in {_MAX_TRIES} draws; "
        "choose a smaller rotation_deg, baseline, row_length or row_spacing_px"
    )

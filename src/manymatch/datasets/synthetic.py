"""Made two-view scenes with known pose, descriptors and candidate graphs.

A scene has up to four kinds of keypoints:

* *points*: near, each with a descriptor of its own, optionally in families of look-alikes;
* *rows*: parallel rows of equally spaced points whose members all carry one descriptor, like the
  windows of a facade;
* *hub rows*: rows of which one image sees all members and the other only a few, so that many
  keypoints compete for few partners;
* *outliers*: keypoints without a partner in the other image.

Why rows separate the scorers: rows are far away, so the true baseline hardly moves them. A
camera that instead slid *along* the rows by a window or two would explain them too, and with
them not only one candidate per window but every candidate that points the same way. Counting edges
(CM) pays for each of them. HCM pays a vertex at most once, but it pays on both sides and pays more
for a vertex with several consistent candidates, and a hub row pays for every vertex that
competes. A maximum matching (MCM) pays once per pair that can be real, and so the near points,
which only the true pose explains, decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import integer
from manymatch.associate.neighbours import associate
from manymatch.datasets._config import (
    CONTROL,
    DEMO,
    EASY,
    LOW_PARALLAX,
    ORDERING,
    PLANAR,
    SceneConfig,
)
from manymatch.datasets._geometry import make_rig
from manymatch.datasets._points import Tracks, make_tracks
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from manymatch.graph import AssociationGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CONFIGS",
    "CONTROL",
    "DEMO",
    "EASY",
    "LOW_PARALLAX",
    "ORDERING",
    "PLANAR",
    "Scene",
    "SceneConfig",
    "make_scene",
    "make_scenes",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

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
    """A made pair of views and everything that is true about it.

    Attributes
    ----------
    graph : AssociationGraph
        Mutual k-nearest candidates of the descriptors, in edge order.
    camera0, camera1 : Camera
        The calibrated cameras.
    pose : RelativePose
        The true pose, camera 0 to camera 1, with a unit translation.
    baseline : float
        Distance between the cameras in scene units; 0 for a pure rotation.
    true_matches : (M, 2) int64
        Keypoints of image 0 and image 1 that show the same 3D point, by increasing first index.
        They need not all be candidates.
    points3d : (M, 3) float64
        The 3D points of ``true_matches`` in camera 0, in scene units.
    is_true : (E,) bool
        Edges of the graph that are true matches.
    descriptors0, descriptors1 : (N0, D), (N1, D) float64
        Descriptors of unit length.
    row0, row1 : (N0,), (N1,) int64
        The row a keypoint belongs to, -1 for none. Rows are numbered alike in both images, hub rows
        after full rows.
    row_direction : (3,) float64
        Unit direction of the rows in camera 0.
    config : SceneConfig
        What the scene was made from.
    seed : int
        What the scene was made from.
    """

    graph: AssociationGraph
    camera0: Camera
    camera1: Camera
    pose: RelativePose
    baseline: float
    true_matches: IntArray
    points3d: FloatArray
    is_true: BoolArray
    descriptors0: FloatArray
    descriptors1: FloatArray
    row0: IntArray
    row1: IntArray
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
    """Make one scene.

    Parameters
    ----------
    config : SceneConfig
        What the scene looks like; ``ORDERING``, ``CONTROL``, ``PLANAR``, ``LOW_PARALLAX``, ``EASY``
        and ``DEMO`` are ready made.
    seed : int
        Zero or more. The scene is a function of ``config`` and ``seed`` only.

    Returns
    -------
    Scene

    Raises
    ------
    ValueError
        If the seed is negative, or if the two cameras hardly see the same points.
    """
    integer(seed, "seed", 0)
    # One stream each, so that changing what descriptors look like leaves the geometry as it is.
    pose_seed, point_seed, noise_seed, look_seed, order_seed = np.random.SeedSequence(seed).spawn(5)
    size = (config.width, config.height)
    rig = make_rig(
        size,
        (config.focal0, config.focal1),
        config.baseline,
        config.rotation_deg,
        config.row_angle_deg,
        np.random.default_rng(pose_seed),
    )
    tracks = make_tracks(
        config,
        rig,
        np.random.default_rng(point_seed),
        np.random.default_rng(noise_seed),
        np.random.default_rng(look_seed),
    )
    # Keypoints come in no particular order, as from a detector: an index must not tell a partner.
    shuffle = np.random.default_rng(order_seed)
    order0, order1 = (shuffle.permutation(np.flatnonzero(seen)) for seen in tracks.seen)
    points = tracks.pixels[0][order0], tracks.pixels[1][order1]
    looks = tracks.descriptors[0][order0], tracks.descriptors[1][order1]
    edges, similarity, rank = associate(*looks, k=config.k, max_edges=config.max_edges)
    matches, points3d = _true_matches(tracks, order0, order1)
    return Scene(
        graph=AssociationGraph(points[0], points[1], edges, similarity, rank),
        camera0=Camera.from_matrix(rig.K0, *size),
        camera1=Camera.from_matrix(rig.K1, *size),
        pose=RelativePose(rig.R, rig.t),
        baseline=rig.baseline,
        true_matches=matches,
        points3d=points3d,
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


def _true_matches(
    tracks: Tracks, order0: NDArray[np.intp], order1: NDArray[np.intp]
) -> tuple[IntArray, FloatArray]:
    """Pairs of keypoints (M, 2) that show the same track, and its 3D point (M, 3)."""
    place1 = np.full(len(tracks.row), -1, dtype=np.int64)
    place1[order1] = np.arange(len(order1))
    partner = place1[order0]
    index0 = np.flatnonzero(partner >= 0)
    return np.column_stack((index0, partner[index0])), tracks.points3d[order0[index0]]

"""Made photographs with known pose and depth: a street with a long front of equal windows.

The front repeats itself, so most of what a matcher sees in it fits in several places; shops, signs,
a tree and the neighbours do not repeat. The second view is nearer and later: the sun has moved on,
the clouds too, and windows mirror what is opposite the camera and not what is special about them.
Everything is computed, by ray casting in NumPy; no picture is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manymatch._validate import integer, real, refusal
from manymatch.geometry.camera import Camera
from manymatch.geometry.pose import RelativePose
from tools.street.rendering.cast import Rays, cast
from tools.street.rendering.film import develop
from tools.street.rendering.light import ShadowMap, SkyLight
from tools.street.rendering.noise import Noise
from tools.street.rendering.shade import World, radiance
from tools.street.rendering.town import BOUNDS, View, build_town, draw_views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["RenderedScene", "render_scene"]

# Focal length in units of the longer side: a phone's main camera.
_FOCAL = 0.80
_SUN_TEXELS = 1600
_SMALLEST, _LARGEST = 8, 4096


@dataclass(frozen=True, eq=False)
class RenderedScene:
    """Two made photographs and everything that is true about them.

    Attributes
    ----------
    image0, image1 : (H, W, 3) uint8
        The photographs, sRGB.
    camera0, camera1 : Camera
        Pinhole cameras.
    pose : RelativePose
        The true pose, camera 0 to camera 1, with a unit translation.
    baseline : float
        Distance between the cameras in metres: ``X1 = R @ X0 + baseline * t``.
    depth0, depth1 : (H, W) float32
        Depth (z) in metres at the pixel centres, infinity in the sky.
    seed : int
        What the scene was made from.
    """

    image0: NDArray[np.uint8]
    image1: NDArray[np.uint8]
    camera0: Camera
    camera1: Camera
    pose: RelativePose
    baseline: float
    depth0: NDArray[np.float32]
    depth1: NDArray[np.float32]
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of both images in pixels."""
        return self.image0.shape[1], self.image0.shape[0]

    def __repr__(self) -> str:
        width, height = self.size
        return (
            f"RenderedScene(seed={self.seed}, {width} x {height}, "
            f"{self.baseline:.2f} m apart, {self.pose!r})"
        )


def render_scene(
    seed: int = 0, size: Sequence[int] = (960, 720), *, supersample: int = 2, variety: float = 0.35
) -> RenderedScene:
    """Make two photographs of a made street.

    Parameters
    ----------
    seed : int
        Zero or more. The scene is a function of the arguments only.
    size : (int, int)
        Width and height of the images in pixels, 8 to 4096.
    supersample : int
        Rays per pixel and axis, 1 to 4.
    variety : float
        How much the windows of the front differ from each other, 0 (not at all) to 1.

    Returns
    -------
    RenderedScene

    Raises
    ------
    ValueError
        If an argument is of another type or out of its range.
    """
    integer(seed, "seed", 0)
    if np.shape(size) != (2,):
        raise refusal("size", "a pair (width, height)", size)
    width, height = (integer(n, "size", _SMALLEST, _LARGEST) for n in size)
    integer(supersample, "supersample", 1, 4)
    real(variety, "variety", 0.0, 1.0, closed=True)
    # One stream each, so that a change of the scene leaves the cameras as they are.
    parts = np.random.SeedSequence(seed).spawn(4)
    town_rng, view_rng, noise_rng, film_rng = (
        np.random.Generator(np.random.PCG64(p)) for p in parts
    )
    solids, leaves = build_town(town_rng, variety)
    views = draw_views(view_rng)
    world = World(solids, leaves, Noise(noise_rng), SkyLight(solids, *BOUNDS))
    images, depths = [], []
    for view in views:
        shadow = ShadowMap(view.weather.sun, solids, leaves, *BOUNDS, _SUN_TEXELS)
        images.append(_photograph(world, view, shadow, (width, height), supersample, film_rng))
        depths.append(cast(_rays(view, (width, height), 1), solids, leaves)[0])
    K = _matrix((width, height))
    camera = Camera.from_matrix(K, width, height)
    R = np.stack([(views[1].R[k] * views[0].R).sum(axis=1) for k in range(3)])
    t = (views[1].R * (views[0].centre - views[1].centre)).sum(axis=1)
    return RenderedScene(
        image0=images[0],
        image1=images[1],
        camera0=camera,
        camera1=camera,
        pose=RelativePose(R, t),
        baseline=float(np.sqrt((t**2).sum())),
        depth0=depths[0],
        depth1=depths[1],
        seed=seed,
    )


def _matrix(size: tuple[int, int]) -> NDArray[np.float64]:
    focal = _FOCAL * max(size)
    return np.array(
        [[focal, 0.0, (size[0] - 1) / 2], [0.0, focal, (size[1] - 1) / 2], [0.0, 0.0, 1.0]]
    )


def _rays(view: View, size: tuple[int, int], supersample: int) -> Rays:
    """Rays of a camera; sample k of an axis is at pixel ``(k + 0.5) / supersample - 0.5``."""
    K = _matrix(size)
    first = 0.5 / supersample - 0.5
    step = 1.0 / (supersample * K[0, 0])
    corner = np.array([(first - K[0, 2]) / K[0, 0], (first - K[1, 2]) / K[1, 1], 1.0])
    direction = np.stack([corner, [step, 0.0, 0.0], [0.0, step, 0.0]])
    turned = (direction[:, :, None] * view.R[None]).sum(axis=1)
    zero = np.zeros(3)
    origin = np.stack([view.centre, zero, zero])
    return Rays(origin, turned, size[0] * supersample, size[1] * supersample)


def _photograph(
    world: World,
    view: View,
    shadow: ShadowMap,
    size: tuple[int, int],
    supersample: int,
    rng: np.random.Generator,
) -> NDArray[np.uint8]:
    rays = _rays(view, size, supersample)
    step = 1.0 / (supersample * _matrix(size)[0, 0])
    light = radiance(rays, world, view.weather, shadow, step, supersample)
    # Highlights that would outshine a pixel's other samples are cut first, as they would alias.
    light = np.minimum(light, 6.0)
    fine = light.reshape(size[1], supersample, size[0], supersample, 3)
    return develop(fine.mean(axis=(1, 3), dtype=np.float32), view.film, rng)

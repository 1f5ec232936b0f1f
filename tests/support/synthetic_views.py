"""Two views with known geometry, quick to make: textured planes at several depths."""

import dataclasses

import numpy as np

from manymatch import AbsolutePose, Camera, RelativePose

SIZE = (480, 360)


@dataclasses.dataclass(frozen=True)
class ImagePair:
    image0: np.ndarray
    image1: np.ndarray
    camera: Camera
    pose: RelativePose


def _texture(rng, size=512):
    """Blocks of random size and colour."""
    texture = np.full((size, size, 3), 0.5)
    for _ in range(900):
        x, y = rng.integers(0, size, 2)
        w, h = rng.integers(4, 26, 2)
        texture[y : y + h, x : x + w] = rng.random(3)
    return texture


def _look_up(texture, u, v):
    """Bilinear, repeating."""
    n = len(texture)
    x, y = u % n, v % n
    i, j = np.floor(x).astype(int), np.floor(y).astype(int)
    a, b = (x - i)[..., None], (y - j)[..., None]
    i1, j1 = (i + 1) % n, (j + 1) % n
    upper = (1 - a) * texture[j, i] + a * texture[j, i1]
    return (1 - b) * upper + b * ((1 - a) * texture[j1, i] + a * texture[j1, i1])


def _hits(pixels, depths, camera, R, centre):
    """Return plane (N,) and point (N, 3) that pixels show; the plane is -1 where there is none.

    Every column of the world belongs to one of the planes, by its direction from camera 0.
    """
    rays = camera.unproject(pixels)
    rays = np.column_stack([rays, np.ones(len(rays))]) @ R
    plane, points = np.full(len(rays), -1), np.zeros((len(rays), 3))
    nearest = np.full(len(rays), np.inf)
    for k, depth in enumerate(depths):
        s = (depth - centre[2]) / rays[:, 2]
        at = centre + s[:, None] * rays
        band = np.floor((at[:, 0] / depth + 2.0) * 5.0).astype(int) % len(depths)
        hit = (band == k) & (s > 0) & (s < nearest)
        plane[hit], points[hit], nearest[hit] = k, at[hit], s[hit]
    return plane, points


def _view(textures, depths, camera, R, centre, size):
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    plane, at = _hits(np.stack([x.ravel(), y.ravel()], axis=1), depths, camera, R, centre)
    image = np.zeros((len(at), 3))
    for k, (texture, depth) in enumerate(zip(textures, depths, strict=True)):
        hit = plane == k
        image[hit] = _look_up(texture, 400 * at[hit, 0] / depth, 400 * at[hit, 1] / depth)
    return (255 * image.reshape(size[1], size[0], 3)).round().astype(np.uint8)


def image_pair(seed=0, size=SIZE):
    """Camera 1 stands to the right of camera 0 and is turned to the left, by 8 degrees."""
    rng = np.random.default_rng(seed)
    focal = 1.1 * size[0]
    camera = Camera("PINHOLE", *size, [focal, focal, (size[0] - 1) / 2, (size[1] - 1) / 2])
    depths = np.array([4.0, 5.0, 6.5])
    textures = [_texture(rng) for _ in depths]
    angle = np.radians(8.0)
    turn = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    )
    centre = np.array([0.7, 0.05, 0.1])
    t = -turn @ centre
    return ImagePair(
        _view(textures, depths, camera, np.eye(3), np.zeros(3), size),
        _view(textures, depths, camera, turn, centre, size),
        camera,
        RelativePose(turn, t / np.linalg.norm(t)),
    )


@dataclasses.dataclass(frozen=True)
class PosedView:
    image: np.ndarray
    camera: Camera
    pose: AbsolutePose
    depths: np.ndarray

    def points(self, pixels):
        """Points of the world (N, 3) that pixels show; NaN where they show nothing."""
        plane, at = _hits(pixels, self.depths, self.camera, self.pose.R, self.pose.center)
        return np.where(plane[:, None] >= 0, at, np.nan)


def posed_views(count, size, focal, seed=0):
    """Views of one scene by cameras on an arc that look at its middle, with their poses."""
    rng = np.random.default_rng(seed)
    camera = Camera("SIMPLE_PINHOLE", *size, [focal, (size[0] - 1) / 2, (size[1] - 1) / 2])
    depths = np.array([4.0, 5.0, 6.5])
    textures = [_texture(rng) for _ in depths]
    for k in range(count):
        a, b = np.radians(-15 + 30 * k / (count - 1)), 0.03 * (-1) ** k
        turn = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
        nod = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
        R = nod @ turn
        middle = np.array([0.0, 0.0, 5.0])
        centre = middle - R.T @ middle
        image = _view(textures, depths, camera, R, centre, size)
        yield PosedView(image, camera, AbsolutePose(R, -R @ centre), depths)


def photographs_of_a_scene(count, size, focal, seed=0):
    """Images (H, W, 3) of `posed_views`."""
    for view in posed_views(count, size, focal, seed):
        yield view.image

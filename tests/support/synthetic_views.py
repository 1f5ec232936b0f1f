"""Two views with known geometry, quick to make: textured planes at several depths."""

import dataclasses

import numpy as np

from manymatch import Camera, RelativePose

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


def _view(textures, depths, camera, R, centre, size):
    """Every column of the world belongs to one of the planes, by its direction from camera 0."""
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    rays = camera.unproject(np.stack([x.ravel(), y.ravel()], axis=1))
    rays = np.column_stack([rays, np.ones(len(rays))]) @ R
    image, nearest = np.zeros((len(rays), 3)), np.full(len(rays), np.inf)
    for k, (texture, depth) in enumerate(zip(textures, depths, strict=True)):
        s = (depth - centre[2]) / rays[:, 2]
        at = centre + s[:, None] * rays
        band = np.floor((at[:, 0] / depth + 2.0) * 5.0).astype(int) % len(depths)
        hit = (band == k) & (s > 0) & (s < nearest)
        image[hit] = _look_up(texture, 400 * at[hit, 0] / depth, 400 * at[hit, 1] / depth)
        nearest[hit] = s[hit]
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


def photographs_of_a_scene(count, size, focal, seed=0):
    """Views of one scene, as (H, W, 3) arrays, by cameras on an arc that look at its middle."""
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
        yield _view(textures, depths, camera, R, middle - R.T @ middle, size)

"""Rendered places: cameras, depths and surfaces agree, equal sides look alike, same bits again."""

import json

import numpy as np
import pytest
from PIL import Image

from manymatch.io.image import load_image
from tools.street import render_place
from tools.street.__main__ import main
from tools.street.places import KINDS
from tools.street.shapes import BOX, Rays, Solids, cast

# A courtyard takes seconds to build, and the renderer changes seldom.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module", params=KINDS)
def place(request):
    return render_place(request.param, 0, (96, 72), count=12, supersample=1)


def grid(place, i):
    return np.argwhere(place.counts[i])[:, ::-1].astype(float)


def flat(surface):
    """Pixels whose neighbours are of the same shape."""
    inside = np.zeros(surface.shape, bool)
    middle = surface[1:-1, 1:-1]
    inside[1:-1, 1:-1] = (
        (middle == surface[:-2, 1:-1])
        & (middle == surface[2:, 1:-1])
        & (middle == surface[1:-1, :-2])
        & (middle == surface[1:-1, 2:])
    )
    return inside


def test_warped_pixels_show_the_same_surface(place):
    checked = equal = 0
    for i in range(11):
        pixels = grid(place, i)
        seen = place.seen(i, i + 1, pixels)
        there = np.rint(place.warp(i, i + 1, pixels)[0][seen]).astype(int)
        here = pixels[seen].astype(int)
        clear = flat(place.surfaces[i])[here[:, 1], here[:, 0]]
        clear &= flat(place.surfaces[i + 1])[there[:, 1], there[:, 0]]
        a = place.surfaces[i][here[:, 1], here[:, 0]][clear]
        b = place.surfaces[i + 1][there[:, 1], there[:, 0]][clear]
        checked, equal = checked + len(a), equal + int((a == b).sum())
    assert checked > 1000
    assert equal > 0.97 * checked


def test_warped_pixels_have_the_same_colour(place):
    first, same, moved = [], [], []
    for i in range(11):
        pixels = grid(place, i)
        seen = place.seen(i, i + 1, pixels)
        there = np.rint(place.warp(i, i + 1, pixels)[0][seen]).astype(int)
        here = pixels[seen].astype(int)
        other = place.images[i + 1].mean(axis=2)
        first.append(place.images[i].mean(axis=2)[here[:, 1], here[:, 0]])
        same.append(other[there[:, 1], there[:, 0]])
        moved.append(other[there[:, 1], (there[:, 0] + 17) % 96])
    first, same, moved = (np.concatenate(values) for values in (first, same, moved))
    agreement = np.corrcoef(first, same)[0, 1]
    assert agreement > 0.4
    assert agreement > np.corrcoef(first, moved)[0, 1] + 0.15


def test_overlap_is_whole_with_itself_and_fades(place):
    share = place.overlap()
    np.testing.assert_allclose(np.diag(share), 1.0)
    assert ((share >= 0) & (share <= 1)).all()
    # Something of A in B means something of B in A, but for a few pixels at edges.
    assert (share.T[share > 0.1] > 0).all()
    neighbours = np.diag(share, 1)
    assert neighbours.mean() > 0.15
    assert share[0, 6] < 0.05


def test_opposite_sides_look_alike_without_overlap():
    place = render_place("kiosk", 1, (48, 36), count=8, variety=0.0, supersample=2)
    share = place.overlap()
    grey = [image.mean(axis=2)[8:30].ravel() for image in place.images]
    alike = np.corrcoef(grey)
    opposite, turned = (np.array([alike[i, i - k] for i in range(8)]) for k in (4, 3))
    assert max(share[i, i - 4] for i in range(8)) < 0.02
    assert opposite.mean() > turned.mean() + 0.1


def test_wall_beside_the_camera_is_cut_at_the_camera():
    wall = Solids(
        np.array([BOX], np.int32), np.array([[2.0, 0.0, 0.0]]), np.array([[1.0, 3.01, 50.5]]),
        np.eye(3)[None], np.zeros(1, np.int32), np.zeros((1, 3), np.float32),
        np.zeros((1, 4), np.float32), np.zeros(1, bool),
    )  # fmt: skip
    focal, width, height = 20.0, 41, 31
    corner = [-(width - 1) / 2 / focal, -(height - 1) / 2 / focal, 1.0]
    steps = [[1 / focal, 0, 0], [0, 1 / focal, 0]]
    rays = Rays(np.zeros((3, 3)), np.array([corner, *steps]), width, height)
    t, hit = cast(rays, wall, None)
    x = np.broadcast_to((np.arange(width) - 20) / focal, (height, width))
    y = np.broadcast_to((np.arange(height) - 15)[:, None] / focal, (height, width))
    with np.errstate(divide="ignore"):
        expected = np.where(x > 0, 1 / x, np.inf)
    with np.errstate(invalid="ignore"):
        expected = np.where((np.abs(y) * expected <= 3.01) & (expected <= 50.5), expected, np.inf)
    np.testing.assert_allclose(t, expected, rtol=1e-5)
    np.testing.assert_array_equal(hit == 0, np.isfinite(expected))


def test_folder_holds_cameras_and_overlap_and_the_same_bits_again(tmp_path):
    arguments = ["--images", "3", "--seed", "5", "--size", "40", "30", "--variety", "0.5"]
    main(["place", "cup", "--out", str(tmp_path), *arguments])
    place = render_place("cup", 5, (40, 30), count=3, variety=0.5)
    cameras = json.loads((tmp_path / "cameras.json").read_text())
    overlap = json.loads((tmp_path / "overlap.json").read_text())
    assert list(cameras) == list(overlap) == ["000.png", "001.png", "002.png"]
    shares = np.array([[row[name] for name in cameras] for row in overlap.values()])
    np.testing.assert_allclose(shares, place.overlap(), atol=1e-4)
    pixels = grid(place, 0)
    there, depth = place.warp(0, 1, pixels)
    first, second = (
        {key: np.array(camera[key]) for key in ("K", "R", "t", "size")}
        for camera in list(cameras.values())[:2]
    )
    assert first["size"].tolist() == [40, 30]
    z = place.depths[0][pixels[:, 1].astype(int), pixels[:, 0].astype(int)]
    own = np.linalg.solve(first["K"], np.c_[pixels, np.ones(len(pixels))].T) * z
    world = first["R"].T @ (own - first["t"][:, None])
    moved = second["R"] @ world + second["t"][:, None]
    np.testing.assert_allclose(moved[2], depth, rtol=1e-9)
    projected = second["K"] @ moved
    np.testing.assert_allclose((projected[:2] / projected[2]).T, there, atol=1e-6)
    for name, image, depth in zip(cameras, place.images, place.depths, strict=True):
        np.testing.assert_array_equal(load_image(tmp_path / "images" / name), image)
        written = np.asarray(Image.open(tmp_path / "depth" / name)) / 1000.0
        np.testing.assert_allclose(written, np.where(np.isfinite(depth), depth, 0.0), atol=6e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "castle"}, "kind must be"),
        ({"count": 1}, "count must be an integer in"),
        ({"variety": 2.0}, "variety must be a number in"),
        ({"seed": -1}, "seed must be an integer"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        render_place(**arguments)

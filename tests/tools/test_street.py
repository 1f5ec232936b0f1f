"""Rendered photographs: same arguments same bits, and pictures, depths and pose agree."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from manymatch.io.image import exif_focal, load_image
from manymatch.io.pairs import demo_pair, read_pairs
from manymatch_lab import datasets
from tools.street import RenderedScene, render_scene, render_walk
from tools.street.__main__ import DEMO_SEEDS, WALK_COUNT, WALK_SEED, main
from tools.street.photograph import blurred
from tools.street.shapes import BALL, BOX, CYLINDER, NOTHING, Leaves, Rays, Solids, cast

# A scene takes seconds to build, and the renderer changes seldom.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def scene():
    return render_scene(3, (161, 120))


def lift(depth, camera):
    """World points (H, W, 3) in the camera's frame."""
    height, width = depth.shape
    rows, columns = np.mgrid[:height, :width].astype(float)
    focal_x, focal_y, cx, cy = camera.params
    return (
        np.dstack([(columns - cx) / focal_x, (rows - cy) / focal_y, np.ones_like(rows)])
        * np.where(np.isfinite(depth), depth, np.nan)[:, :, None]
    )


def transfer(scene):
    """Where pixels of image 0 are seen in image 1 (H, W, 2), and their depth there."""
    moved = lift(scene.depth0, scene.camera0) @ scene.pose.R.T + scene.baseline * scene.pose.t
    focal_x, focal_y, cx, cy = scene.camera1.params
    pixels = moved[..., :2] / moved[..., 2:] * [focal_x, focal_y] + [cx, cy]
    return pixels, moved[..., 2]


def seen_in_both(scene):
    """Pixels (N, 2) of both images that show the same point, by depth."""
    pixels, depth = transfer(scene)
    width, height = scene.size
    inside = np.all((pixels >= 0) & (pixels <= [width - 1, height - 1]), axis=2)
    at = np.rint(np.where(inside[..., None], pixels, 0)).astype(int)
    there = scene.depth1[at[..., 1], at[..., 0]]
    same = inside & (np.abs(there - depth) < 0.02 * depth)
    return np.argwhere(same)[:, ::-1], pixels[same]


def test_depth_comes_back_through_the_other_view(scene):
    """Image 0 to image 1 by depth 0, and back from there by depth 1: the same pixel."""
    assert (scene.camera0.width, scene.camera0.height) == scene.size == (161, 120)
    for image, depth in ((scene.image0, scene.depth0), (scene.image1, scene.depth1)):
        assert (image.shape, image.dtype) == ((120, 161, 3), np.uint8)
        assert (depth.shape, depth.dtype) == ((120, 161), np.float32)
        assert (depth > 0.3).all()
    pixels0, pixels1 = seen_in_both(scene)
    assert len(pixels0) > 0.3 * scene.depth0.size
    back = RenderedScene(
        scene.image1, scene.image0, scene.camera1, scene.camera0, scene.pose.inverse(),
        scene.baseline, scene.depth1, scene.depth0, scene.seed,
    )  # fmt: skip
    returned, _ = transfer(back)
    at = np.rint(pixels1).astype(int)
    # Rounding to a pixel moves the start by up to half of one in either direction.
    off = np.linalg.norm(returned[at[:, 1], at[:, 0]] - pixels0, axis=1)
    assert np.median(off) < 0.6
    assert np.percentile(off, 95) < 1.2


def test_depth_is_exact_on_planes(scene):
    """Between pixels of a plane the depth is known, which makes the transfer much finer."""
    pixels, depth = transfer(scene)
    errors = []
    for row, column in np.ndindex(20, 28):
        row, column = 10 + 5 * row, 10 + 5 * column  # noqa: PLW2901
        x, y = pixels[row, column]
        if not (1 < x < 158 and 1 < y < 117):
            continue
        left, top = int(x), int(y)
        inverse = 1 / scene.depth1[top : top + 2, left : left + 2].astype(float)
        if np.ptp(np.diff(inverse, n=1, axis=0)) > 1e-5:
            continue
        a, b = x - left, y - top
        between = 1 / (np.outer([1 - b, b], [1 - a, a]) * inverse).sum()
        # A larger difference is something else that stands in front.
        if abs(between / depth[row, column] - 1) < 0.01:
            errors.append(abs(between / depth[row, column] - 1))
    assert len(errors) > 30
    # A recess of a few centimetres is within the one percent, but not the rule.
    assert np.median(errors) < 2e-5


def test_colours_agree_where_the_same_point_is_seen(scene):
    pixels0, pixels1 = seen_in_both(scene)
    at = np.rint(pixels1).astype(int)
    grey0 = scene.image0.mean(axis=2)[pixels0[:, 1], pixels0[:, 0]]
    grey1 = scene.image1.mean(axis=2)
    matched = np.corrcoef(grey0, grey1[at[:, 1], at[:, 0]])[0, 1]
    moved = np.corrcoef(grey0, grey1[at[:, 1], (at[:, 0] + 40) % 161])[0, 1]
    assert matched > 0.3
    assert matched > moved + 0.2


def test_supersampling_smooths_and_leaves_the_geometry():
    rough, fine = (render_scene(0, (32, 24), supersample=n) for n in (1, 3))
    np.testing.assert_array_equal(rough.depth0, fine.depth0)
    steps = [np.abs(np.diff(s.image0.astype(float), axis=1)).mean() for s in (rough, fine)]
    assert steps[1] < steps[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"size": (64,)}, "size must be a pair"),
        ({"size": (64, 4)}, "size must be an integer in"),
        ({"size": (64, 48.0)}, "size must be an integer in"),
        ({"size": 64}, "size must be a pair"),
        ({"supersample": 0}, "supersample must be an integer in"),
        ({"variety": 1.5}, "variety must be a number in"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        render_scene(**arguments)


def test_a_folder_data_set_and_the_same_bits_again(tmp_path):
    main(["--out", str(tmp_path), "--pairs", "2", "--size", "32", "24"])
    assert datasets.check("folder", tmp_path) is None
    dataset = datasets.load("folder", tmp_path)
    assert len(dataset) == 2
    pair, scene = dataset[1], render_scene(1, (32, 24))
    np.testing.assert_array_equal(load_image(pair.path0), scene.image0)
    np.testing.assert_array_equal(load_image(pair.path1), scene.image1)
    np.testing.assert_allclose(pair.R, scene.pose.R, atol=1e-12)
    np.testing.assert_allclose(pair.t, scene.baseline * scene.pose.t, rtol=1e-12)
    assert pair.camera0.params == scene.camera0.params
    known = scene.depth1 < 65.5
    depth = dataset.depth(pair, 1).depth
    np.testing.assert_allclose(depth[known], scene.depth1[known], atol=6e-4)
    assert np.isnan(depth[~known]).all()


def test_nothing_to_do_is_an_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "--out FOLDER, --demo or --examples" in capsys.readouterr().err


@pytest.mark.parametrize("preset", DEMO_SEEDS)
def test_the_shipped_photographs_are_those_of_the_renderer(preset):
    """A smaller rendering has the same pose, and nearly the same picture at its size."""
    pair = demo_pair(preset)
    scene = render_scene(DEMO_SEEDS[preset], (160, 120))
    np.testing.assert_allclose(pair.R, scene.pose.R, atol=1e-12)
    np.testing.assert_allclose(pair.t, scene.baseline * scene.pose.t, rtol=1e-12)
    same_picture(pair.path0, scene.image0)
    same_picture(pair.path1, scene.image1)
    size = pair.path0.stat().st_size + pair.path1.stat().st_size
    assert size < 400_000


def test_the_photographs_of_the_examples_are_those_of_the_renderer():
    folder = Path(__file__).parents[2] / "examples/photos"
    walk = render_walk(WALK_SEED, (160, 120), count=WALK_COUNT)
    for number, image in enumerate(walk.images):
        same_picture(folder / f"street{number}.jpg", image)
        focal = exif_focal(folder / f"street{number}.jpg")
        assert focal == pytest.approx(6 * walk.camera.focal)
    pairs = list(read_pairs(folder / "pairs.txt", folder))
    for pair, (i, j) in zip(pairs, itertools.combinations(range(4), 2), strict=True):
        assert (pair.name0, pair.name1) == (f"street{i}.jpg", f"street{j}.jpg")
        pose, baseline = walk.between(i, j)
        np.testing.assert_allclose(pair.R, pose.R, atol=1e-12)
        np.testing.assert_allclose(pair.t, baseline * pose.t, rtol=1e-12)


def same_picture(path, image):
    """Assert that a photograph is nearly a rendering of a sixth of its size."""
    pillow = pytest.importorskip("PIL.Image")
    with pillow.open(path) as photograph:
        assert photograph.size == (960, 720)
        small = np.asarray(photograph.resize((160, 120), pillow.Resampling.BOX), float)
    # Lens blur, grain and exposure depend on the size, so the two are not equal;
    # another scene of the same kind correlates by 0.6 at most.
    soft = [blurred(picture.astype(np.float32), 1.0) for picture in (image, small)]
    assert np.corrcoef(soft[0].ravel(), soft[1].ravel())[0, 1] > 0.97


def one(kind, centre, half, axes):
    return Solids(
        np.array([kind], np.int32), np.array([centre]), np.array([half]), axes[None],
        np.zeros(1, np.int32), np.zeros((1, 3), np.float32), np.zeros((1, 4), np.float32),
        np.zeros(1, bool),
    )  # fmt: skip


def camera_rays(width, height, focal):
    corner = [-(width - 1) / 2 / focal, -(height - 1) / 2 / focal, 1.0]
    step = 1 / focal
    return Rays(
        np.zeros((3, 3)), np.array([corner, [step, 0, 0], [0, step, 0]]), width, height
    )  # fmt: skip


@pytest.mark.parametrize("kind", [BOX, CYLINDER, BALL])
def test_against_marching_along_each_ray(kind):
    c, s = np.cos(0.5), np.sin(0.5)
    axes = np.array([[c, 0.0, s], [0, 1, 0], [-s, 0.0, c]]) if kind == BOX else np.eye(3)
    centre, half = np.array([0.3, -0.2, 6.0]), np.array([0.9, 0.7, 0.9])
    rays = camera_rays(31, 23, 40.0)
    t, hit = cast(rays, one(kind, tuple(centre), tuple(half), axes), None)
    steps = np.arange(4.0, 8.0, 0.002)
    for row, column in itertools.product(range(0, 23, 2), range(0, 31, 2)):
        d = rays.direction[0] + column * rays.direction[1] + row * rays.direction[2]
        local = (steps[:, None] * d - centre) @ axes.T / half
        inside = {
            BOX: np.abs(local).max(axis=1) <= 1,
            BALL: (local**2).sum(axis=1) <= 1,
            CYLINDER: ((local[:, [0, 2]] ** 2).sum(axis=1) <= 1) & (np.abs(local[:, 1]) <= 1),
        }[kind]
        if inside.sum() > 3:
            assert t[row, column] == pytest.approx(steps[np.argmax(inside)], abs=0.004)
            assert hit[row, column] == 0
        elif not inside.any() and hit[row, column] != NOTHING:
            # Marching can step over a corner, but not over more than that.
            assert np.abs(local).max(axis=1).min() < 1.02


def test_parallel_rays_and_what_lies_behind():
    rays = Rays(
        np.array([[-1.0, -1.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.1, 0.0]]),
        np.array([[0.0, 0.0, 1.0], [0.0] * 3, [0.0] * 3]), 21, 21,
    )  # fmt: skip
    t, hit = cast(rays, one(BOX, (0.0, 0.0, 5.0), (0.55, 0.35, 1.0), np.eye(3)), None)
    rows, columns = np.nonzero(hit == 0)
    assert (columns.min(), columns.max()) == (5, 15)
    assert (rows.min(), rows.max()) == (7, 13)
    np.testing.assert_allclose(t[hit == 0], 4.0, rtol=1e-6)
    behind = one(BOX, (0.0, 0.0, -5.0), (0.55, 0.35, 1.0), np.eye(3))
    assert (cast(camera_rays(9, 9, 9.0), behind, None)[1] == NOTHING).all()


def test_leaf_hides_what_is_behind_it_only():
    wall = one(BOX, (0.0, 0.0, 8.0), (5.0, 5.0, 0.5), np.eye(3))
    leaves = Leaves(
        np.array([[0.0, 0.0, 4.0], [1.0, 0.0, 9.0]]), np.array([[0.0, 0.0, -1.0]] * 2),
        np.array([[1.0, 0.0, 0.0]] * 2), np.array([0.4, 0.4]), np.ones((2, 3), np.float32),
    )  # fmt: skip
    t, hit = cast(camera_rays(41, 31, 40.0), wall, leaves)
    assert set(np.unique(hit)) == {0, 1}
    np.testing.assert_allclose(t[hit == 1], 4.0, rtol=1e-6)
    # An ellipse with half axes of 4 and 2.2 pixels.
    assert np.sum(hit == 1) == pytest.approx(np.pi * 4 * 2.2, abs=6)

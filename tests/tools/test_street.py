"""Rendered photographs: same arguments same bits, and pictures, depths and pose agree."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from manymatch.io.image import exif_focal, load_image
from manymatch.io.pairs import demo_pair, read_pairs
from manymatch_lab import datasets
from tools.street import RenderedScene, render_scene, render_walk
from tools.street.__main__ import DEMO_SEED, WALK_COUNT, WALK_SEED, main
from tools.street.noise import Noise, hashed
from tools.street.photograph import blurred
from tools.street.shapes import BALL, BOX, CYLINDER, NOTHING, Leaves, Rays, Solids, cast

if TYPE_CHECKING:
    from manymatch.geometry.camera import Camera


@pytest.fixture(scope="module")
def scene() -> RenderedScene:
    return render_scene(3, (161, 120))


def lift(depth: np.ndarray, camera: Camera) -> np.ndarray:
    """World points (H, W, 3) in the camera's frame."""
    height, width = depth.shape
    rows, columns = np.mgrid[:height, :width].astype(float)
    focal_x, focal_y, cx, cy = camera.params
    return (
        np.dstack([(columns - cx) / focal_x, (rows - cy) / focal_y, np.ones_like(rows)])
        * np.where(np.isfinite(depth), depth, np.nan)[:, :, None]
    )


def transfer(scene: RenderedScene) -> tuple[np.ndarray, np.ndarray]:
    """Where pixels of image 0 are seen in image 1 (H, W, 2), and their depth there."""
    moved = lift(scene.depth0, scene.camera0) @ scene.pose.R.T + scene.baseline * scene.pose.t
    focal_x, focal_y, cx, cy = scene.camera1.params
    pixels = moved[..., :2] / moved[..., 2:] * [focal_x, focal_y] + [cx, cy]
    return pixels, moved[..., 2]


def seen_in_both(scene: RenderedScene) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 2) of both images that show the same point, by depth."""
    pixels, depth = transfer(scene)
    width, height = scene.size
    inside = np.all((pixels >= 0) & (pixels <= [width - 1, height - 1]), axis=2)
    at = np.rint(np.where(inside[..., None], pixels, 0)).astype(int)
    there = scene.depth1[at[..., 1], at[..., 0]]
    same = inside & (np.abs(there - depth) < 0.02 * depth)
    return np.argwhere(same)[:, ::-1], pixels[same]


class TestRenderScene:
    def test_same_arguments_give_the_same_bits(self, scene: RenderedScene) -> None:
        again = render_scene(3, (161, 120))
        for name in ("image0", "image1", "depth0", "depth1"):
            np.testing.assert_array_equal(getattr(again, name), getattr(scene, name))
        assert again.pose == scene.pose
        assert again.baseline == scene.baseline

    def test_shapes_and_types(self, scene: RenderedScene) -> None:
        assert scene.size == (161, 120)
        for image in (scene.image0, scene.image1):
            assert image.shape == (120, 161, 3)
            assert image.dtype == np.uint8
        for depth in (scene.depth0, scene.depth1):
            assert depth.shape == (120, 161)
            assert depth.dtype == np.float32
            assert (depth > 0.3).all()
        assert (scene.camera0.width, scene.camera0.height) == (161, 120)

    def test_depth_comes_back_through_the_other_view(self, scene: RenderedScene) -> None:
        """Image 0 to image 1 by depth 0, and back from there by depth 1: the same pixel."""
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

    def test_depth_is_exact_on_the_front(self) -> None:
        """Between pixels of a plane depth is known, and then the transfer is much finer."""
        scene = render_scene(3, (161, 120))
        pixels, depth = transfer(scene)
        rows, columns = np.mgrid[10:110:5, 10:150:5]
        errors = []
        for row, column in zip(rows.ravel(), columns.ravel(), strict=True):
            x, y = pixels[row, column]
            if not (1 < x < 158 and 1 < y < 117):
                continue
            left, top = int(x), int(y)
            inverse = 1 / scene.depth1[top : top + 2, left : left + 2].astype(float)
            if np.ptp(np.diff(inverse, n=1, axis=0)) > 1e-5:
                continue
            a, b = x - left, y - top
            weights = np.outer([1 - b, b], [1 - a, a])
            between = 1 / (weights * inverse).sum()
            # What is further off is something else that stands in front.
            if abs(between / depth[row, column] - 1) < 0.01:
                errors.append(abs(between / depth[row, column] - 1))
        assert len(errors) > 30
        # A recess of a few centimetres is within the one percent, but not the rule.
        assert np.median(errors) < 2e-5

    def test_colours_agree_where_the_same_point_is_seen(self, scene: RenderedScene) -> None:
        pixels0, pixels1 = seen_in_both(scene)
        at = np.rint(pixels1).astype(int)
        grey0 = scene.image0.mean(axis=2)[pixels0[:, 1], pixels0[:, 0]]
        grey1 = scene.image1.mean(axis=2)
        matched = np.corrcoef(grey0, grey1[at[:, 1], at[:, 0]])[0, 1]
        moved = np.corrcoef(grey0, grey1[at[:, 1], (at[:, 0] + 40) % 161])[0, 1]
        assert matched > 0.3
        assert matched > moved + 0.2

    def test_supersampling_smooths_and_leaves_the_geometry(self) -> None:
        rough, fine = (render_scene(0, (64, 48), supersample=n) for n in (1, 3))
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
    def test_bad_arguments(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            render_scene(**arguments)  # type: ignore[arg-type]


class TestCommand:
    def test_a_folder_data_set(self, tmp_path: Path) -> None:
        size = (64, 48)
        main(["--out", str(tmp_path), "--pairs", "2", "--size", "64", "48"])
        assert datasets.check("folder", tmp_path) is None
        dataset = datasets.load("folder", tmp_path)
        assert len(dataset) == 2
        for seed, pair in enumerate(dataset):
            scene = render_scene(seed, size)
            np.testing.assert_array_equal(load_image(pair.path0), scene.image0)
            np.testing.assert_array_equal(load_image(pair.path1), scene.image1)
            np.testing.assert_allclose(pair.R, scene.pose.R, atol=1e-12)
            np.testing.assert_allclose(pair.t, scene.baseline * scene.pose.t, rtol=1e-12)
            assert pair.camera0.params == scene.camera0.params
            known = scene.depth1 < 65.5
            depth = dataset.depth(pair, 1).depth
            np.testing.assert_allclose(depth[known], scene.depth1[known], atol=6e-4)
            assert np.isnan(depth[~known]).all()

    def test_nothing_to_do_is_an_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main([])
        assert stop.value.code == 2
        assert "--out FOLDER, --demo or --examples" in capsys.readouterr().err

    def test_the_shipped_photographs_are_those_of_the_renderer(self) -> None:
        """A smaller rendering has the same pose, and nearly the same picture at its size."""
        pair = demo_pair()
        scene = render_scene(DEMO_SEED, (160, 120))
        np.testing.assert_allclose(pair.R, scene.pose.R, atol=1e-12)
        np.testing.assert_allclose(pair.t, scene.baseline * scene.pose.t, rtol=1e-12)
        same_picture(pair.path0, scene.image0)
        same_picture(pair.path1, scene.image1)
        size = pair.path0.stat().st_size + pair.path1.stat().st_size
        assert size < 400_000

    def test_the_photographs_of_the_examples_are_those_of_the_renderer(self) -> None:
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


def same_picture(path: Path, image: np.ndarray) -> None:
    """Assert that a photograph is nearly a rendering of a sixth of its size."""
    pillow = pytest.importorskip("PIL.Image")
    with pillow.open(path) as photograph:
        assert photograph.size == (960, 720)
        small = np.asarray(photograph.resize((160, 120), pillow.Resampling.BOX), float)
    # Lens blur, grain and exposure depend on the size, so the two are not equal;
    # another scene of the same kind correlates by 0.6 at most.
    soft = [blurred(picture.astype(np.float32), 1.0) for picture in (image, small)]
    assert np.corrcoef(soft[0].ravel(), soft[1].ravel())[0, 1] > 0.97


def one(kind: int, centre: tuple[float, ...], half: tuple[float, ...], axes: np.ndarray) -> Solids:
    return Solids(
        np.array([kind], np.int32), np.array([centre]), np.array([half]), axes[None],
        np.zeros(1, np.int32), np.zeros((1, 3), np.float32), np.zeros((1, 4), np.float32),
        np.zeros(1, bool),
    )  # fmt: skip


def camera_rays(width: int, height: int, focal: float) -> Rays:
    corner = [-(width - 1) / 2 / focal, -(height - 1) / 2 / focal, 1.0]
    step = 1 / focal
    return Rays(
        np.zeros((3, 3)), np.array([corner, [step, 0, 0], [0, step, 0]]), width, height
    )  # fmt: skip


class TestCast:
    @pytest.mark.parametrize("kind", [BOX, CYLINDER, BALL])
    def test_against_marching_along_each_ray(self, kind: int) -> None:
        turn = 0.5
        axes = np.eye(3)
        if kind == BOX:
            axes = np.array(
                [[np.cos(turn), 0.0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0.0, np.cos(turn)]]
            )
        centre, half = np.array([0.3, -0.2, 6.0]), np.array([0.9, 0.7, 0.9])
        rays = camera_rays(31, 23, 40.0)
        t, hit = cast(rays, one(kind, tuple(centre), tuple(half), axes), None)
        steps = np.arange(4.0, 8.0, 0.002)
        for row in range(0, 23, 2):
            for column in range(0, 31, 2):
                d = rays.direction[0] + column * rays.direction[1] + row * rays.direction[2]
                local = (steps[:, None] * d - centre) @ axes.T / half
                if kind == BOX:
                    inside = np.abs(local).max(axis=1) <= 1
                elif kind == BALL:
                    inside = (local**2).sum(axis=1) <= 1
                else:
                    inside = (local[:, [0, 2]] ** 2).sum(axis=1) <= 1
                    inside &= np.abs(local[:, 1]) <= 1
                if inside.sum() > 3:
                    assert t[row, column] == pytest.approx(steps[np.argmax(inside)], abs=0.004)
                    assert hit[row, column] == 0
                elif not inside.any() and hit[row, column] != NOTHING:
                    # Marching can step over a corner, but not over more than that.
                    assert np.abs(local).max(axis=1).min() < 1.02

    def test_parallel_rays_and_what_lies_behind(self) -> None:
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

    def test_leaf_hides_what_is_behind_it_only(self) -> None:
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


class TestPicture:
    def test_noise_is_standard_and_repeats_with_its_period(self) -> None:
        noise = Noise(np.random.default_rng(0), side=128, cells=(4, 16, 64))
        u, v = np.random.default_rng(1).uniform(-9, 9, (2, 5000)).astype(np.float32)
        value = noise(u, v, 3.0, 0.0)
        assert abs(value.mean()) < 0.1
        assert value.std() == pytest.approx(1.0, abs=0.1)
        assert np.mean(noise(u + 3, v - 6, 3.0, 0.0) == value) > 0.99
        assert noise(u, v, 3.0, 1.0).std() < 0.9 * value.std()

    def test_hash_is_uniform_and_depends_on_every_key(self) -> None:
        rows, columns = np.mgrid[-60:60, -60:60]
        value = hashed(rows, columns)
        assert value.min() >= 0
        assert value.max() < 1
        counts = np.histogram(value, 10, (0, 1))[0]
        assert counts.min() > 0.8 * value.size / 10
        assert len(np.unique(value)) > 0.99 * value.size

    @pytest.mark.parametrize("sigma", [0.0, 0.6, 2.0, 6.0])
    def test_blur_keeps_the_mean_and_flat_pictures(self, sigma: float) -> None:
        flat = np.full((40, 50, 3), 0.7, np.float32)
        np.testing.assert_allclose(blurred(flat, sigma), flat, rtol=1e-5)
        spot = np.zeros((61, 61, 3), np.float32)
        spot[30, 30] = 1.0
        assert blurred(spot, sigma).sum() == pytest.approx(3.0, rel=1e-2)

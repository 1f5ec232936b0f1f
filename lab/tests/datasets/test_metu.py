import numpy as np
import pytest

from manymatch_lab import datasets
from manymatch_lab.datasets.metu import opencv_camera
from tests.support.synthetic_trees import make_metu

cv2 = pytest.importorskip("cv2")

K = np.array([[900.0, 0, 480], [0, 905, 360], [0, 0, 1]])


@pytest.mark.parametrize("coefficients", [4, 5, 8])
def test_scenes_in_the_order_of_their_numbers(tmp_path, coefficients):
    truths = make_metu(tmp_path, coefficients)
    dataset = datasets.load("metu-cc", tmp_path)
    assert [pair.scene for pair in dataset] == ["scene_2"] * 2 + ["scene_10"] * 2
    assert [pair.extra["seed_index"] for pair in dataset] == [1, 2, 3, 4]
    assert dataset.longest0 is None
    assert dataset.longest1 == 0
    # Visible image of the first index, thermal image of the second.
    pair = dataset[1]
    assert pair.name0 == "cloudy/scene_2/visible/images/IM_00002.jpg"
    assert pair.name1 == "cloudy/scene_2/thermal/images/IM_00000.jpg"
    assert pair.path1.is_file()
    poses, k = truths[2]
    world = np.array([0.4, -0.1, 3.0, 1.0])
    x0, x1 = (poses[2] @ world)[:3], (poses[0] @ world)[:3]
    np.testing.assert_allclose(pair.R @ x0 + pair.t, x1, atol=1e-9)
    for camera, kind, image in ((pair.camera0, 0, 2), (pair.camera1, 1, 0)):
        assert camera.model == "OPENCV"
        assert camera.distortion == tuple(k[image, kind, :4])
    assert pair.camera1.fx == 600.0
    assert len(dataset.notes) == 1


def test_each_weather_is_a_set_of_its_own(tmp_path):
    make_metu(tmp_path, weather="cloudy_sunny")
    assert (
        "cloudy_cloudy_scene_*.npz) in it or in a folder METU_VisTIR or METU of it"
        in datasets.check("metu-cc", tmp_path)
    )
    assert len(datasets.load("metu-cs", tmp_path)) == 4
    assert datasets.load("metu-cs", tmp_path).title == "METU-CS"
    assert "4 pairs instead of 1,208" in datasets.check("metu-cs", tmp_path)


@pytest.mark.parametrize(
    ("k", "model"),
    [
        ([0.0, 0, 0, 0], "PINHOLE"),
        ([0.1, -0.05, 0.002, -0.001], "OPENCV"),
        ([-0.25, 0.1, 0.0, 0.0, 0.0], "OPENCV"),
        ([-0.3, 0.12, 0.001, -0.001, -0.03], "FULL_OPENCV"),
        ([0.0, 0.0, 0.0, 0.0, 0.05], "FULL_OPENCV"),
        ([0.1, -0.02, 0.001, 0.0, 0.01, 0.05, -0.01, 0.002], "FULL_OPENCV"),
    ],
)
def test_cameras_against_opencv(k, model):
    camera = opencv_camera(K, k)
    assert camera.model == model
    pixels = np.random.default_rng(0).uniform((0, 0), (960, 720), (200, 2))
    rays = np.column_stack([camera.unproject(pixels), np.ones(200)])
    again = cv2.projectPoints(rays, np.zeros(3), np.zeros(3), K, np.array(k, dtype=float))[0]
    np.testing.assert_allclose(again[:, 0], pixels, atol=1e-6)


def test_distortion_beyond_four_coefficients_is_kept(tmp_path):
    make_metu(tmp_path)
    k = np.random.default_rng(1).normal(size=(3, 2, 8)) * 0.01
    change(tmp_path, distortion_coefs=k)
    pair = datasets.load("metu-cc", tmp_path)[2]
    assert pair.scene == "scene_10"
    assert pair.camera0.model == pair.camera1.model == "FULL_OPENCV"
    assert pair.camera0.distortion == tuple(k[0, 0])
    assert pair.camera1.distortion == tuple(k[1, 1])


def change(root, **arrays):
    path = root / "index" / "scene_info_test" / "cloudy_cloudy_scene_10.npz"
    with np.load(path, allow_pickle=True) as file:
        content = dict(file)
    np.savez(path, **{**content, **arrays})


def lacking(root):
    path = root / "index" / "scene_info_test" / "cloudy_cloudy_scene_10.npz"
    np.savez(path, poses=np.eye(4))


SAME = np.stack([np.eye(4)] * 3)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lacking, "lacks the array 'image_paths'"),
        (lambda root: change(root, image_paths=np.array(None, dtype=object)), "unsized"),
        (lambda root: change(root, poses=np.full((3, 4, 4), np.nan)), "pair 1: a pose must hold"),
        (lambda root: change(root, poses=np.stack([np.eye(4)[::-1]] * 3)), "pair 1: a pose must"),
        (lambda root: change(root, poses=SAME), "pair 1: t must be"),
        (lambda root: change(root, pair_infos=np.array([[0, 7]])), "an index must be an integer"),
        (lambda root: change(root, pair_infos=np.array([[0, 1, 2]])), "pair 1: "),
        (lambda root: change(root, distortion_coefs=np.zeros((3, 2, 6))), "4, 5 or 8"),
        (lambda root: change(root, distortion_coefs=np.full((3, 2, 4), np.inf)), "finite"),
        (lambda root: change(root, intrinsics=np.zeros((3, 2, 3, 3))), "positive focal"),
        (
            lambda root: (root / "cloudy/scene_10/thermal/images/IM_00001.jpg").unlink(),
            "thermal/images/IM_00001.jpg is missing",
        ),
    ],
)
def test_the_first_fault_is_named(tmp_path, damage, says):
    make_metu(tmp_path)
    damage(tmp_path)
    said = datasets.check("metu-cc", tmp_path)
    assert says in said
    assert "\n" not in said

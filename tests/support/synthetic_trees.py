"""Miniature data sets with the real layout, for tests of the loaders."""

import json
import pickle
import pickletools
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

WIDTH, HEIGHT = 64, 48


def write_image(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size[1], size[0], 3), 90, dtype=np.uint8)).save(path)


def rotation(rng: np.random.Generator) -> np.ndarray:
    """Any rotation, by the QR decomposition of a random matrix."""
    R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return R * np.sign(np.linalg.det(R))


def transform(rng: np.random.Generator) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = rotation(rng)
    T[:3, 3] = rng.normal(size=3)
    return T


def words(*arrays: np.ndarray) -> str:
    return " ".join(repr(float(x)) for array in arrays for x in np.ravel(array))


# --- ScanNet ---------------------------------------------------------------------------------

SCANNET_K = np.array([[1165.72, 0, 649.095], [0, 1165.74, 484.765], [0, 0, 1.0]])


PUBLISHED_NAME = "scans_test/{scene}/sens/frame-{frame:06d}.color.jpg"


def make_scannet_list(root: Path, count: int, name: str = PUBLISHED_NAME) -> list:
    """SuperGlue's list over two scenes of three frames; returns T_0to1 of every line."""
    rng = np.random.default_rng(0)
    lines, truths = [], []
    for i in range(count):
        scene = f"scene{707 + i % 2:04d}_00"
        names = [name.format(scene=scene, frame=15 * f) for f in (i % 3 + 1, (i + 1) % 3 + 1)]
        T = transform(rng)
        truths.append(T)
        lines.append(f"{names[0]} {names[1]} 0 0 {words(SCANNET_K, SCANNET_K, T)}")
    root.mkdir(parents=True, exist_ok=True)
    (root / "scannet_test_pairs_with_gt.txt").write_text("\n".join(lines) + "\n")
    return truths


def make_scannet_images(
    root: Path, size: tuple[int, int] = (1296, 968), name: str = "{scene}/color/{frame}.jpg"
) -> None:
    for scene in ("scene0707_00", "scene0708_00"):
        for frame in (15, 30, 45):
            write_image(root / name.format(scene=scene, frame=frame), size)


def make_scannet_loftr(root: Path) -> list[np.ndarray]:
    """LoFTR's index, types as published; returns T_0to1 of every pair."""
    rng = np.random.default_rng(1)
    names = np.array([[707, 0, 15, 30], [707, 0, 30, 45], [708, 0, 45, 15]], dtype=np.uint16)
    truths = [transform(rng) for _ in names]
    poses = np.array([T[:3].ravel() for T in truths], dtype=np.float32)
    root.mkdir(parents=True, exist_ok=True)
    np.savez(root / "test.npz", name=names, rel_pose=poses)
    # The colour camera's, for frames of 640 x 480.
    K = np.diag([640 / 1296, 480 / 968, 1.0]) @ SCANNET_K
    np.savez(root / "intrinsics.npz", scene0707_00=K, scene0708_00=K)
    return truths


# --- MegaDepth -------------------------------------------------------------------------------

MEGADEPTH_FILES = ("0015_0.1_0.3", "0015_0.3_0.5", "0022_0.1_0.3", "0022_0.3_0.5", "0022_0.5_0.7")


def objects(values: list) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def make_megadepth(root: Path, pairs_per_file: int = 2) -> dict[str, list[np.ndarray]]:
    """LoFTR's five files, pickles as published; returns the world-to-camera poses by file."""
    rng = np.random.default_rng(2)
    truths = {}
    folder = root / "megadepth_test_1500_scene_info"
    folder.mkdir(parents=True, exist_ok=True)
    for file in MEGADEPTH_FILES:
        scene = file[:4]
        names = [f"Undistorted_SfM/{scene}/images/{k}_o.jpg" for k in range(3)]
        poses = [transform(rng) for _ in names]
        Ks = [np.array([[500.0 + k, 0, 320], [0, 501.0 + k, 240], [0, 0, 1]]) for k in range(3)]
        # Files hold all images of the scene, some without pose.
        info = {
            "image_paths": objects([*names, None]),
            "depth_paths": objects([None] * 4),
            "intrinsics": objects([*Ks, None]),
            "poses": objects([*poses, None]),
            "pair_infos": [
                (np.array([i % 2, 2]), np.float64(0.25), np.array([0.0, 1.0, 2.0, 3.0]))
                for i in range(pairs_per_file)
            ],
        }
        (folder / f"{file}.npz").write_bytes(published_pickle(info))
        truths[file] = poses
        for name in names:
            write_image(root / name)
    return truths


def published_pickle(value: object) -> bytes:
    """Pickle as LoFTR's files are: protocol 4, with the names of NumPy before version 2."""
    data = pickle.dumps(value, protocol=4)
    # Without its frames, whose lengths the other name would change; they may be left out.
    for at in reversed([at for op, _, at in pickletools.genops(data) if op.name == "FRAME"]):
        data = data[:at] + data[at + 9 :]
    new, old = b"numpy._core.multiarray", b"numpy.core.multiarray"
    return data.replace(bytes([len(new)]) + new, bytes([len(old)]) + old)


# --- METU-VisTIR -----------------------------------------------------------------------------


def make_metu(root: Path, coefficients: int = 5, weather: str = "cloudy_cloudy") -> dict:
    """Two scenes of three places; returns poses and distortion by scene."""
    rng = np.random.default_rng(3)
    truths = {}
    folder = root / "index" / "scene_info_test"
    folder.mkdir(parents=True, exist_ok=True)
    # Two digits, so that the order of names is not that of numbers.
    for number in (2, 10):
        paths = [
            [
                f"cloudy/scene_{number}/{kind}/images/IM_{k:05d}.jpg"
                for kind in ("visible", "thermal")
            ]
            for k in range(3)
        ]
        K = [np.array([[900.0, 0, 480], [0, 905, 360], [0, 0, 1]])]
        K.append(np.array([[600.0, 0, 320], [0, 600, 256], [0, 0, 1]]))
        k = np.zeros((3, 2, coefficients))
        k[:, :, :4] = rng.normal(size=(3, 2, 4)) * (0.05, 0.02, 0.001, 0.001)
        poses = np.stack([transform(rng) for _ in range(3)])
        np.savez(
            folder / f"{weather}_scene_{number}.npz",
            image_paths=np.array(paths, dtype=object),
            intrinsics=np.stack([np.stack(K)] * 3),
            distortion_coefs=k,
            poses=poses,
            pair_infos=np.array([[0, 1], [2, 0]]),
        )
        truths[number] = poses, k
        for pair in paths:
            write_image(root / pair[0], (96, 72))
            write_image(root / pair[1], (64, 51))
    return truths


# --- NAVI ------------------------------------------------------------------------------------

HEADER = (
    "image_1,image_2,angular_distance_degrees,image_1_height,image_1_width,"
    "image_2_height,image_2_width"
)
BINS = ("0-40", "40-80", "80-120")


def quaternion(R: np.ndarray) -> np.ndarray:
    """(w, x, y, z) of a rotation."""
    return np.roll(Rotation.from_matrix(R).as_quat(), 1)


def look(direction: np.ndarray, distance: float) -> np.ndarray:
    """World-to-camera map of a camera at ``distance * direction`` that looks at the origin."""
    z = -direction / np.linalg.norm(direction)
    x = np.cross([0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    R = np.stack([x, np.cross(z, x), z])
    T = np.eye(4)
    T[:3, :3] = R
    T[:3, 3] = -R @ (distance * direction / np.linalg.norm(direction))
    return T


def sphere_depth(T: np.ndarray, focal: float, radius: float) -> np.ndarray:
    """Depth (H, W) of a sphere at the origin in metres, NaN beside it; pixel centre by centre."""
    depth = np.full((HEIGHT, WIDTH), np.nan)
    centre = T[:3, 3]
    for y in range(HEIGHT):
        for x in range(WIDTH):
            ray = np.array([(x - (WIDTH - 1) / 2) / focal, (y - (HEIGHT - 1) / 2) / focal, 1.0])
            a, b, c = ray @ ray, ray @ centre, centre @ centre - radius**2
            if b * b >= a * c:
                depth[y, x] = (b - np.sqrt(b * b - a * c)) / a
    return depth


def annotation(k: int, q: np.ndarray, T: np.ndarray, model: str, size: list[int]) -> dict:
    """Record of image k in NAVI's annotations."""
    camera = {"q": q.tolist(), "t": (1000 * T[:3, 3]).tolist()}
    camera |= {"focal_length": 70.0, "camera_model": model}
    record = {"camera": camera, "filename": f"{k:03d}.jpg", "image_size": size}
    return {**record, "split": "train", "occluded": False}


def make_navi(root: Path, *, per_bin: int = 2, scene: str = "wild_set") -> dict[str, np.ndarray]:
    """One sphere seen from six sides, its lists in splits/navi; returns object-to-camera maps."""
    rng = np.random.default_rng(4)
    folder = root / "ball" / scene
    records, truths = [], {}
    for k in range(6):
        T = look(np.array([np.cos(0.5 * k), np.sin(0.5 * k), 0.3]), 0.8 + 0.05 * k)
        name = f"ball/{scene}/images/{k:03d}.jpg"
        truths[name] = T
        q = quaternion(T[:3, :3]) * rng.uniform(0.5, 2.0)
        records.append(
            annotation(k, q, T, "pixel_5", [HEIGHT, WIDTH])
            | {"object_id": "ball", "scene_name": scene}
        )
        write_image(root / name)
        depth = sphere_depth(T, 70.0, 0.2)
        raw = np.where(np.isfinite(depth), np.round(655.35 / np.nan_to_num(depth, nan=1.0)), 0)
        for kind, pixels in (
            ("depth", raw.astype(np.uint16)),
            ("masks", (raw > 0).astype(np.uint8) * 255),
        ):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / kind / f"{k:03d}.png")
    (folder / "annotations.json").write_text(json.dumps(records))
    for kind, prefix in (
        ("estimation", "wildset"),
        ("estimation", "multiview"),
        ("correspondence", "wildset"),
    ):
        lists = root / "splits" / "navi" / kind
        lists.mkdir(parents=True, exist_ok=True)
        for b, bin_name in enumerate(BINS):
            rows = [
                f"ball/{scene}/images/{i % 5:03d}.jpg,ball/{scene}/images/{i % 5 + 1:03d}.jpg,"
                f"{40 * b + 7.25},{HEIGHT},{WIDTH},{HEIGHT},{WIDTH}"
                for i in range(per_bin)
            ]
            (lists / f"pairs_{prefix}_{bin_name}.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return truths

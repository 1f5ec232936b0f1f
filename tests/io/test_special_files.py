"""What is no regular file, and what lies in another file, is refused at once."""

import os
import pickle
import socket
from pathlib import Path

import numpy as np
import pytest

from manymatch.features.extractor import Extractor
from manymatch.graph import AssociationGraph
from manymatch.io import (
    camera_of_image,
    exif_focal,
    load_graph,
    load_image,
    read_associations_csv,
    read_cameras,
    read_colmap_database,
    read_hloc,
    read_images,
    read_matches_npz,
    read_pose_json,
    read_superglue,
)
from manymatch.io.files import limit, name_end, read_bytes, read_npy
from manymatch.io.image import image_size
from manymatch.io.pairs import exhaustive_pairs, read_pairs
from manymatch.matcher.cameras import resolve_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch_lab import datasets
from manymatch_lab.datasets.registry import read_set_file
from manymatch_lab.evaluate.inputs import FileGraphs


def posed_graphs(path):
    path.rename(path.with_suffix(".npz"))
    return FileGraphs(path.parent, "any").identity


def tensors(path):
    pytest.importorskip("torch")
    from manymatch.features.tensors import load_state

    return load_state(path.rename(path.with_suffix(".pth")))


READERS = {
    "image": load_image,
    "graph": AssociationGraph.load,
    "any graph": load_graph,
    "CSV": read_associations_csv,
    "matches": read_matches_npz,
    "SuperGlue": read_superglue,
    "pose": read_pose_json,
    "hloc": lambda path: read_hloc(path, path, "a", "b"),
    "cameras": read_cameras,
    "database": lambda path: read_colmap_database(path, "a", "b"),
    "images": read_images,
    "list": lambda path: read_pairs(path, path.parent),
    "configuration": MatcherConfig.load,
    "settings of a set": read_set_file,
    "posed graphs": posed_graphs,
    "tensors": tensors,
    "camera": lambda path: resolve_camera(str(path), None, (64, 48), "camera0"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device"])
def test_what_may_never_end_is_refused(tmp_path, read, kind):
    """A FIFO without a writer blocks whoever opens it, and /dev/zero has no end."""
    pytest.importorskip("PIL")
    pytest.importorskip("h5py")
    path = tmp_path / "a.txt"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            before = Path.cwd()
            os.chdir(tmp_path)
            server.bind(path.name)
            os.chdir(before)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=rf"{kind}|no such file or folder|COLMAP model") as error:
        read(path)
    assert "\n" not in str(error.value)


# Everything that takes the name of a file or folder to read.
NAMED = {
    **{name: read for name, read in READERS.items() if name not in ("posed graphs", "tensors")},
    "EXIF": exif_focal,
    "size": image_size,
    "matcher": lambda path: Matcher("classic").match(path, path),
    "features": Extractor("classic").extract,
    "preset": lambda path: Matcher(path.with_suffix(".toml")),
    "camera of COLMAP": lambda path: resolve_camera(path.with_suffix(".bin"), None, (64, 48)),
    "COLMAP image": lambda path: camera_of_image(path, "a.jpg"),
    "folder": exhaustive_pairs,
    "images of a list": lambda path: read_pairs(Path(__file__), path),
    "data set": lambda path: datasets.load("folder", path),
    "weights": lambda path: Matcher("embedded", weights=str(path)).extractor.backbone,
    "detector's weights": lambda path: (
        Matcher("embedded", detector_weights=str(path)).extractor.detector
    ),
}


@pytest.mark.parametrize("read", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("name", ["missing.txt", "missing/a.txt"])
def test_a_missing_file_is_a_value_error_and_what_open_raises(tmp_path, read, name):
    for package in ("PIL", "h5py", "cv2", "torch"):
        pytest.importorskip(package)
    with pytest.raises(FileNotFoundError, match="missing") as error:
        read(tmp_path / name)
    assert isinstance(error.value, ValueError)
    assert "\n" not in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301


def test_a_folder_that_is_a_file_is_not_missing(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(ValueError, match="an existing folder") as error:
        exhaustive_pairs(tmp_path / "a")
    assert not isinstance(error.value, OSError)


def test_exif_of_a_fifo_is_unknown(tmp_path):
    pytest.importorskip("PIL")
    os.mkfifo(tmp_path / "a.jpg")
    assert exif_focal(tmp_path / "a.jpg") is None


def test_a_file_of_proc_is_empty():
    """Its size is 0 and it may have no end."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("there is no /proc")
    with pytest.raises(ValueError, match="it is empty"):
        read_bytes("/proc/self/maps", "a file")


def test_postscript_is_no_image(tmp_path):
    """Pillow would have another program run it."""
    Image = pytest.importorskip("PIL.Image")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", "EPS")
    with pytest.raises(ValueError, match="in no format that Pillow reads"):
        load_image(tmp_path / "a.jpg")


# ------------------------------------------------------------------------------------- hloc


def hloc_file(path, points=None):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name in ("a", "b"):
            file.create_group(name)
        file["b"]["keypoints"] = np.zeros((4, 2), np.float32)
        file.create_group("a/b")["matches0"] = np.zeros(4, np.int32)
        if points is not None:
            points(h5py, file)
    return path


def external_link(h5py, file):
    file["a"]["keypoints"] = h5py.ExternalLink("other.h5", "/b/keypoints")


def soft_link(h5py, file):
    file["a"]["keypoints"] = h5py.SoftLink("/b/keypoints")


def group_link(h5py, file):
    file.move("a", "old")
    file["a"] = h5py.ExternalLink("other.h5", "/b")


def external_storage(_, file):
    file["a"].create_dataset("keypoints", (4, 2), "f4", external=[("other.h5", 0, 32)])


def virtual(h5py, file):
    layout = h5py.VirtualLayout((4, 2), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "b/keypoints", (4, 2))
    file["a"].create_virtual_dataset("keypoints", layout)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (external_link, "'keypoints' is a link, which is not followed"),
        (soft_link, "'keypoints' is a link, which is not followed"),
        (group_link, "'a' is a link, which is not followed"),
        (external_storage, "it is in another file"),
        (virtual, "it is in another file"),
    ],
)
def test_hloc_files_do_not_lead_into_others(tmp_path, monkeypatch, make, says):
    hloc_file(tmp_path / "other.h5")
    monkeypatch.chdir(tmp_path)
    path = hloc_file(tmp_path / "features.h5", make)
    with pytest.raises(ValueError, match=says):
        read_hloc(path, path, "a", "b")


# ------------------------------------------------------------------------------ small helpers


@pytest.mark.parametrize(
    ("shape", "kind"), [((), "<f8"), ((0, 2), ">i4"), ((3, 2), "<U5"), ((2, 3, 4), "|b1")]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_writes_them(tmp_path, shape, kind, order):
    count = int(np.prod(shape))
    array = np.arange(count).astype(kind).reshape(shape, order=order)
    np.save(tmp_path / "a.npy", np.asarray(array, order=order))
    read = read_npy((tmp_path / "a.npy").read_bytes())
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


def test_limits_can_be_raised(monkeypatch, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("a b\n" * 3)
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "2")
    with pytest.raises(ValueError, match="more pairs than 2, the limit that MANYMATCH_MAX_RECORDS"):
        read_pairs(path, tmp_path)
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "3")
    assert len(read_pairs(path, tmp_path)) == 3
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "many")
    with pytest.raises(ValueError, match="MANYMATCH_MAX_RECORDS must be a whole number"):
        limit("records")


def test_more_pixels_can_be_allowed(monkeypatch, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    monkeypatch.setitem(limit.__globals__["LIMITS"], "pixels", 40)
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="MANYMATCH_MAX_PIXELS"):
        load_image(tmp_path / "a.png")
    monkeypatch.setenv("MANYMATCH_MAX_PIXELS", "100")
    assert load_image(tmp_path / "a.png").shape == (10, 10, 3)


def test_names_are_cut_between_letters():
    assert name_end("abc", 2) == "bc"
    assert name_end("ä" * 5, 7) == "äää"
    assert len(name_end("語" * 100, 80).encode()) <= 80

"""A file from elsewhere can neither run code, block, lead into other files nor eat the memory.

``python tests/io/test_hostile_files.py`` prints how much memory each file of the table takes.
"""

import functools
import io
import json
import os
import pickle
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from manymatch import AssociationGraph
from manymatch.features.extractor import Extractor
from manymatch.features.feature_cache import FeatureCache
from manymatch.io import (
    exhaustive_pairs,
    exif_focal,
    load_graph,
    load_image,
    read_associations_csv,
    read_cameras,
    read_hloc,
    read_images,
    read_matches_npz,
    read_pairs,
    read_superglue,
    write_associations_csv,
)
from manymatch.io.colmap import find_camera
from manymatch.io.files import limit, name_end, read_bytes, read_npz
from manymatch.io.image import image_size
from manymatch.matcher.cameras import resolve_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher

h5py = pytest.importorskip("h5py")
Image = pytest.importorskip("PIL.Image")

# ------------------------------------------------------------------- special and missing files

READERS = {
    "image": load_image,
    "graph": AssociationGraph.load,
    "any graph": load_graph,
    "CSV": read_associations_csv,
    "matches": read_matches_npz,
    "SuperGlue": read_superglue,
    "hloc": lambda path: read_hloc(path, path, "a", "b"),
    "cameras": read_cameras,
    "images": read_images,
    "list": lambda path: read_pairs(path, path.parent),
    "configuration": MatcherConfig.load,
    "camera": lambda path: resolve_camera(str(path), None, (64, 48), "camera0"),
}
NAMED = {
    **READERS,
    "EXIF": exif_focal,
    "size": image_size,
    "matcher": lambda path: Matcher("classic").match(path, path),
    "features": lambda path: Extractor("classic").extract(path),
    "preset": lambda path: Matcher(path.with_suffix(".toml")),
    "camera of COLMAP": lambda path: resolve_camera(path.with_suffix(".bin"), None, (64, 48)),
    "COLMAP image": lambda path: find_camera(path, "a.jpg"),
    "folder": exhaustive_pairs,
    "images of a list": lambda path: read_pairs(Path(__file__), path),
    "weights": lambda path: Matcher("embedded", weights=str(path)).extractor.backbone,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device"])
def test_special_files_are_refused_at_once(tmp_path, monkeypatch, read, kind):
    path = tmp_path / "a.txt"
    if kind == "a FIFO":
        os.mkfifo(path)  # blocks everyone who opens it
    elif kind == "a socket":
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    else:
        path.symlink_to("/dev/zero")  # never ends
    with pytest.raises(ValueError, match=rf"{kind}|no such file or folder|COLMAP model") as error:
        read(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("read", NAMED.values(), ids=NAMED)
def test_a_missing_file_is_a_value_error_and_a_file_not_found_error(tmp_path, read):
    for package in ("cv2", "torch"):
        pytest.importorskip(package)
    with pytest.raises(FileNotFoundError, match="missing") as error:
        read(tmp_path / "missing/a.txt")
    assert isinstance(error.value, ValueError)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301


def test_other_odd_files(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(ValueError, match="an existing folder") as error:
        exhaustive_pairs(tmp_path / "a")
    assert not isinstance(error.value, OSError)
    os.mkfifo(tmp_path / "a.jpg")
    assert exif_focal(tmp_path / "a.jpg") is None
    if Path("/proc/self/maps").exists():  # its size is 0, and it may have no end
        with pytest.raises(ValueError, match="it is empty"):
            read_bytes("/proc/self/maps", "a file")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.jpg", "EPS")  # another program would run it
    with pytest.raises(ValueError, match="in no format that Pillow reads"):
        load_image(tmp_path / "b.jpg")


# ------------------------------------------------------------------------- links in .h5 files


def hloc_file(path, keypoints):
    """Write a file of hloc whose keypoints of image a a function makes, in its group."""
    with h5py.File(path, "w") as file:
        keypoints(file.create_group("a"))
        file.create_group("b")["keypoints"] = np.zeros((4, 2), np.float32)
        file.require_group("a/b")["matches0"] = np.zeros(4, np.int32)


def linked(link):
    return lambda group: group.__setitem__("keypoints", link)


def virtual(group):
    layout = h5py.VirtualLayout((4, 2), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "b/keypoints", (4, 2))
    group.create_virtual_dataset("keypoints", layout)


def external(group):
    group.create_dataset("keypoints", (4, 2), "f4", external=[("other.h5", 0, 32)])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (linked(h5py.ExternalLink("other.h5", "/b/keypoints")), "'keypoints' is a link"),
        (linked(h5py.SoftLink("/b/keypoints")), "'keypoints' is a link"),
        (external, "it is in another file"),
        (virtual, "it is in another file"),
    ],
)
def test_hloc_files_do_not_lead_into_others(tmp_path, monkeypatch, make, says):
    monkeypatch.chdir(tmp_path)
    hloc_file("other.h5", lambda _: None)
    hloc_file("features.h5", make)
    with pytest.raises(ValueError, match=says):
        read_hloc("features.h5", "features.h5", "a", "b")


def test_packed_hloc_files_are_refused(tmp_path):
    path = tmp_path / "a.h5"
    features(data=np.zeros((4, 2), np.float32), compression="gzip")(path)
    with pytest.raises(ValueError, match="it is packed, which hloc does not do"):
        read_hloc(path, path, "a", "b")


# ------------------------------------------------------------------------------------- memory

WIDTH, HEIGHT = 3000, 2000
DECODED_MB = WIDTH * HEIGHT * 3 / 1e6


def photograph(mode, suffix, **settings):
    def make(path):
        values = np.random.default_rng(0).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
        Image.fromarray(values).resize((WIDTH, HEIGHT)).convert(mode).save(path, suffix, **settings)

    return make


def png(width, height, kind=b"", content=b""):
    """Write a grey PNG that has the pixels of one row, and one further chunk."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    def make(path):
        header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        more = chunk(kind, content) if kind else b""
        pixels = chunk(b"IDAT", zlib.compress(bytes(width + 1)))
        parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), more, pixels, chunk(b"IEND", b"")]
        path.write_bytes(b"".join(parts))

    return make


def features(**settings):
    return lambda path: hloc_file(path, lambda group: group.create_dataset("keypoints", **settings))


def array_header(shape, kind):
    head = io.BytesIO()
    layout = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, layout)
    return head.getvalue()


def archive(shape, kind, megabytes):
    """Write an .npz of matches whose keypoints0 are zeros."""

    def make(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            with file.open("keypoints0.npy", "w", force_zip64=True) as member:
                member.write(array_header(shape, kind))
                for _ in range(megabytes):
                    member.write(bytes(1_000_000))
            for name, few in (("keypoints1", (0, 2)), ("matches", (0, 2)), ("matches0", (0,))):
                file.writestr(f"{name}.npy", array_header(few, "<i8"))

    return make


def many_members(path):
    with zipfile.ZipFile(path, "w") as file:
        for number in range(60_000):
            file.writestr(f"{number}.npy", b"")


KEY = {"image": "a"}


def cache_entry(folder, array):
    """Write an entry of a feature cache that expands to `array`."""
    path = FeatureCache(folder).path(KEY)
    path.parent.mkdir(parents=True)
    np.savez_compressed(path, array=array, key=json.dumps({"format": 2, **KEY}))


def cached(folder):
    if FeatureCache(folder).read(KEY) is None:
        raise ValueError("it is missing or too large")


def lying_archive(path):
    """Say that a member is short, which is 300 MB of zeros."""
    archive((75_000_000,), "<f4", 300)(path)
    data = path.read_bytes()
    size = data.index(b"keypoints0.npy", data.index(b"PK\x01\x02")) - 46 + 24
    path.write_bytes(data[:size] + struct.pack("<I", 1000) + data[size + 4 :])


def graph_of(count, path, write):
    points = np.random.default_rng(0).uniform(0, 1000, (count, 2))
    edges = np.repeat(np.arange(count)[:, None], 2, axis=1)
    write(AssociationGraph(points, points, edges, np.ones(count), np.ones(count)), path)


def text(content, times=1):
    return lambda path: path.write_bytes(content * times)


def renamed(suffix, read):
    return lambda path: read(path.rename(path.with_suffix(suffix)))


IMAGE_LINE = b"1 1 0 0 0 0 0 0 1 a.jpg\n"
ZEROS = zlib.compress(bytes(100_000_000))
read_list = READERS["list"]
# By content: a function that makes the file, its reader, and the most memory in MB.
ORDINARY = {
    "PNG, RGBA": (photograph("RGBA", "png", compress_level=1), load_image, 4 * DECODED_MB),
    "JPEG": (photograph("RGB", "jpeg"), load_image, 4 * DECODED_MB),
    "TIFF, float": (photograph("F", "tiff"), load_image, 4 * DECODED_MB),
    "WebP": (photograph("RGB", "webp", quality=30, method=0), load_image, 8 * DECODED_MB),
    "JPEG 2000": (photograph("RGB", "jpeg2000", quality_layers=[60]), load_image, 9 * DECODED_MB),
    "graph of a million edges": (
        lambda p: graph_of(1_000_000, p, AssociationGraph.save), AssociationGraph.load, 350),
    "CSV of 30,000 edges": (
        lambda p: graph_of(30_000, p, write_associations_csv), read_associations_csv, 80),
    "CSV of 300,000 edges, 20 MB": (
        lambda p: graph_of(300_000, p, write_associations_csv), read_associations_csv, 200),
    "list of 50,000 pairs": (text(b"a b\n", 50_000), read_list, 80),
    "COLMAP, a line of 15 MB": (
        text(IMAGE_LINE + b"1 " * 7_500_000), renamed(".txt", read_images), 150),
}  # fmt: skip
HOSTILE = {
    "PNG of 400 million pixels": (png(20_000, 20_000), load_image, 20),
    "PNG, text of 100 MB": (png(8, 1, b"zTXt", b"a\0\0" + ZEROS), load_image, 30),
    "PNG, colour profile of 100 MB": (png(8, 1, b"iCCP", b"a\0\0" + ZEROS), load_image, 30),
    "hloc, never written": (features(shape=(600_000_000, 2), dtype="f8"), READERS["hloc"], 30),
    "hloc, fill value": (
        features(shape=(10_000_000, 2), dtype="f4", chunks=(100, 2), fillvalue=1.0),
        READERS["hloc"], 30),
    "hloc, chunk of 4 GB": (
        features(shape=(10, 2), dtype="f4", chunks=(500_000_000, 2), maxshape=(None, 2),
                 fillvalue=1.0), READERS["hloc"], 30),
    "npz, zeros": (archive((50_000_000, 2), "<f4", 400), read_matches_npz, 30),
    "npz, 60,000 members": (many_members, read_matches_npz, 10),
    "feature cache, zeros": (
        lambda p: cache_entry(p, np.zeros(60_000_000)), cached, 30),
    "npz, bytes that become numbers": (archive((50_000_000, 2), "|i1", 100), read_matches_npz, 30),
    "npz, header of 8 TB": (archive((10**12,), "<f8", 0), read_matches_npz, 30),
    "npz, empty types": (archive((10**12,), "|S0", 0), read_matches_npz, 30),
    "npz, member longer than it says": (lying_archive, read_matches_npz, 30),
    "COLMAP, 2^60 cameras": (
        text(struct.pack("<Q", 2**60) + bytes(100)), renamed(".bin", read_cameras), 10),
    "COLMAP, a line of 100 MB": (
        text(IMAGE_LINE + b"1 " * 50_000_000), renamed(".txt", read_images), 200),
    "TOML, 25,000 deep": (text(b"a=" + b"[" * 25_000), MatcherConfig.load, 30),
    "TOML, key of 24,000 parts": (text(b"a" + b".a" * 24_000 + b"=1"), MatcherConfig.load, 10),
    "TOML, tables of 24,000 parts": (
        text(b"".join(b"[a%d%s]\n" % (k, b".a" * 1000) for k in range(24))),
        MatcherConfig.load, 10),
    "TOML, many keys of 100 parts": (
        text(b"".join(b"a%d%s=1\n" % (k, b".a" * 100) for k in range(240))),
        MatcherConfig.load, 60),
    "list of 70 MB": (text(b"a b\n", 17_500_000), read_list, 80),
}  # fmt: skip
CASES = {**ORDINARY, **HOSTILE}


def in_child(work):
    """Run a function in a process of its own, and return its result by JSON."""
    receive, send = os.pipe()
    if os.fork() == 0:
        try:
            os.write(send, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        answer = file.read()
    os.wait()
    return json.loads(answer) if answer else [float("inf"), "it ended the process"]


def peak_mb():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1.024e-3


def measured(make, read, path):
    """Make a file and read it; return the peak of the memory beyond the start, and the error."""

    def work():
        resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
        Path("/proc/self/clear_refs").write_text("5")
        before, outcome = peak_mb(), ""
        try:
            read(path)
        except ValueError as error:
            outcome = f"refused: {error}"
        except BaseException as error:  # noqa: BLE001 - shown by the caller
            outcome = f"{type(error).__name__}: {error}"
        return [peak_mb() - before, outcome]

    in_child(functools.partial(make, path))
    return in_child(work)


def table():
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (make, read, _)) in enumerate(CASES.items()):
            yield name, measured(make, read, Path(folder) / str(number))


@pytest.fixture(scope="module")
def rows():
    """Measure all files in a process that has made no large array before."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of the memory is read from /proc")
    root = str(Path(__file__).parents[2])
    run = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CASES)
def test_peak_memory(rows, name):
    peak, outcome = rows[name]
    assert peak <= CASES[name][2], outcome
    assert outcome.startswith("refused: " if name in HOSTILE else ""), outcome
    assert name in HOSTILE or not outcome


# ---------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("shape", "kind"), [((), "<f8"), ((0, 2), ">i4"), ((3, 2), "<U5"), ((2, 3, 4), "|b1")]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_writes_them(shape, kind, order):
    array = np.arange(int(np.prod(shape))).astype(kind).reshape(shape, order=order)
    file = io.BytesIO()
    np.savez(file, a=np.asarray(array, order=order))
    read = read_npz(file.getvalue(), "a.npz", "an .npz file", ["a"])["a"]
    assert read.dtype == array.dtype
    assert np.array_equal(read, array)


def test_limits_can_be_raised(monkeypatch, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("a b\n" * 3)
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "2")
    with pytest.raises(ValueError, match="more pairs than 2, the limit that MANYMATCH_MAX_RECORDS"):
        read_list(path)
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "3")
    assert len(read_list(path)) == 3
    monkeypatch.setenv("MANYMATCH_MAX_RECORDS", "many")
    with pytest.raises(ValueError, match="MANYMATCH_MAX_RECORDS must be a whole number"):
        limit("records")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    monkeypatch.setitem(limit.__globals__["LIMITS"], "pixels", 40)
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="MANYMATCH_MAX_PIXELS"):
        load_image(tmp_path / "a.png")
    monkeypatch.setenv("MANYMATCH_MAX_PIXELS", "100")
    assert load_image(tmp_path / "a.png").shape == (10, 10, 3)


def test_names_are_cut_between_letters():
    assert [name_end("abc", 2), name_end("ä" * 5, 7)] == ["bc", "äää"]


if __name__ == "__main__":
    if sys.argv[1:] == ["--json"]:
        sys.stdout.write(json.dumps(dict(table())))
    else:
        for name, (peak, outcome) in table():
            sys.stdout.write(f"{peak:6.0f} MB  {name}: {outcome[:7] or 'read'}\n")

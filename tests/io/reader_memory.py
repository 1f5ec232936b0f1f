"""Bytes in against peak memory, for every reader: a table, and what a test holds against limits.

``python tests/io/reader_memory.py`` prints the table. Every file is made and read in a process of
its own, which a limit keeps from taking the machine along.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import resource
import sqlite3
import struct
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
from PIL import Image

from manymatch.features.feature_cache import FeatureCache
from manymatch.graph import AssociationGraph
from manymatch.io import (
    load_graph,
    load_image,
    read_associations_csv,
    read_cameras,
    read_colmap_database,
    read_hloc,
    read_images,
    read_matches_npz,
    read_pose_json,
    write_associations_csv,
)
from manymatch.io.pairs import read_pairs
from manymatch.matcher.config import MatcherConfig

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEIGHT = 3000, 2000
DECODED_MB = WIDTH * HEIGHT * 3 / 1e6
# Of address space, far above every limit here.
ADDRESS_SPACE = 6_000_000_000


@dataclasses.dataclass(frozen=True)
class Case:
    """A file, how it is read, whether it is refused, and the memory that this may take."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], object]
    most_mb: float
    refused: bool = False


def smooth(mode):
    """Make a photograph that compresses as photographs do, not as plain areas do."""
    values = np.random.default_rng(0).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
    image = Image.fromarray(values).resize((WIDTH, HEIGHT))
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    if mode in ("F", "I"):
        kind = np.float32 if mode == "F" else np.int32
        return Image.fromarray(np.asarray(image.convert("L")).astype(kind))
    return image.convert(mode)


def photograph(name, mode, suffix, most=3.5, **settings):
    def make(path):
        smooth(mode).save(path, suffix, **settings)

    return Case(name, make, load_image, most * DECODED_MB + 10)


def png_chunk(kind, content):
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(path, width, height, *chunks):
    """Write a grey PNG, with chunks before its pixels, of which it has those of one row."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(width + 1))
    parts = [png_chunk(b"IHDR", header), *chunks, png_chunk(b"IDAT", pixels)]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts) + png_chunk(b"IEND", b""))


def packed_zeros(megabytes):
    pack = zlib.compressobj(9)
    return b"".join([*(pack.compress(bytes(1_000_000)) for _ in range(megabytes)), pack.flush()])


def hloc_file(path, write):
    with h5py.File(path, "w") as file:
        group = file.create_group("a.jpg")
        write(group)
        file.create_group("b.jpg")["keypoints"] = np.zeros((4, 2), np.float32)
        file.create_group("a.jpg/b.jpg")["matches0"] = np.zeros(4, np.int32)


def of_features(**settings):
    def make(path):
        hloc_file(path, lambda group: group.create_dataset("keypoints", **settings))

    return make


def packed_dataset(path):
    def write(group):
        shape, chunk = (40_000_000, 2), (1_000_000, 2)
        keypoints = group.create_dataset(
            "keypoints", shape, "f4", chunks=chunk, compression="gzip", compression_opts=6
        )
        zeros = np.zeros(chunk, np.float32)
        for start in range(0, shape[0], chunk[0]):
            keypoints[start : start + chunk[0]] = zeros

    hloc_file(path, write)


def read_features(path):
    return read_hloc(path, path, "a.jpg", "b.jpg")


def array_header(shape, kind):
    head = io.BytesIO()
    layout = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, layout)
    return head.getvalue()


def npz(path, **members):
    """Write an archive of members that are shape, type and content of an array."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (shape, kind, blocks) in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(array_header(shape, kind))
                for block in blocks:
                    file.write(block)


def matches_archive(keypoints):
    few = ((0, 2), "<i8", ())

    def make(path):
        npz(path, keypoints0=keypoints, keypoints1=few, matches=few, matches0=((0,), "<i8", ()))

    return make


def lying_archive(path):
    """Say that a member is short, which is as long as 300 MB of zeros."""
    matches_archive(((75_000_000,), "<f4", (bytes(1_000_000) for _ in range(300))))(path)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")
    size = data.index(b"keypoints0.npy", at) - 46 + 24
    path.write_bytes(data[:size] + struct.pack("<I", 1000) + data[size + 4 :])


def large_graph(path):
    edges = np.arange(1_000_000)
    points = np.random.default_rng(0).uniform(0, 1000, (1_000_000, 2))
    AssociationGraph(points, points, np.stack([edges, edges], axis=1)).save(path)


def association_list(path):
    points = np.random.default_rng(0).uniform(0, 1000, (30_000, 2))
    edges = np.repeat(np.arange(30_000)[:, None], 2, axis=1)
    ones = np.ones(30_000)
    write_associations_csv(AssociationGraph(points, points, edges, ones, ones), path)


def computed_columns(path):
    """Write a COLMAP database whose keypoints and matches are computed when they are read."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE images (image_id INTEGER, name TEXT)")
        database.execute("INSERT INTO images VALUES (1, 'a.jpg'), (2, 'b.jpg')")
        for table, key, ids in (
            ("keypoints", "image_id", (1, 2)),
            ("matches", "pair_id", (2147483647 + 2,)),
        ):
            database.execute(
                f"CREATE TABLE {table} ({key} INTEGER, rows INTEGER, cols INTEGER, data BLOB "
                "GENERATED ALWAYS AS (zeroblob(rows * cols * 4)) VIRTUAL)"
            )
            for number in ids:
                insert = f"INSERT INTO {table} VALUES (?, 12000000, 2)"  # noqa: S608 - our own
                database.execute(insert, (number,))
        database.commit()


def read_database(path):
    return read_colmap_database(path, "a.jpg", "b.jpg")


def text(content):
    return lambda path: path.write_bytes(content() if callable(content) else content)


def cache_entry(path):
    cache = FeatureCache(path.with_suffix(".cache"))
    cache.write({}, {"points": np.zeros((3, 2))})
    entry = cache.path({})
    data = entry.read_bytes()
    entry.write_bytes(data.replace(b"(3, 2)          ", b"(1000000000, 2) "))
    path.write_bytes(entry.read_bytes())


def read_cache(path):
    if FeatureCache(path.with_suffix(".cache")).read({}) is None:
        raise ValueError("it is computed again")


IMAGES = [
    photograph("PNG, RGB", "RGB", "png", compress_level=1),
    photograph("PNG, RGBA", "RGBA", "png", compress_level=1),
    photograph("PNG, palette", "P", "png", compress_level=1),
    photograph("PNG, 16 bits", "I;16", "png", compress_level=1),
    photograph("JPEG", "RGB", "jpeg"),
    photograph("JPEG, progressive", "RGB", "jpeg", 3.7, progressive=True, subsampling=0),
    photograph("JPEG, CMYK", "CMYK", "jpeg"),
    photograph("TIFF, float", "F", "tiff"),
    photograph("TIFF, 32-bit integers", "I", "tiff"),
    photograph("TIFF, LZW", "RGB", "tiff", compression="tiff_lzw"),
    photograph("GIF", "P", "gif"),
    # Their pixels count twice.
    photograph("WebP", "RGB", "webp", 6.0, quality=30, method=0),
    photograph("JPEG 2000", "RGB", "jpeg2000", 7.0, quality_layers=[60]),
]
HOSTILE = [
    Case(
        "PNG of 400 million pixels", lambda p: png(p, 20_000, 20_000), load_image, 20, refused=True
    ),
    Case(
        "PNG, compressed text of 100 MB",
        lambda p: png(p, 8, 1, png_chunk(b"zTXt", b"a\0\0" + packed_zeros(100))),
        load_image,
        30,
        refused=True,
    ),
    Case(
        "PNG, colour profile of 100 MB",
        lambda p: png(p, 8, 1, png_chunk(b"iCCP", b"a\0\0" + packed_zeros(100))),
        load_image,
        30,
        refused=True,
    ),
    Case(
        "hloc, dataset never written",
        of_features(shape=(600_000_000, 2), dtype="f8"),
        read_features,
        30,
        refused=True,
    ),
    Case(
        "hloc, small dataset never written",
        of_features(shape=(10_000_000, 2), dtype="f4"),
        read_features,
        30,
        refused=True,
    ),
    Case(
        "hloc, fill value",
        of_features(shape=(10_000_000, 2), dtype="f4", chunks=(100, 2), fillvalue=1.0),
        read_features,
        30,
        refused=True,
    ),
    Case(
        "hloc, piece of 4 GB",
        of_features(
            shape=(10, 2), dtype="f4", chunks=(500_000_000, 2), maxshape=(None, 2), fillvalue=1.0
        ),
        read_features,
        30,
        refused=True,
    ),
    Case("hloc, zeros, gzip", packed_dataset, read_features, 30, refused=True),
    Case("cache, dataset never written", cache_entry, read_cache, 30, refused=True),
    # Most of it is pyarrow itself.
    Case(
        "npz, zeros",
        matches_archive(((50_000_000, 2), "<f4", (bytes(1_000_000) for _ in range(400)))),
        read_matches_npz,
        30,
        refused=True,
    ),
    Case(
        "npz, bytes that become numbers of 8 bytes",
        matches_archive(((50_000_000, 2), "|i1", (bytes(1_000_000) for _ in range(100)))),
        read_matches_npz,
        30,
        refused=True,
    ),
    Case(
        "npz, header of 8 TB",
        matches_archive(((10**12,), "<f8", ())),
        read_matches_npz,
        30,
        refused=True,
    ),
    Case("npz, member longer than it says", lying_archive, read_matches_npz, 30, refused=True),
    Case(
        "npy, header of 8 TB",
        lambda p: p.write_bytes(array_header((10**12,), "<f8") + bytes(100)),
        lambda p: load_graph(p, points0=np.zeros((1, 2)), points1=np.zeros((1, 2))),
        10,
        refused=True,
    ),
    Case(
        "COLMAP database, columns that are computed",
        computed_columns,
        read_database,
        30,
        refused=True,
    ),
    Case(
        "COLMAP, 2^60 cameras",
        lambda p: p.write_bytes(struct.pack("<Q", 2**60) + bytes(100)),
        lambda p: read_cameras(p.rename(p.with_suffix(".bin"))),
        10,
        refused=True,
    ),
    Case(
        "COLMAP, a line of 100 MB",
        text(lambda: b"1 1 0 0 0 0 0 0 1 a.jpg\n" + b"1 " * 50_000_000),
        lambda p: read_images(p.rename(p.with_suffix(".txt"))),
        200,
        refused=True,
    ),
    Case(
        "TOML, 25,000 deep",
        text(b"a=" + b"[" * 25_000),
        lambda p: MatcherConfig.load(p),
        30,
        refused=True,
    ),
    Case(
        "JSON, 1,000,000 deep",
        text(b'{"pose":' + b"[" * 1_000_000),
        read_pose_json,
        30,
        refused=True,
    ),
    Case(
        "list of 70 MB",
        text(lambda: b"a b\n" * 17_500_000),
        lambda p: read_pairs(p, p.parent),
        40,
        refused=True,
    ),
]
ORDINARY = [
    Case("graph of a million edges", large_graph, AssociationGraph.load, 350),
    Case("association CSV of 30,000 edges", association_list, read_associations_csv, 80),
    Case(
        "list of 50,000 pairs",
        text(lambda: b"".join(b"%06d %06d\n" % (i, i + 1) for i in range(50_000))),
        lambda p: read_pairs(p, p.parent),
        80,
    ),
    Case(
        "COLMAP, a line of 15 MB",
        text(lambda: b"1 1 0 0 0 0 0 0 1 a.jpg\n" + b"1 " * 7_500_000),
        lambda p: read_images(p.rename(p.with_suffix(".txt"))),
        150,
    ),
]
CASES = [*IMAGES, *ORDINARY, *HOSTILE]


def in_child(work):
    """Run a function in a process of its own, and return what it returns, as JSON can hold it."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def peak_bytes():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def measured(case, path):
    """Read a file; return the peak of the memory beyond the start in MB, and what came of it."""

    def work():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_bytes()
        try:
            case.read(path)
            outcome = ""
        except ValueError as error:
            outcome = str(error)
        except BaseException as error:  # noqa: BLE001 - told by the caller
            outcome = f"{type(error).__name__}: {error}"
        return [(peak_bytes() - before) / 1e6, outcome]

    return in_child(work) or [float("inf"), "it ended the process"]


def table(cases=CASES):
    """Measure cases: lists of name, bytes, peak in MB, and the sentence of a refusal."""
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            path = Path(folder) / f"{number}"
            in_child(lambda case=case, path=path: case.make(path))
            size = path.stat().st_size
            yield [case.name, size, *measured(case, path)]


def main():
    if sys.argv[1:] == ["--json"]:
        sys.stdout.write(json.dumps(list(table())))
        return
    sys.stdout.write("| file | bytes | peak, MB | |\n|---|---|---|---|\n")
    refused = {case.name: case.refused for case in CASES}
    for name, size, peak, _ in table():
        end = "refused" if refused[name] else "read"
        sys.stdout.write(f"| {name} | {size:,} | {peak:.0f} | {end} |\n")


if __name__ == "__main__":
    main()

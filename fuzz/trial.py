"""A trial of public functions and readers: sound input, damaged in the ways that people damage it.

The fuzzers of `fuzz.targets` look for new paths with coverage; here sound arrays and files are
damaged step by step, as broken scripts and disks do. A damaged call may return a result that makes
sense, or raise one sentence; anything else is counted as wrong and printed.

    python -m fuzz.trial --seconds 60 --seed 1
"""

from __future__ import annotations

import argparse
import resource
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch import compat, io

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]

# Seconds that a call may take, and memory in bytes that the process may use.
SLOWEST, MOST_MEMORY = 30, 4 << 30
LONGEST_MESSAGE = 600
ALLOWED = (ValueError, ModuleNotFoundError)
TYPES = ("f2", "f4", ">f8", "c16", "i1", "u1", "i4", "u8", ">i2", "?", "O", "U8", "m8[s]", "V4")
EXTREMES = (
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-30, -1.0, 1e5, 1e6, 1e7, 1e9, 1e13),
    *(1e40, 1e160, 1e200, 1e308, -1e308, 2**31, 2**31 - 1, 2**63, -(2**63)),
)


def damaged_array(rng: np.random.Generator, value: Any) -> Any:
    """Return an array after one to three kinds of damage."""
    array = np.array(value)
    kinds = (_extremes, _retype, _reshape, _relayout, _repeat, _wrap)
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for _ in range(int(rng.integers(1, 4))):
            array = kinds[int(rng.integers(len(kinds)))](rng, array)
            if not isinstance(array, np.ndarray):
                break
    return array


def _extremes(rng: np.random.Generator, array: Any) -> Any:
    array = array.copy()
    if array.size and array.dtype.kind in "fiuc":
        if array.dtype.kind in "iu" and rng.random() < 0.5:
            array = array.astype(float)
        for _ in range(int(rng.integers(1, 5))):
            value = EXTREMES[int(rng.integers(len(EXTREMES)))]
            try:
                array.flat[int(rng.integers(array.size))] = value
            except (OverflowError, ValueError):
                array.flat[0] = 1
    return array


def _retype(rng: np.random.Generator, array: Any) -> Any:
    try:
        return array.astype(TYPES[int(rng.integers(len(TYPES)))])
    except (TypeError, ValueError, OverflowError):
        return array


def _reshape(rng: np.random.Generator, array: Any) -> Any:
    way = int(rng.integers(6))
    if way == 0 or array.ndim == 0:
        return array[None]
    if way == 1:
        return array.reshape(-1)
    if way == 2:
        return array[: int(rng.integers(len(array) + 1))]
    if way == 3:
        return array[..., : int(rng.integers(array.shape[-1] + 1))]
    if way == 4:
        return array.T
    return np.concatenate([array, array[..., :1]], axis=-1)


def _relayout(rng: np.random.Generator, array: Any) -> Any:
    way = int(rng.integers(4))
    if way == 0 and array.ndim:
        return array[::-1]
    if way == 1:
        return np.asfortranarray(array)
    if way == 2:
        array = array.copy()
        array.flags.writeable = False
        return array
    return np.broadcast_to(array[:1], array.shape) if array.ndim and len(array) else array


def _repeat(rng: np.random.Generator, array: Any) -> Any:
    if array.ndim == 0 or not len(array):
        return array
    return array[rng.integers(0, len(array), int(rng.integers(0, 3 * len(array))))]


def _wrap(rng: np.random.Generator, array: Any) -> Any:
    way = int(rng.integers(5))
    if way == 0:
        return array.tolist()
    if way == 1:
        return np.ma.masked_array(array, mask=np.zeros(array.shape, bool))
    if way == 2:
        return [list(map(str, np.atleast_1d(array).reshape(-1)[:40]))]
    return (
        memoryview(np.ascontiguousarray(array)) if way == 3 and array.dtype.kind == "f" else array
    )


def sound_calls() -> dict[str, tuple[Callable[..., object], dict[str, Any]]]:
    """Return functions by name, with the arrays that are damaged."""
    rng = np.random.default_rng(0)
    x0 = rng.uniform(0.0, 500.0, (40, 2))
    x1 = x0 * 0.9 + rng.normal(0.0, 0.4, (40, 2)) + 20.0
    cloud = rng.uniform(-5.0, 5.0, (40, 3))
    edges = np.stack([np.arange(40), np.r_[np.arange(30), rng.permutation(10) + 30]], axis=1)
    K = np.array([[400.0, 0.0, 250.0], [0.0, 400.0, 250.0], [0.0, 0.0, 1.0]])
    descriptors = {
        name: rng.normal(size=(40, 16)).astype(np.float32) for name in ("desc0", "desc1")
    }
    options = manymatch.Options(min_iterations=10, max_iterations=60, threads=1)
    auto = options.replace(threshold_px="auto")

    def judged(estimate: Any) -> object:
        sure = manymatch.assess(estimate)
        assert 0.0 <= sure.pose_probability <= 1.0
        assert not estimate.success or np.isfinite(np.hstack([estimate.hcm])).all()
        return str(sure), estimate.to_row()

    def graph(points0: Any, points1: Any, edges: Any) -> Any:
        return manymatch.AssociationGraph(points0, points1, edges)

    images = {"points0": x0, "points1": x1, "edges": edges}
    space = {"points0": cloud, "points1": cloud[:, [1, 2, 0]] + 3.0, "edges": edges}
    mixed = {"points0": x0, "points1": cloud + np.array([0.0, 0.0, 20.0]), "edges": edges}

    def relative(camera0: Any, camera1: Any, **arrays: Any) -> object:
        found = manymatch.estimate_relative_pose(graph(**arrays), camera0, camera1, options=auto)
        return judged(found)

    photo = rng.integers(0, 256, (48, 64, 3), np.uint8)
    return {
        "relative": (relative, {**images, "camera0": K, "camera1": K}),
        "homography": (
            lambda **a: judged(manymatch.estimate_homography(graph(**a), options=auto)),
            images,
        ),
        "fundamental": (
            lambda **a: judged(manymatch.estimate_fundamental(graph(**a), options=auto)),
            images,
        ),
        "absolute": (
            lambda camera, **a: judged(
                manymatch.estimate_absolute_pose(graph(**a), camera, options=options)
            ),
            {**mixed, "camera": K},
        ),
        "rigid": (
            lambda **a: judged(
                manymatch.estimate_rigid_transform(graph(**a), 0.5, options=options)
            ),
            space,
        ),
        "similarity": (
            lambda **a: judged(manymatch.estimate_similarity(graph(**a), 0.5, options=options)),
            space,
        ),
        "associate": (
            lambda **a: manymatch.candidates(**a, size0=(520, 520), size1=(520, 520)),
            {**descriptors, "points0": x0, "points1": x1},
        ),
        "gms": (lambda **a: manymatch.gms_filter(graph(**a), (520, 520), (520, 520)), images),
        "merge": (lambda **a: manymatch.merge_coincident(graph(**a), 1.0), images),
        "compat.poselib": (
            lambda **a: compat.poselib.estimate_homography(a["points0"], a["points1"]),
            {"points0": x0, "points1": x1},
        ),
        "graph_from_matches": (
            lambda **a: io.graph_from_matches(**a),
            {"points0": x0, "points1": x1, "matches": edges},
        ),
        "load_image": (lambda image: io.load_image(image), {"image": photo}),
        "pose_auc": (lambda errors: manymatch.pose_auc(errors), {"errors": np.linspace(0, 40, 24)}),
    }


def sound_files(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Write one file of every kind; return them with their readers."""
    calls = sound_calls()
    arrays = calls["relative"][1]
    scores = np.linspace(1.0, 0.1, 40), np.ones(40, dtype=int)
    given = (arrays[name] for name in ("points0", "points1", "edges"))
    graph = manymatch.AssociationGraph(*given, *scores)
    graph.save(folder / "graph.npz")
    io.write_associations_csv(graph, folder / "graph.csv")
    pairs = {"keypoints0": graph.points0, "keypoints1": graph.points1, "matches": graph.edges}
    io.write_matches_npz(folder / "matches.npz", *pairs.values())
    (folder / "cameras.txt").write_text("1 PINHOLE 640 480 500 500 320 240\n")
    (folder / "images.txt").write_text("1 1 0 0 0 0 0 1 1 a.jpg\n10 20 -1 30 40 5\n")
    (folder / "pairs.txt").write_text("a.jpg b.jpg\na.jpg c.jpg 0 1\n")
    (folder / "config.toml").write_text(
        'preset = "classic"\n[estimation]\nthreshold_px = 1.5\nseed = 3\n'
    )
    from PIL import Image

    photo = calls["load_image"][1]["image"]
    for name in ("a.png", "a.jpg", "a.tif", "a.webp"):
        Image.fromarray(photo).save(folder / name)
    readers: dict[str, Callable[[Path], object]] = {
        "graph.npz": io.load_graph,
        "graph.csv": io.load_graph,
        "matches.npz": io.read_matches_npz,
        "cameras.txt": io.read_cameras,
        "images.txt": io.read_images,
        "pairs.txt": lambda path: list(io.read_pairs(path, folder)),
        "config.toml": manymatch.MatcherConfig.load,
        **dict.fromkeys(("a.png", "a.jpg", "a.tif", "a.webp"), io.load_image),
    }
    image = io.ImageRecord(
        "a.jpg", (520, 520), manymatch.Camera("PINHOLE", 520, 520, [400, 400, 260, 260])
    )
    other = io.ImageRecord(
        "b.jpg", (520, 520), manymatch.Camera("PINHOLE", 520, 520, [400, 400, 260, 260])
    )
    try:
        with io.HlocWriter(folder / "f.h5", folder / "m.h5") as writer:
            writer.add(image, other, io.PairMatches(**pairs))
        readers["f.h5"] = lambda path: io.read_hloc(folder / "m.h5", path, "a.jpg", "b.jpg")
        readers["m.h5"] = lambda path: io.read_hloc(path, folder / "f.h5", "a.jpg", "b.jpg")
    except ModuleNotFoundError as error:
        print(f"left out: {error}")
    return {name: (folder / name, read) for name, read in readers.items()}


def damaged_bytes(rng: np.random.Generator, data: bytes, others: list[bytes]) -> bytes:
    """Return a file after one to three kinds of damage."""
    for _ in range(int(rng.integers(1, 4))):
        place, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 65))
        way = int(rng.integers(7))
        if way == 0:  # cut off
            data = data[:place]
        elif way == 1 and data:  # one bit
            at = min(place, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
        elif way == 2:  # a number that is too large
            word = int(EXTREMES[int(rng.integers(8, 12))]).to_bytes(8, "little")
            data = data[:place] + word + data[place + 8 :]
        elif way == 3:  # a part repeated
            data = data[:place] + data[max(0, place - length) : place] * int(rng.integers(2, 60))
        elif way == 4:  # a part of another file
            piece = others[int(rng.integers(len(others)))]
            data = data[:place] + piece[place : place + length] + data[place + length :]
        elif way == 5:  # zeros, as after a crash
            data = data[:place] + bytes(length) + data[place + length :]
        else:  # another end of lines, another encoding
            data = data.replace(b"\n", b"\r") if rng.random() < 0.5 else data.replace(b"0", b"\xff")
    return data


def outcome(call: Call, name: str = "") -> str:
    """Run a call; return "result", "sentence", or what is wrong with it."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SLOWEST} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SLOWEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            call()
    except ALLOWED as error:
        text = str(error)
        if "\n" in text or not text or len(text) > LONGEST_MESSAGE:
            return f"bad message {text[:200]!r}"
        return (
            "sentence"
            if name in text or "must be given" in text
            else f"does not name {name}: {text[:200]}"
        )
    except BaseException as error:  # noqa: BLE001 - anything else is what the trial looks for
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return "result"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for arrays, and again for files"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    rng = np.random.default_rng(given.seed)
    counts: dict[str, Counter[str]] = {"arrays": Counter(), "files": Counter()}
    wrong: Counter[str] = Counter()
    calls = list(sound_calls().items())
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        name, (function, arrays) = calls[int(rng.integers(len(calls)))]
        which = list(arrays)[int(rng.integers(len(arrays)))]
        changed = {**arrays, which: damaged_array(rng, arrays[which])}
        said = outcome(lambda f=function, c=changed: f(**c))
        if said not in ("result", "sentence"):
            wrong[f"{name}({which}): {said}"] += 1
            said = "wrong"
        counts["arrays"][said] += 1
    with tempfile.TemporaryDirectory() as place:
        files = sound_files(Path(place))
        contents = {name: path.read_bytes() for name, (path, _) in files.items()}
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            name = list(files)[int(rng.integers(len(files)))]
            read = files[name][1]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                path.write_bytes(damaged_bytes(rng, contents[name], list(contents.values())))
                said = outcome(lambda r=read, p=path: r(p), name)
            if said not in ("result", "sentence"):
                wrong[f"{name}: {said}"] += 1
                said = "wrong"
            counts["files"][said] += 1
    for line, times in wrong.most_common():
        print(f"{times:6} {line}")
    print("| damaged | tried | result | one sentence | wrong |\n|---|---|---|---|---|")
    for kind, seen in counts.items():
        numbers = [seen.total(), *(seen[key] for key in ("result", "sentence", "wrong"))]
        print(f"| {kind} | {' | '.join(f'{n:,}' for n in numbers)} |")
    raise SystemExit(int(bool(wrong)))


if __name__ == "__main__":
    main()

"""Write rendered pairs, places, or the photographs of the demo and the examples.

    python -m tools.street --out out/street --pairs 20     a data set: manymatch eval out/street
    python -m tools.street place courtyard --out out/places/courtyard0
    python -m tools.street --demo                          the demo's photographs, in the package
    python -m tools.street --examples                      the photographs of the examples

A data set is a folder with ``pairs.txt`` (SuperGlue's format, translations in metres), ``images/``
and ``depth/`` (16-bit PNG, millimetres, 0 in the sky). A place is a folder with these two,
``cameras.json`` and ``overlap.json``; ``python -m tools.street place --help`` says more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from tools.street.places import KINDS, render_place
from tools.street.scene import render_scene, render_walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch.geometry.camera import Camera
    from manymatch.geometry.pose import RelativePose
    from tools.street.places import RenderedPlace

# Streets of the demo with networks and with SIFT, as tools/street/choose.py chooses them, and a
# JPEG quality that keeps two photographs together below 400 KB.
DEMO_SEEDS = {"embedded": 9, "classic": 8}
DEMO_SIZE, DEMO_QUALITY = (960, 720), 90
# The walk of the examples, an easy scene; four photographs of about 150 KB.
WALK_SEED, WALK_COUNT, WALK_QUALITY = 3, 4, 85
# The courtyard of `manymatch reconstruct --demo`: four equal fronts, about 60 KB a photograph.
PLACE_KIND, PLACE_SEED, PLACE_COUNT, PLACE_SIZE, PLACE_QUALITY = "courtyard", 0, 20, (640, 480), 82
# In the sources, not in an installed package.
_DEMO_FOLDER = Path(__file__).parents[2] / "src/manymatch/demo_photos"
_EXAMPLES_FOLDER = Path(__file__).parents[2] / "examples/photos"
# EXIF: the block of the camera, and in it focal length in millimetres, width and height in pixels,
# pixels of the sensor per unit of length, and that unit, centimetres.
_CAMERA_BLOCK, _FOCAL, _WIDTH, _HEIGHT = 0x8769, 0x920A, 0xA002, 0xA003
_DENSITY_X, _DENSITY_Y, _DENSITY_UNIT, _CENTIMETRES = 0xA20E, 0xA20F, 0xA210, 3
_MILLIMETRES = 5.0
_LARGEST_DEPTH = 65534
# Most photographs of a place whose overlap is computed: its time grows with their square.
MOST_OVERLAPS = 200


def pair_line(
    camera: Camera, relative: RelativePose, baseline: float, name0: str, name1: str
) -> str:
    """Return the line of a SuperGlue list of pairs: names, turns, K0, K1 and the 4x4 pose."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = relative.R, baseline * relative.t
    numbers = np.concatenate([camera.K.ravel(), camera.K.ravel(), pose.ravel()])
    return f"{name0} {name1} 0 0 {' '.join(repr(float(number)) for number in numbers)}\n"


def write_data_set(folder: Path, pairs: int, size: tuple[int, int]) -> None:
    """Write scenes 0 to pairs - 1; the list comes last and says that everything is there."""
    for inner in ("images", "depth"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    lines = []
    for seed in range(pairs):
        scene = render_scene(seed, size)
        names = [f"street{seed:03d}_{side}.png" for side in (0, 1)]
        views = ((scene.image0, scene.depth0), (scene.image1, scene.depth1))
        for name, (image, depth) in zip(names, views, strict=True):
            Image.fromarray(image).save(folder / "images" / name)
            save_depth(folder / "depth" / name, depth)
        lines.append(pair_line(scene.camera0, scene.pose, scene.baseline, *names))
    (folder / "pairs.txt").write_text("".join(lines), encoding="utf-8")


def save_depth(path: Path, depth: NDArray[np.float32]) -> None:
    """Write depths in metres as a 16-bit PNG of millimetres, 0 where there is none."""
    millimetres = np.where(np.isfinite(depth), np.rint(1000.0 * depth), 0.0)
    millimetres[millimetres > _LARGEST_DEPTH] = 0.0
    Image.fromarray(millimetres.astype(np.uint16)).save(path)


def write_demo(folder: Path) -> None:
    """Write the demo's photographs, two of each street, and their list of pairs."""
    lines = []
    for k, seed in enumerate(DEMO_SEEDS.values()):
        scene = render_scene(seed, DEMO_SIZE)
        names = f"street{2 * k}.jpg", f"street{2 * k + 1}.jpg"
        for name, image in zip(names, (scene.image0, scene.image1), strict=True):
            save_options = {"quality": DEMO_QUALITY, "optimize": True, "progressive": True}
            Image.fromarray(image).save(folder / name, **save_options)
        lines.append(pair_line(scene.camera0, scene.pose, scene.baseline, *names))
    (folder / "pairs.txt").write_text("".join(lines), encoding="utf-8")


def camera_exif(camera: Camera) -> Image.Exif:
    """Return what a camera writes into its photographs: the focal length, and size of a pixel."""
    exif = Image.Exif()
    density = 10.0 * camera.focal / _MILLIMETRES
    exif.get_ifd(_CAMERA_BLOCK).update(
        {
            _FOCAL: _MILLIMETRES,
            _WIDTH: camera.width,
            _HEIGHT: camera.height,
            _DENSITY_X: density,
            _DENSITY_Y: density,
            _DENSITY_UNIT: _CENTIMETRES,
        }
    )
    return exif


def write_demo_place(folder: Path) -> None:
    """Write the photographs of a courtyard, and their true cameras."""
    place = render_place(PLACE_KIND, PLACE_SEED, PLACE_SIZE, count=PLACE_COUNT)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    how = {"quality": PLACE_QUALITY, "optimize": True, "progressive": True}
    cameras = {}
    for number, image in enumerate(place.images):
        name = f"{number:02d}.jpg"
        path = folder / "images" / name
        Image.fromarray(image).save(path, exif=camera_exif(place.camera), **how)
        cameras[name] = place_camera(place, number)
    (folder / "cameras.json").write_text(json.dumps(cameras, indent=0) + "\n", encoding="utf-8")


def write_examples(folder: Path) -> None:
    """Write the photographs of the examples, with a focal length in EXIF, and all their pairs."""
    walk = render_walk(WALK_SEED, DEMO_SIZE, count=WALK_COUNT)
    exif = camera_exif(walk.camera)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"street{number}.jpg" for number in range(WALK_COUNT)]
    for name, image in zip(names, walk.images, strict=True):
        save_options = {"quality": WALK_QUALITY, "optimize": True, "progressive": True}
        Image.fromarray(image).save(folder / name, exif=exif, **save_options)
    lines = [
        pair_line(walk.camera, *walk.between(i, j), names[i], names[j])
        for i, j in itertools.combinations(range(WALK_COUNT), 2)
    ]
    (folder / "pairs.txt").write_text("".join(lines), encoding="utf-8")


_PLACE = """Render many photographs of one place that looks the same from several sides.

Courtyard: four equal fronts (odd seed: opposite ones are equal). Street: equal houses on both
sides. Kiosk: opposite sides are equal (odd seed: all). Cup: one motif twice (odd seed: three times)
and a handle. With little --variety there is little else to tell the sides apart.

Writes images/NNN.png, depth/NNN.png (16-bit, millimetres, 0 in the sky), cameras.json ({"name":
{"K", "R", "t", "size"}}, x = K (R X + t) in metres, centre of the top-left pixel (0, 0)) and
overlap.json ({a: {b: share}}): the share of the pixels of image a that image b shows, by depth,
without sky and floor; only of places of up to 200 images."""


def place_camera(place: RenderedPlace, number: int) -> dict[str, list[Any]]:
    """Return the camera of a photograph as cameras.json has it."""
    return {
        "K": place.camera.K.tolist(),
        "R": place.views[number].R.tolist(),
        "t": place.translation(number).tolist(),
        "size": [place.camera.width, place.camera.height],
    }


def write_place(folder: Path, place: RenderedPlace) -> None:
    """Write photographs, depths, overlap and cameras, which come last and say that all is there."""
    for inner in ("images", "depth"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    names = [f"{number:03d}.png" for number in range(len(place.images))]
    cameras = {}
    for number, (name, image) in enumerate(zip(names, place.images, strict=True)):
        Image.fromarray(image).save(folder / "images" / name)
        save_depth(folder / "depth" / name, place.depths[number])
        cameras[name] = place_camera(place, number)
    contents = {"cameras.json": cameras}
    if len(names) <= MOST_OVERLAPS:
        rows = np.round(place.overlap(), 4).tolist()
        overlap = {
            a: dict(zip(names, row, strict=True)) for a, row in zip(names, rows, strict=True)
        }
        contents = {"overlap.json": overlap, **contents}
    for file, content in contents.items():
        (folder / file).write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.street", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", type=Path, help="folder of the data set")
    parser.add_argument("--pairs", type=int, default=12, help="number of scenes")
    parser.add_argument("--size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    parser.add_argument("--demo", action="store_true", help="write the demo's photographs")
    parser.add_argument("--examples", action="store_true", help="write the examples' photographs")
    commands = parser.add_subparsers(dest="command", title="places")
    place = commands.add_parser("place", help="many photographs of one place", description=_PLACE)
    place.formatter_class = argparse.RawDescriptionHelpFormatter
    place.add_argument("kind", choices=KINDS)
    place.add_argument("--out", type=Path, required=True, help="folder of the place")
    place.add_argument("--seed", type=int, default=0)
    place.add_argument("--images", type=int, default=24, help="number of photographs")
    place.add_argument("--variety", type=float, default=0.3, help="0 (sides are equal) to 1")
    place.add_argument("--size", type=int, nargs=2, default=(640, 480), metavar=("W", "H"))
    given = parser.parse_args(arguments)
    if given.command == "place":
        how = {"count": given.images, "variety": given.variety}
        write_place(given.out, render_place(given.kind, given.seed, tuple(given.size), **how))
    elif given.demo:
        write_demo(_DEMO_FOLDER)
        write_demo_place(_DEMO_FOLDER / "courtyard")
    elif given.examples:
        write_examples(_EXAMPLES_FOLDER)
    elif given.out is not None:
        write_data_set(given.out, given.pairs, tuple(given.size))
    else:
        parser.error("give --out FOLDER, --demo or --examples")
    return 0


if __name__ == "__main__":
    sys.exit(main())

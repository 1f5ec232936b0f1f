"""The gallery: eight pairs of rendered photographs, what is made of them, and the page.

``python -m tools.site.gallery`` renders the photographs into ``out/gallery``, matches them, and
writes ``docs/gallery.md`` with one small picture for each pair into ``docs/gallery``. It also
renders the two photographs that only the app has as examples.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

import manymatch as mm
from tools.street.__main__ import camera_exif
from tools.street.places import RenderedPlace, render_place
from tools.street.scene import render_scene

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
PHOTOS, DEMO = ROOT / "examples" / "photos", ROOT / "src" / "manymatch" / "demo_photos"
SIZE = (960, 720)
WIDTH, QUALITY = 1000, 68
INTRODUCTION = """\
# Gallery

Eight pairs, what the command says of them, and why. All photographs are rendered, so that they may
be shipped; `make gallery` renders them into `out/gallery`, matches them again and writes this page.
In the pictures, the upper part shows the candidates of some keypoints and which one was chosen; the
lower part shows all matches, both ends in the same colour or in that of their source.
"""

Photo = NDArray[np.uint8]


@dataclass(frozen=True)
class GalleryPair:
    """A pair: how its photographs are made, the flags of the command, and what to say of it."""

    name: str
    title: str
    make: Callable[[], tuple[Photo, Photo]]
    sentence: str
    flags: dict[str, Any] = field(default_factory=dict)
    align: bool = False


def example(first: int, second: int) -> tuple[Photo, Photo]:
    return tuple(mm.io.load_image(PHOTOS / f"street{k}.jpg") for k in (first, second))  # type: ignore[return-value]


def street(seed: int, variety: float = 0.35) -> tuple[Photo, Photo]:
    scene = render_scene(seed, SIZE, variety=variety)
    return scene.image0, scene.image1


def thermal(photo: Photo) -> Photo:
    """Return a grey picture as of a thermal camera: dark and red things are warm."""
    red, green, blue = np.moveaxis(photo.astype(np.float64) / 255.0, 2, 0)
    light = 0.3 * red + 0.59 * green + 0.11 * blue
    warm = 0.75 * (1.0 - light) + 0.5 * (red - blue)
    low, high = np.percentile(warm, (1, 99))
    grey = np.clip((warm - low) / (high - low), 0.0, 1.0)
    small = Image.fromarray((255 * grey).astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.5))
    noise = np.random.default_rng(0).normal(0.0, 2.0, (small.height, small.width))
    noisy = np.clip(np.asarray(small) + noise, 0, 255).astype(np.uint8)
    return np.repeat(noisy[:, :, None], 3, axis=2)


def night(photo: Photo) -> Photo:
    """Return the photograph as at night: little light, warm near the ground, and noise."""
    light = (photo / 255.0) ** 2.2
    height = np.linspace(0.0, 1.0, photo.shape[0])[:, None, None]
    lamps = 0.02 + 0.22 * np.exp(-(((height - 0.72) / 0.16) ** 2))
    tint = np.array([1.0, 0.8, 0.5]) * (height > 0) * lamps + np.array([0.02, 0.03, 0.06])
    rng = np.random.default_rng(0)
    electrons = rng.poisson(light * tint * 300.0) + rng.normal(0, 2.0, photo.shape)
    return (255 * np.clip(electrons / 160.0, 0, 1) ** (1 / 2.2)).astype(np.uint8)


def print_on_a_wall(photo: Photo) -> Photo:
    """Return a tilted print of the photograph, seen by a second camera."""
    height, width = photo.shape[:2]
    corners = np.array([[90, 60], [840, 150], [800, 640], [150, 560]], dtype=np.float64)
    edges = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)
    # From the corners of the picture to those of the print.
    rows = [
        row
        for (x, y), (u, v) in zip(corners, edges, strict=True)
        for row in ((x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y))
    ]
    inverse = np.linalg.solve(np.array(rows), edges.ravel())
    wall = np.full((height, width, 3), (168, 160, 150), np.uint8)
    flat = Image.fromarray(photo).transform(
        (width, height), Image.Transform.PERSPECTIVE, tuple(inverse), Image.Resampling.BICUBIC
    )
    mask = Image.new("L", (width, height), 255).transform(
        (width, height), Image.Transform.PERSPECTIVE, tuple(inverse), Image.Resampling.BICUBIC
    )
    picture = np.asarray(Image.composite(flat, Image.fromarray(wall), mask)).astype(np.float64)
    shade = np.linspace(0.65, 1.0, width)[None, :, None]
    return np.clip(picture * shade, 0, 255).astype(np.uint8)


@functools.cache
def cups() -> RenderedPlace:
    """Return photographs around a cup, 30° apart."""
    return render_place("cup", 0, SIZE, count=12, variety=1.0)


def cup_before_a_street() -> tuple[Photo, Photo]:
    """Return two photographs of a street in front of which a cup turned."""
    place = cups()
    photos = []
    for background, number in zip(example(0, 1), (0, 1), strict=True):
        cup = place.counts[number][:, :, None]
        photos.append(np.where(cup, place.images[number], background))
    return photos[0], photos[1]


GALLERY = (
    GalleryPair(
        "easy",
        "An easy pair",
        lambda: example(0, 1),
        "A step to the side in front of a street with much texture: every method finds this pose, "
        "and the verdict says so.",
    ),
    GalleryPair(
        "wide",
        "Wide baseline",
        lambda: street(9),
        "The camera moved far and turned, so that many keypoints look different: SIFT alone is off "
        "by 7°, all sources together by 0.5°.",
    ),
    GalleryPair(
        "facade",
        "A repeated façade",
        lambda: street(8),
        "Nearly all windows are equal, so that the most similar one is often wrong; with known "
        "cameras, taking the most similar is off by 14°, five candidates by 0.3°.",
        {"preset": "classic"},
    ),
    GalleryPair(
        "thermal",
        "Visible and thermal",
        lambda: (example(0, 2)[0], thermal(example(0, 2)[1])),
        "The second photograph has a thermal look, in which most of what is bright is dark; SIFT "
        "finds next to nothing, but networks still know what is what.",
    ),
    GalleryPair(
        "night",
        "Day and night",
        lambda: (example(1, 2)[0], night(example(1, 2)[1])),
        "Little light, lamps near the ground and the noise of the sensor: SIFT finds few of the "
        "matches, the networks most of them.",
    ),
    GalleryPair(
        "plane",
        "A plane",
        lambda: (example(0, 1)[0], print_on_a_wall(example(0, 1)[0])),
        "The second photograph shows a print of the first one, so that a homography says "
        "everything; the picture shows both in squares by turns, after warping.",
        align=True,
    ),
    GalleryPair(
        "turned",
        "An object that turned",
        cup_before_a_street,
        "A cup turned while the camera moved along the street: there are two motions, each with "
        "matches of its own, and no two photographs can say which one is the camera's.",
    ),
    GalleryPair(
        "refused",
        "A pair that is refused",
        lambda: (example(0, 1)[0], cups().images[0]),
        "A street and a cup have nothing in common: some candidates agree by chance, as they do in "
        "any two images, and there is no pose in the result. (Two streets of equal buildings would "
        "be harder: only further photographs can tell them apart.)",
    ),
)


def write_photos(pair: GalleryPair, folder: Path) -> list[Path]:
    paths = [folder / f"{pair.name}{k}.jpg" for k in (0, 1)]
    for path, photo in zip(paths, pair.make(), strict=True):
        height, width = photo.shape[:2]
        # The focal length of all rendered photographs.
        focal, x, y = 0.8 * width, (width - 1) / 2, (height - 1) / 2
        camera = mm.Camera.from_matrix([[focal, 0, x], [0, focal, y], [0, 0, 1]], width, height)
        Image.fromarray(photo).save(path, quality=90, exif=camera_exif(camera))
    return paths


def write_app_examples() -> None:
    """Write a print of a photograph of the demo, and a cup, which has nothing in common with it."""
    wall = print_on_a_wall(mm.io.load_image(DEMO / "street0.jpg"))
    for name, photo in (("print", wall), ("cup", cups().images[0])):
        Image.fromarray(photo).save(DEMO / f"{name}.jpg", quality=84, optimize=True)


def shrink(path: Path) -> None:
    picture = Image.open(path).convert("RGB")
    height = round(picture.height * WIDTH / picture.width)
    picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
    picture.save(path, quality=QUALITY, optimize=True, progressive=True)


def draw_plane(alignment: Any, photo: Path, picture: Path) -> None:
    """Draw the first photograph and the warped second one in squares by turns."""
    first = mm.io.load_image(photo)
    warped = alignment.warped()
    y, x = np.indices(first.shape[:2])
    squares = ((x // 120 + y // 120) % 2 == 1) & (warped[:, :, 3] > 0)
    Image.fromarray(np.where(squares[:, :, None], warped[:, :, :3], first)).save(picture)


def section(pair: GalleryPair, folder: Path) -> str:
    """Match a pair, write its picture, and return its part of the page."""
    paths = write_photos(pair, folder)
    picture = PICTURES / f"{pair.name}.jpg"
    if pair.align:
        alignment = mm.align(*paths, **pair.flags)
        draw_plane(alignment, paths[0], picture)
        confidence, told = alignment.confidence, str(alignment).splitlines()[0]
    else:
        result = mm.Matcher(**pair.flags).match(*paths)
        result.plot(picture)
        confidence, told = result.confidence, str(result).splitlines()[0]
    shrink(picture)
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in pair.flags.items())
    command = f"manymatch {'align' if pair.align else 'match'} "
    command += " ".join(f"out/gallery/{path.name}" for path in paths)
    print(f"{pair.name}: {confidence.verdict}: {told}")
    return f"""
## {pair.title}

![{pair.title}](gallery/{pair.name}.jpg)

```sh
{command} {words}
```

> {told}

{pair.sentence}
""".replace(" \n```", "\n```")


def kept_sections() -> dict[str, str]:
    """Return the parts of the page as it is, by their titles."""
    if not PAGE.exists():
        return {}
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.split("\n")[0]: f"\n## {part.rstrip()}\n" for part in parts}


def main() -> None:
    """Make the whole gallery, or the pairs that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these pairs; the others stay as they are")
    given = parser.parse_args()
    folder = ROOT / "out" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    write_app_examples()
    sections = kept_sections() if given.names else {}
    for pair in GALLERY:
        if not given.names or pair.name in given.names:
            sections[pair.title] = section(pair, folder)
    text = "".join(sections[pair.title] for pair in GALLERY)
    PAGE.write_text(INTRODUCTION + text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""``manymatch match``: two images in; pose, matches, picture and report out."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch.cli import console, flags
from manymatch.estimate.words import COMPARISON_HEADINGS, METHOD_TITLES, comparison_rows
from manymatch.io.files import name_end, output_folder
from manymatch.matcher.match_result import FORMATS, MatchResult, check_formats, earlier_result
from manymatch.matcher.matcher import Matcher, image_names

HINT = "all pairs of a folder or a list are matched by: manymatch batch FOLDER"
# Length of the part of a folder's name that one image has; systems limit the whole to 255 bytes.
_LABEL_BYTES = 80

EXAMPLE = "Example: manymatch match a.jpg b.jpg --out out/ab --with-rank-one"


@flags.setting_flags(passed={Matcher.match: "shared_focal with_rank_one longest0 longest1"})
def run(
    image0: Annotated[Path, "The first image: a file, or an address such as s3://bucket/a.jpg."],
    image1: Annotated[Path, "The second image."],
    camera0: Annotated[
        str | None,
        "Focal length in pixels, fx,fy,cx,cy or MODEL,width,height,params..., a .txt or .json "
        "file, a COLMAP model, or unknown; by default the focal length is found, near EXIF's.",
    ] = None,
    camera1: Annotated[str | None, "The second camera, likewise."] = None,
    images: Annotated[
        Path | None,
        "Folder to which names of images in files for hloc and COLMAP are relative; by default the "
        "deepest one that holds both.",
    ] = None,
    out: Annotated[
        Path | None,
        "Folder for the picture, the report and the files; by default out/<image0>_<image1>. An "
        "earlier result in it is replaced.",
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help=f"Matches as {', '.join(FORMATS)}, by default npz; several by commas or repeated.",
        ),
    ] = None,
    protocol: flags.Protocol = None,
    picture: Annotated[bool, "Write matches.png."] = True,
    report: Annotated[bool, "Write report.html."] = True,
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Find the relative pose of two images and their one-to-one matches.

    Exit codes: 0 if the images match, 1 if not, 2 if the input is bad or the result cannot be
    written (it is printed all the same).
    """
    names = image_names(image0, image1, images)
    chosen = check_formats(flags.split_list(*(formats or ["npz"])), names, "names of images")
    folder = output_folder(out or pair_folder(image0, image1), "--out")
    console.check_images(image0=image0, image1=image1)
    earlier = earlier_result(folder)[0]
    matcher = Matcher(flags.protocol_config(protocol, settings), **runtime)
    with console.working("Matching", quiet=as_json):
        result = matcher.match(image0, image1, camera0, camera1, images_folder=images, **passed)

    def write() -> dict[str, Path]:
        command = console.command_line()
        return result.save(folder, chosen, picture=picture, report=report, command=command)

    def show() -> None:
        _print(result)
        if result.homography is not None:
            console.print_plain(f"\nNext: manymatch align {shlex.join([str(image0), str(image1)])}")

    def finish(written: dict[str, Path]) -> None:
        console.print_files(written)
        if written and earlier not in ((), result.names):
            console.print_plain(f"They replace the result of {' and '.join(earlier)}.")

    record = result.to_dict() if as_json else None
    console.deliver(write, show, record, success=result.success, finish=finish)


def pair_folder(image0: Path, image1: Path) -> Path:
    """Return the default folder for the result of two images, named after the paths of both."""
    return Path("out") / "_".join(_label(image) for image in (image0, image1))


def _label(image: Path) -> str:
    """Make a name of an image's path, from the current folder if the image is below it."""
    path = Path(os.path.abspath(image))  # noqa: PTH100 - resolve() would follow links
    inside = path.is_relative_to(Path.cwd())
    parts = path.relative_to(Path.cwd()).parts if inside else path.parts[1:]
    whole = "/".join((*parts[:-1], path.stem))
    name = re.sub(r"[^\w.-]+", "-", whole.replace("/", "-")).lstrip(".") or "image"
    if len(name.encode()) <= _LABEL_BYTES:
        return name
    digits = hashlib.sha256(os.fsencode(whole)).hexdigest()[:8]
    return f"{digits}-{name_end(name, _LABEL_BYTES)}"


def _print(result: MatchResult) -> None:
    console.print_plain(f"{result}\n")
    rows = {
        "features": f"{result.config.title} ({result.config.preset})",
        "method": METHOD_TITLES[result.config.method],
        "candidates": f"{result.counts['associated']:,} found, {result.graph.num_edges:,} kept",
        "samples": f"{result.estimate.iterations:,}",
        "seconds": ", ".join(f"{stage} {value:.2f}" for stage, value in result.timing.items()),
    }
    console.print_table({"": "left", " ": "left"}, rows.items())
    if result.rank_one is not None:
        console.print_plain("")
        print_comparison(result)


def print_comparison(result: MatchResult, errors_deg: list[float] | None = None) -> None:
    """Print the result beside the rank-one result, with pose errors where they are known."""
    rows = comparison_rows(result.systems(), errors_deg)
    headings = COMPARISON_HEADINGS[: len(rows[0])]
    console.print_table({name: "right" if name != "system" else "left" for name in headings}, rows)

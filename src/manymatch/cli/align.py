"""``manymatch align``: two images in; the second warped onto the first out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from manymatch.cli import console, flags
from manymatch.cli.match import pair_folder
from manymatch.estimate.homography import PLANAR_MODELS
from manymatch.io.files import output_folder
from manymatch.matcher.align import align
from manymatch.matcher.matcher import Matcher

EXAMPLE = "Example: manymatch align visible.jpg thermal.jpg --model affine --out out/thermal"
HINT = "two images with a relative pose are matched by: manymatch match IMAGE0 IMAGE1"


@flags.setting_flags(passed={Matcher.match: "longest0 longest1"})
def run(
    image0: Annotated[Path, "The image that stays as it is."],
    image1: Annotated[Path, "The image that is warped onto it."],
    model: Annotated[
        str, f"What maps one to the other: {' or '.join(PLANAR_MODELS)}."
    ] = "homography",
    out: Annotated[
        Path | None,
        "Folder for alignment.json, warped.png and overlay.html; by default out/<image0>_<image1>. "
        "An earlier result in it is replaced.",
    ] = None,
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Warp the second image onto the first, by a homography or an affine map.

    For a plane, images from one place, and images of different sensors: visible and thermal, RGB
    and infrared, maps and photographs from above. overlay.html compares the two with a slider, by
    blinking or blended. The threshold is 3 px unless it is given.

    Exit codes: 0 if the images match, 1 if not, 2 if the input is bad or the result cannot be
    written (it is printed all the same).
    """
    folder = output_folder(out or pair_folder(image0, image1), "--out")
    console.check_images(image0=image0, image1=image1)
    chosen: Any = model
    with console.working("Aligning", quiet=as_json):
        result = align(image0, image1, chosen, **passed, **settings, **runtime)

    record = result.to_dict() if as_json else None
    console.deliver(
        lambda: result.save(folder, console.command_line()),
        lambda: console.print_plain(result),
        record,
        success=result.success,
    )

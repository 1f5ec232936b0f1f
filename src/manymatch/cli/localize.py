"""``manymatch localize``: photographs in, their poses in a model out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from manymatch._validate import count
from manymatch.cli import console, flags
from manymatch.estimate.words import probability_text
from manymatch.io.files import output_folder
from manymatch.reconstruct.localize import localize, write_localized

EXAMPLE = "Example: manymatch localize new_photos --map out/model --out out/localized"


@flags.setting_flags(passed={localize: "images query_images cameras similar"})
def run(
    queries: Annotated[
        list[str],
        typer.Argument(
            help="Photographs: a folder, image files, or a list with one name a line, maybe "
            "followed by MODEL width height params... as in hloc's lists."
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--map", help="A COLMAP model, or the folder that manymatch reconstruct wrote."
        ),
    ] = None,
    out: Annotated[
        Path, "Folder for poses.txt (as hloc writes it), localized.json and map.png."
    ] = Path("out/localized"),
    picture: Annotated[bool, "Write map.png, the map from above."] = True,
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Find out where photographs were taken, in a model of the place.

    Poses map the model's frame to the camera, x_cam = R X + t. One line of poses.txt is name qw qx
    qy qz tx ty tz.

    Exit codes: 0 if at least one photograph was found and all could be read, 1 otherwise, 2 if the
    input is bad, 130 after Ctrl-C.
    """
    if model is None:
        raise ValueError("--map is missing: manymatch localize QUERIES --map MODEL")
    folder = output_folder(out, "--out")
    with console.Tracker() as tracker:
        found = localize(queries, model, progress=tracker, **passed, **settings, **runtime)

    def show() -> None:
        for note in found[0].config.notes:
            console.print_plain(note, style="dim")
        columns = {"photograph": "left", "verdict": "left", "right": "right", "matches": "right"}
        rows = [
            (
                one.name,
                one.confidence.verdict,
                probability_text(one.confidence.pose_probability) if one.success else "",
                f"{len(one.matches):,}" if one.success else "",
                ", ".join(one.matched_images[:2]) if one.success else one.confidence.reason,
            )
            for one in found
        ]
        console.print_table({**columns, "seen in": "left"}, rows)
        counts = Counter(str(one.confidence.verdict) for one in found)
        console.print_plain(f"{count(len(found), 'photograph')}: {console.counts_text(counts)}.")

    record = {"queries": [one.to_dict() for one in found]} if as_json else None
    good = any(one.success for one in found) and not any(one.unreadable for one in found)
    console.deliver(
        lambda: write_localized(found, folder, picture=picture), show, record, success=good
    )

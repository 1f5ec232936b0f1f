"""``manymatch reconstruct``: photographs in, a model out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from manymatch._validate import count
from manymatch.batch.batch import run_batch
from manymatch.cli import console, flags
from manymatch.geometry.pose import rotation_error_deg, translation_error_deg
from manymatch.io.files import read_text
from manymatch.matcher.config import MatcherConfig
from manymatch.reconstruct.reconstruct import reconstruct

if TYPE_CHECKING:
    from manymatch.reconstruct.reconstruction import Reconstruction

EXAMPLE = "Example: manymatch reconstruct photos --out out/model --preset classic"
#: Photographs of a courtyard, and their true cameras.
DEMO = Path(__file__).parents[1] / "demo_photos" / "courtyard"
_RIGHT_DEG = 10.0
# Refused pairs whose reasons are printed.
_REASONS = 3


@flags.setting_flags(
    passed={
        reconstruct: "out cameras camera_per pairs similar mapper guided most_frames text",
        run_batch: "workers engine address",
    }
)
def run(
    photos: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of photographs, with those in folders below, or a video.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="Take 20 rendered photographs of a courtyard with four equal fronts."
        ),
    ] = False,
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Reconstruct a scene from photographs: camera poses, points and a page.

    Pairs are matched, those that cannot be true in one scene are refused, and COLMAP's mappers make
    a model of the others. It is in OUT/sparse/0 in COLMAP's format, with transforms.json for
    radiance fields, points.ply and the page index.html beside it.

    Exit codes: 0 if there is a model, 1 if no photographs could be placed, 2 if the input is bad,
    130 after Ctrl-C.
    """
    if demo == (photos is not None):
        given = "none" if photos is None else repr(str(photos))
        want = "left out with --demo" if demo else "a folder of photographs or a video"
        raise ValueError(f"photos must be {want}, got {given}")
    photos = DEMO / "images" if photos is None else photos
    console.check_file(photos, "photos", "a folder of photographs or a video")
    config = MatcherConfig.of(**settings)
    for note in () if as_json else config.notes:
        console.print_plain(note, style="dim")
    with console.Tracker() as tracker:
        passed |= {"preset": config, "seed": config.options.seed, "progress": tracker}
        found = reconstruct(photos, **passed, **runtime)
    if as_json:
        console.print_json(found.to_dict())
        raise typer.Exit(console.OK if found else console.UNSOLVED)
    console.print_plain(found)
    if demo:
        console.print_plain(_demo_sentence(found))
    refused = [pair for pair in found.pairs if pair.reason and not pair.accepted]
    for pair in sorted(refused, key=lambda pair: -pair.matches)[:_REASONS]:
        console.print_plain(f"  {pair.name0} - {pair.name1}: {pair.reason}", style="dim")
    if found.missing and found:
        names = ", ".join(found.missing[:5]) + (", ..." if len(found.missing) > 5 else "")
        console.print_plain(f"{count(len(found.missing), 'photograph')} in no model: {names}")
    for note in found.notes:
        console.print_plain(note, style="dim")
    stages = ", ".join(
        f"{name} {console.time_text(s)}" for name, s in found.seconds.items() if s >= 0.5
    )
    console.print_plain(f"Time: {stages or 'less than a second'}.", style="dim")
    console.print_files(found.files)
    raise typer.Exit(console.OK if found else console.UNSOLVED)


def _demo_sentence(found: Reconstruction) -> str:
    """Say how many pairs of cameras of the demo are right."""
    true = json.loads(read_text(DEMO / "cameras.json", "the cameras of the demo"))
    model, right = found.models[0] if found else None, 0
    pairs = list(itertools.combinations(sorted(true), 2))
    for name0, name1 in pairs:
        if model is not None and name0 in model.poses and name1 in model.poses:
            R0, R1 = (np.array(true[name]["R"]) for name in (name0, name1))
            t0, t1 = (np.array(true[name]["t"]) for name in (name0, name1))
            R, t = R1 @ R0.T, t1 - R1 @ R0.T @ t0
            own_R, own_t = model.relative(name0, name1)
            turned = rotation_error_deg(own_R, R)
            ahead = own_t @ t > 0.0  # a model knows the sign
            right += ahead and max(turned, translation_error_deg(own_t, t)) < _RIGHT_DEG
    return (
        f"Against the true cameras, {right} of {len(pairs)} pairs of photographs have the right "
        f"relative pose, within {_RIGHT_DEG:g}°. What COLMAP alone makes of them is in "
        "docs/guides/photographs.md."
    )

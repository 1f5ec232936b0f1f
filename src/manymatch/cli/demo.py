"""``manymatch demo``: two made photographs, matched the plain way and by many candidates."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from manymatch._files import write_whole
from manymatch._optional import require
from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json, working
from manymatch.evaluate import pose_error_deg
from manymatch.matcher.files import save_result
from manymatch.matcher.matcher import Matcher
from manymatch.viz import plot_candidates
from tools.street.rendered import RenderedScene, render_scene

if TYPE_CHECKING:
    from manymatch.estimate.relative_pose import Estimate
    from manymatch.matcher.result import MatchResult

EXAMPLE = "Example: manymatch demo --preset classic --scene 3 --out out/demo"
_RIGHT_DEG = 5.0


def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the photographs, pictures and the report.")
    ] = Path("out/demo"),
    scene: Annotated[int, typer.Option(min=0, help="Which street to build.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    preset: flags.Preset = None,
    seed: flags.Seed = None,
    extra: flags.Set = None,
    device: flags.Device = "auto",
) -> None:
    """Photograph a made street with many equal windows twice, and find how the camera moved.

    The windows look alike, so the most similar one is often the wrong one. Shown side by side:
    rank-one matches with plain consensus, and several candidates a keypoint that geometry resolves.
    """
    with clean_exit():
        settings = flags.matcher_settings(preset=preset, device=device, extra=extra, seed=seed)
        matcher = Matcher(**settings)
        with working("Building a street and taking two photographs", quiet=as_json):
            street = render_scene(scene)
        with working("Matching", quiet=as_json):
            result = matcher.match(
                street.image0, street.image1, street.camera0, street.camera1, compare=True
            )
        result.names = ("street0.png", "street1.png")
        true = street.pose
        result.rivals = [
            dataclasses.replace(r, error_deg=pose_error_deg(r.estimate.pose, true.R, true.t))
            for r in result.rivals
        ]
        with working("Drawing", quiet=as_json):
            files = _write(street, result, out_folder)
        if as_json:
            print_json(_record(street, result, files))
        else:
            _tell(street, result, files)
    raise typer.Exit(OK if result.estimate.success else UNSOLVED)


def _errors(street: RenderedScene, result: MatchResult) -> list[tuple[str, Estimate, float]]:
    """Return name, estimate and pose error of the plain way, then of ours."""
    rows = [(rival.name, rival.estimate) for rival in result.rivals]
    own = f"{result.config.association.k} candidates a keypoint, {result.config.method}"
    rows.append((own, result.estimate))
    true = street.pose
    return [(name, e, pose_error_deg(e.pose, true.R, true.t)) for name, e in rows]


def _write(street: RenderedScene, result: MatchResult, folder: Path) -> dict[str, Path]:
    """Write photographs, pictures, report and JSON; without matplotlib there are no pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    image = require("PIL.Image", "writing photographs", "images")
    files = {}
    for name, pixels in zip(result.names, (street.image0, street.image1), strict=True):
        files[name] = folder / name
        save = functools.partial(image.fromarray(pixels).save, format="PNG")
        write_whole(files[name], save)
    (rank_one, plain, plain_error), (_, _, error) = _errors(street, result)
    try:
        files["rank-one"] = folder / "rank_one.png"
        plot_candidates(
            result.rivals[0].graph,
            result.size0,
            result.size1,
            files["rank-one"],
            images=(street.image0, street.image1),
            estimate=plain,
            title=f"{rank_one}: pose error {plain_error:.1f}°",
        )
        pictures = True
    except ModuleNotFoundError:
        del files["rank-one"]
        pictures = False
    command = f"manymatch demo --scene {street.seed} --preset {result.config.preset}"
    return {
        **files,
        **save_result(result, folder, picture=pictures, command=command, error_deg=error),
    }


def _tell(street: RenderedScene, result: MatchResult, files: dict[str, Path]) -> None:
    console = out()
    for note in result.notes[:-2]:
        console.print(note, style="dim", markup=False)
    console.print(
        f"Two photographs of a made street, {street.baseline:.1f} m apart; "
        f"{result.counts['keypoints0']} and {result.counts['keypoints1']} keypoints.\n"
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in ("candidates", "inliers", "matches", "pose error °"):
        table.add_column(name, justify="right")
    rows = _errors(street, result)
    for name, estimate, error in rows:
        style = "green" if error < _RIGHT_DEG else "red"
        table.add_row(
            name,
            str(estimate.inliers.size),
            str(estimate.num_inliers),
            str(len(estimate.matches)),
            f"[{style}]{error:.2f}[/]",
        )
    console.print(table)
    console.print()
    console.print(_summary(rows[0][2], rows[1][2], result), markup=False)
    console.print()
    for name, path in files.items():
        console.print(f"{name:<11} {path}", markup=False, soft_wrap=True)
    console.print("\nNext: open the report, hover a keypoint and see its candidates. Then:")
    console.print("  manymatch match your0.jpg your1.jpg --compare", markup=False)
    console.print("  manymatch models", markup=False)


def _summary(plain: float, own: float, result: MatchResult) -> str:
    """Say in one or two sentences what the table shows."""
    first = {tuple(edge) for edge in result.graph.up_to_rank(1).edges.tolist()}
    beyond = sum(tuple(match) not in first for match in result.estimate.matches.tolist())
    if own >= _RIGHT_DEG:
        return "The pose of this street is not found; another --scene may be kinder."
    if plain < _RIGHT_DEG:
        return "Both ways find the pose of this street; another --scene may tell them apart."
    return (
        f"Taking each keypoint's best match goes wrong here; keeping several and letting geometry "
        f"choose does not: {beyond} of the {len(result.estimate.matches)} resolved matches were "
        f"not each other's first choice."
    )


def _record(street: RenderedScene, result: MatchResult, files: dict[str, Path]) -> dict[str, Any]:
    (_, _, plain), (_, _, own) = _errors(street, result)
    return {
        "scene": street.seed,
        "error_deg": own,
        "rank_one_error_deg": plain,
        **result.to_dict(),
        "files": {name: str(path) for name, path in files.items()},
    }

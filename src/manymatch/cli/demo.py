"""``manymatch demo``: the package's two photographs, matched plainly and by many candidates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from manymatch._files import read_bytes, write_whole
from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json, working
from manymatch.datasets.demo import demo_pair
from manymatch.evaluate import pose_error_deg
from manymatch.matcher.files import save_result
from manymatch.matcher.matcher import Matcher
from manymatch.viz import plot_candidates

if TYPE_CHECKING:
    from manymatch.estimate.relative_pose import Estimate
    from manymatch.io.pairs import Pair
    from manymatch.matcher.result import MatchResult

EXAMPLE = "Example: manymatch demo --preset classic --out out/demo"
_RIGHT_DEG = 5.0


def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the photographs, pictures and the report.")
    ] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    preset: flags.Preset = None,
    seed: flags.Seed = None,
    extra: flags.Set = None,
    device: flags.Device = "auto",
) -> None:
    """Match two photographs of a street with many equal windows, and find how the camera moved.

    They come with the package, and so does the true pose. The windows look alike, so the most
    similar one is often the wrong one. Shown side by side: rank-one matches with plain consensus,
    and several candidates a keypoint that geometry resolves.
    """
    with clean_exit():
        settings = flags.matcher_settings(preset=preset, device=device, extra=extra, seed=seed)
        matcher = Matcher(**settings)
        pair = demo_pair()
        with working("Matching", quiet=as_json):
            result = matcher.match(pair.path0, pair.path1, pair.camera0, pair.camera1, compare=True)
        result.rivals = [
            dataclasses.replace(r, error_deg=_error_deg(pair, r.estimate)) for r in result.rivals
        ]
        with working("Drawing", quiet=as_json):
            files = _write(pair, result, out_folder)
        if as_json:
            print_json(_record(pair, result, files))
        else:
            _tell(pair, result, files)
    raise typer.Exit(OK if result.estimate.success else UNSOLVED)


def _error_deg(pair: Pair, estimate: Estimate) -> float:
    return pose_error_deg(estimate.pose, pair.R, pair.t)


def _errors(pair: Pair, result: MatchResult) -> list[tuple[str, Estimate, float]]:
    """Return name, estimate and pose error of the plain way, then of ours."""
    rows = [(rival.name, rival.estimate) for rival in result.rivals]
    own = f"{result.config.association.k} candidates a keypoint, {result.config.method}"
    rows.append((own, result.estimate))
    return [(name, e, _error_deg(pair, e)) for name, e in rows]


def _write(pair: Pair, result: MatchResult, folder: Path) -> dict[str, Path]:
    """Write photographs, pictures, report and JSON; without matplotlib there are no pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for path in (pair.path0, pair.path1):
        files[path.name] = folder / path.name
        photograph = read_bytes(path, "a photograph of the demo")
        write_whole(files[path.name], lambda file, data=photograph: file.write(data))
    (rank_one, plain, plain_error), (_, _, error) = _errors(pair, result)
    try:
        files["rank-one"] = folder / "rank_one.png"
        plot_candidates(
            result.rivals[0].graph,
            result.size0,
            result.size1,
            files["rank-one"],
            images=result.images,
            estimate=plain,
            title=f"{rank_one}: pose error {plain_error:.1f}°",
        )
        pictures = True
    except ModuleNotFoundError:
        del files["rank-one"]
        pictures = False
    command = f"manymatch demo --preset {result.config.preset}"
    return {
        **files,
        **save_result(result, folder, picture=pictures, command=command, error_deg=error),
    }


def _tell(pair: Pair, result: MatchResult, files: dict[str, Path]) -> None:
    console = out()
    for note in result.notes[:-2]:
        console.print(note, style="dim", markup=False)
    console.print(
        f"Two photographs of a street, {np.linalg.norm(pair.t):.1f} m apart; "
        f"{result.counts['keypoints0']} and {result.counts['keypoints1']} keypoints.\n"
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in ("candidates", "inliers", "matches", "pose error °"):
        table.add_column(name, justify="right")
    rows = _errors(pair, result)
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
        return "The pose is not found with these settings."
    if plain < _RIGHT_DEG:
        return "Both ways find the pose with these settings."
    return (
        f"Taking each keypoint's best match goes wrong here; keeping several and letting geometry "
        f"choose does not: {beyond} of the {len(result.estimate.matches)} resolved matches were "
        f"not each other's first choice."
    )


def _record(pair: Pair, result: MatchResult, files: dict[str, Path]) -> dict[str, Any]:
    (_, _, plain), (_, _, own) = _errors(pair, result)
    return {
        "error_deg": own,
        "rank_one_error_deg": plain,
        **result.to_dict(),
        "files": {name: str(path) for name, path in files.items()},
    }

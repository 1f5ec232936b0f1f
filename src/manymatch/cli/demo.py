"""``manymatch demo``: a made scene, solved by every method."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json
from manymatch.cli.solve import estimate_record
from manymatch.datasets.synthetic import DEMO, Scene, make_scene
from manymatch.estimate import estimate_relative_pose
from manymatch.evaluate import pose_error_deg, rotation_error_deg, translation_error_deg
from manymatch.options import Options
from manymatch.viz import plot_candidates

if TYPE_CHECKING:
    from manymatch._problem import Method
    from manymatch.estimate import Estimate

EXAMPLE = "Example: manymatch demo --seed 3 --out out/demo"

# From the plainest to the default.
_METHODS: tuple[Method, ...] = ("cm", "hcm", "mcm", "hcm-mcm")
_DRAWN = ("cm", "hcm-mcm")
_RIGHT_DEG = 5.0


@dataclass(frozen=True)
class _Run:
    method: str
    estimate: Estimate
    error_deg: float
    rotation_deg: float | None
    translation_deg: float | None
    milliseconds: float


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path(
        "out/demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Which scene to make.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Make a scene with repeated structure, solve it with every method, draw what was chosen."""
    with clean_exit():
        scene = make_scene(DEMO, seed)
        runs = [_run(scene, method) for method in _METHODS]
        pictures, why_none = _draw(scene, runs, out_folder)
        if as_json:
            print_json(_record(scene, runs, pictures))
        else:
            _tell(scene, runs)
            for line in why_none or [f"Picture: {picture}" for picture in pictures]:
                out().print(line, soft_wrap=True, markup=False)
    raise typer.Exit(OK if runs[-1].estimate.success else UNSOLVED)


def _run(scene: Scene, method: Method) -> _Run:
    options = Options(max_iterations=20_000)
    start = time.perf_counter()
    estimate = estimate_relative_pose(
        scene.graph, scene.camera0, scene.camera1, method=method, options=options
    )
    elapsed = time.perf_counter() - start
    true, found = scene.pose, estimate.pose
    return _Run(
        method=method,
        estimate=estimate,
        error_deg=pose_error_deg(found, true.R, true.t),
        rotation_deg=None if found is None else rotation_error_deg(found.R, true.R),
        translation_deg=None if found is None else translation_error_deg(found.t, true.t),
        milliseconds=1e3 * elapsed,
    )


def _draw(scene: Scene, runs: list[_Run], folder: Path) -> tuple[list[Path], list[str]]:
    """Write the pictures; without matplotlib there are none, and a line says why."""
    pictures = []
    for run in runs:
        if run.method not in _DRAWN:
            continue
        path = folder / f"{run.method}.png"
        try:
            plot_candidates(
                scene.graph,
                scene.size,
                scene.size,
                path,
                estimate=run.estimate,
                is_true=scene.is_true,
                rows=(scene.row0, scene.row1),
                title=f"{run.method}: pose error {run.error_deg:.2f}°",
            )
        except ModuleNotFoundError as error:
            return [], [f"No picture: {error}"]
        pictures.append(path)
    return pictures, []


def _tell(scene: Scene, runs: list[_Run]) -> None:
    console = out()
    num0, num1 = len(scene.graph.points0), len(scene.graph.points1)
    console.print(
        f"A made scene: {num0} and {num1} keypoints, {len(scene.true_matches)} of them seen by "
        f"both cameras, {scene.graph.num_edges} candidates kept, "
        f"{int(scene.is_true.sum())} of those right.\n"
    )
    # Narrow enough for a terminal of 80 columns.
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("\nmethod")
    for name in ("pose\nerror °", "rotation\nerror °", "transl.\nerror °"):
        table.add_column(name, justify="right")
    for name in ("kept", "inliers", "matches", "iterations", "ms"):
        table.add_column(f"\n{name}", justify="right")
    for run in runs:
        estimate = run.estimate
        style = "green" if run.error_deg < _RIGHT_DEG else "red"
        table.add_row(
            run.method,
            f"[{style}]{run.error_deg:.2f}[/]",
            _degrees(run.rotation_deg),
            _degrees(run.translation_deg),
            f"{scene.graph.num_edges}",
            f"{estimate.num_inliers}",
            f"{len(estimate.matches)}",
            f"{estimate.iterations}",
            f"{run.milliseconds:.0f}",
        )
    console.print(table)
    console.print(f"\n{_summary(runs)}")


def _summary(runs: list[_Run]) -> str:
    """Say in one or two sentences what the table shows."""
    right = [run.method for run in runs if run.error_deg < _RIGHT_DEG]
    wrong = [run for run in runs if run.error_deg >= _RIGHT_DEG]
    if not wrong:
        return "Every method finds the pose of this scene; another --seed may tell them apart."
    if not right:
        return "No method finds the pose of this scene; another --seed may be kinder."
    best = next(run for run in reversed(runs) if run.method in right)
    worst = max(wrong, key=lambda run: run.estimate.num_inliers)
    return (
        f"The rows of look-alikes also fit a camera that slid along them: {worst.method} finds "
        f"{worst.estimate.num_inliers} consistent candidates there against "
        f"{best.estimate.num_inliers} at the true pose, and is wrong. But they make only "
        f"{len(worst.estimate.matches)} one-to-one matches against {len(best.estimate.matches)}, "
        f"which is what {best.method} goes by."
    )


def _degrees(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _record(scene: Scene, runs: list[_Run], pictures: list[Path]) -> dict[str, Any]:
    return {
        "seed": scene.seed,
        "keypoints": [len(scene.graph.points0), len(scene.graph.points1)],
        "candidates": scene.graph.num_edges,
        "true_candidates": int(scene.is_true.sum()),
        "true_matches": len(scene.true_matches),
        "methods": {
            run.method: {
                "error_deg": run.error_deg,
                "rotation_error_deg": run.rotation_deg,
                "translation_error_deg": run.translation_deg,
                "milliseconds": run.milliseconds,
                **estimate_record(run.estimate, scene.graph),
            }
            for run in runs
        },
        "pictures": [str(picture) for picture in pictures],
    }

"""``manymatch solve``: candidates in, pose out."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from manymatch._validate import METHODS
from manymatch.cli import _options as flags  # noqa: TC001 - Typer reads the annotations
from manymatch.cli._cameras import parse_camera
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json
from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.geometry.pose_words import describe_pose
from manymatch.io import load_graph
from manymatch.matcher.result import estimate_record, matches_text

if TYPE_CHECKING:
    from manymatch._validate import Method
    from manymatch.estimate.relative_pose import Estimate
    from manymatch.graph import AssociationGraph

EXAMPLE = (
    "Example: manymatch solve pair.npz --camera0 800,800,511.5,383.5 --camera1 800,800,511.5,383.5"
)


def solve(
    graph: Annotated[
        Path,
        typer.Argument(help="Candidates: a graph .npz, an association CSV or a SuperGlue .npz."),
    ],
    camera0: Annotated[
        str, typer.Option(help="fx,fy,cx,cy or MODEL,width,height,params... or a .txt/.json file.")
    ],
    camera1: Annotated[str, typer.Option(help="The second camera, likewise.")],
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "auto",
    max_edges: Annotated[
        int | None, typer.Option(help="Use only that many candidates, best first.")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for pose.json and matches.npz.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    threshold_px: flags.ThresholdPx = Options.threshold_px,
    min_iterations: flags.MinIterations = Options.min_iterations,
    max_iterations: flags.MaxIterations = Options.max_iterations,
    confidence: flags.Confidence = Options.confidence,
    safety: flags.Safety = Options.safety,
    pool_size: flags.PoolSize = Options.pool_size,
    q: flags.Q = Options.q,
    delta: flags.Delta = Options.delta,
    guidance: flags.Guidance = Options.guidance,
    seed: flags.Seed = Options.seed,
    threads: flags.Threads = Options.threads,
    without: flags.Without = None,
) -> None:
    """Estimate the relative pose of two images from candidates of your own."""
    with clean_exit():
        options = Options(
            threshold_px=threshold_px,
            min_iterations=min_iterations,
            max_iterations=max_iterations,
            confidence=confidence,
            safety=safety,
            pool_size=pool_size,
            q=q,
            delta=delta,
            guidance=guidance,
            seed=seed,
            threads=threads,
            without=tuple(without or ()),
        )
        cameras = parse_camera(camera0, "camera0"), parse_camera(camera1, "camera1")
        candidates = load_graph(graph)
        if max_edges is not None:
            candidates = candidates.head(max_edges)
        estimate = estimate_relative_pose(
            candidates, *cameras, method=cast("Method", method), options=options
        )
        record = estimate_record(estimate, candidates)
        record["method"] = method
        record["options"] = options.to_dict()
        record["cameras"] = [camera.to_dict() for camera in cameras]
        if out_folder is not None:
            _write(out_folder, record, estimate, candidates)
        if as_json:
            print_json(record)
        else:
            _tell(estimate, candidates, out_folder)
    raise typer.Exit(OK if estimate.success else UNSOLVED)


def _write(
    folder: Path, record: dict[str, Any], estimate: Estimate, graph: AssociationGraph
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2, allow_nan=False)
    (folder / "pose.json").write_text(text + "\n", encoding="utf-8")
    matches = np.asarray(estimate.matches, dtype=np.int64).reshape(-1, 2)
    scores: dict[str, Any] = {}
    if estimate.match_probability is not None:
        scores["probability"] = estimate.match_probability
    np.savez(
        folder / "matches.npz",
        matches=matches,
        points0=graph.points0[matches[:, 0]],
        points1=graph.points1[matches[:, 1]],
        inliers=estimate.inliers,
        **scores,
    )


def _tell(estimate: Estimate, graph: AssociationGraph, folder: Path | None) -> None:
    console = out()
    if estimate.pose is None:
        console.print(f"No pose was found: {estimate.failure}")
    else:
        console.print(f"Camera 1 is {describe_pose(estimate.pose)}.")
        console.print(
            f"{graph.num_edges} candidates, {estimate.num_inliers} consistent with the pose, "
            f"{matches_text(estimate)}; {estimate.iterations} samples."
        )
        if estimate.low_parallax:
            console.print(
                f"The rays of the matches meet at only {estimate.parallax_deg:.2f}°: trust the "
                "rotation, not the direction of the motion."
            )
    if folder is not None:
        console.print(f"Written: {folder / 'pose.json'}, {folder / 'matches.npz'}", soft_wrap=True)

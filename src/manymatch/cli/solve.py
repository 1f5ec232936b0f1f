"""``manymatch solve``: candidates in, pose out."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import Annotated, Any, cast

import typer

from manymatch.cli import flags
from manymatch.cli.console import OK, UNSOLVED, Json, print_json, print_plain
from manymatch.estimate.confidence import assess
from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.estimate.words import estimate_sentences
from manymatch.io import load_graph, write_matches_npz, write_pose_json
from manymatch.matcher.cameras import parse_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.result import estimate_record

EXAMPLE = (
    "Example: manymatch solve pair.npz --camera0 800,800,511.5,383.5 --camera1 800,800,511.5,383.5"
)


@flags.setting_flags(Options)
def run(
    graph: Annotated[
        Path,
        typer.Argument(help="Candidates: a graph .npz, an association CSV or a SuperGlue .npz."),
    ],
    camera0: Annotated[
        str, typer.Option(help="fx,fy,cx,cy or MODEL,width,height,params... or a .txt/.json file.")
    ],
    camera1: Annotated[str, typer.Option(help="The second camera, likewise.")],
    max_edges: Annotated[
        int | None, typer.Option(help="Use only that many candidates, best first.")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for result.json and matches.npz.")
    ] = None,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Estimate the relative pose of two images from candidates of your own."""
    config = MatcherConfig.of(**{"preset": "classic", **settings})
    cameras = parse_camera(camera0, "camera0"), parse_camera(camera1, "camera1")
    candidates = load_graph(graph)
    if max_edges is not None:
        candidates = candidates.head(max_edges)
    estimate = estimate_relative_pose(
        candidates, *cameras, method=cast("Any", config.method), options=config.options
    )
    confidence = assess(estimate)
    record = {
        **estimate_record(estimate, candidates),
        "confidence": confidence.to_dict(),
        "method": config.method,
        "options": config.options.to_dict(),
        "cameras": [camera.to_dict() for camera in cameras],
    }
    if out_folder is not None:
        out_folder.mkdir(parents=True, exist_ok=True)
        write_pose_json(
            out_folder / "result.json",
            estimate.pose,
            {name: value for name, value in record.items() if name != "pose"},
        )
        write_matches_npz(
            out_folder / "matches.npz",
            candidates.points0,
            candidates.points1,
            estimate.matches,
            confidence=estimate.match_probability,
            pose=estimate.pose,
            config={name: record[name] for name in ("method", "options", "cameras")},
        )
    if as_json:
        print_json(record)
    else:
        for line in estimate_sentences(estimate, candidates, confidence):
            print_plain(line)
        print_plain(f"{estimate.iterations} samples in {estimate.timing['total']:.3f} s.")
        if out_folder is not None:
            print_plain(f"Written: {out_folder / 'result.json'}, {out_folder / 'matches.npz'}")
    raise typer.Exit(OK if estimate.success else UNSOLVED)

"""``manymatch solve``: candidates in; pose or homography out."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch._files import output_folder, whole_files, write_text
from manymatch._validate import choice, count
from manymatch.cli import flags
from manymatch.cli.console import OK, UNSOLVED, Json, check_file, deliver, print_json, print_plain
from manymatch.estimate.confidence import assess
from manymatch.estimate.homography import estimate_homography
from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.estimate.words import estimate_sentences
from manymatch.io import load_graph, write_matches_npz, write_pose_json
from manymatch.io.matches import to_json
from manymatch.matcher.cameras import parse_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.result import earlier_result, estimate_record, other_poses

if TYPE_CHECKING:
    from manymatch.geometry.camera import Camera

EXAMPLE = (
    "Example: manymatch solve pair.npz --camera0 800,800,511.5,383.5 --camera1 800,800,511.5,383.5"
)
HINT = "two images are matched by: manymatch match IMAGE0 IMAGE1"
_PROBLEMS = ("relative", "homography")
_CONVENTION = "x1 ~ homography @ x0 in pixels; homography[2][2] is 1"


@flags.setting_flags(Options)
def run(
    graph: Annotated[
        Path,
        typer.Argument(help="Candidates: a graph .npz, an association CSV or a SuperGlue .npz."),
    ],
    problem: Annotated[
        str, typer.Option(help="What to estimate: the relative pose (relative) or a homography.")
    ] = "relative",
    camera0: Annotated[
        str | None,
        typer.Option(
            help="For a relative pose: fx,fy,cx,cy or MODEL,width,height,params... or a .txt or "
            ".json file."
        ),
    ] = None,
    camera1: Annotated[str | None, typer.Option(help="The second camera, likewise.")] = None,
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
    """Estimate the relative pose or homography of two images from candidates of your own.

    Exit codes: 0 with a result, 1 if there is none, 2 if the input is bad or the result, which is
    printed all the same, cannot be written.
    """
    choice(problem, "--problem", _PROBLEMS)
    config = MatcherConfig.of(**{"preset": "classic", **settings})
    method: Any = config.method
    check_file(graph, "graph", "a file of candidates")
    cameras = _cameras(problem, camera0=camera0, camera1=camera1)
    if out_folder is not None:
        output_folder(out_folder, "--out")
    candidates = load_graph(graph)
    if max_edges is not None:
        candidates = candidates.head(max_edges)
    if problem == "homography":
        estimate, confidence = estimate_homography(candidates, method, config.options), None
    else:
        first, second = cameras
        estimate = estimate_relative_pose(candidates, first, second, method, config.options)
        confidence = assess(estimate)
    how = {
        "problem": problem,
        "method": method,
        "options": config.options.to_dict(),
        "cameras": [camera.to_dict() for camera in cameras],
    }
    record = {**estimate_record(estimate, candidates), **how}
    if confidence is not None:
        record["confidence"] = confidence.to_dict()

    def write() -> dict[str, Path]:
        if out_folder is None:
            return {}
        files = {"json": "result.json", "npz": "matches.npz"}
        with whole_files(out_folder, earlier_result(out_folder).files) as place:
            content = {**record, "files": list(files.values())}
            if problem == "homography":
                text = to_json({"convention": _CONVENTION, **content}, "result", indent=2)
                write_text(place / files["json"], f"{text}\n")
            else:
                del content["pose"]
                write_pose_json(place / files["json"], estimate.pose, content)
            write_matches_npz(
                place / files["npz"],
                candidates.points0,
                candidates.points1,
                estimate.matches,
                confidence=estimate.match_probability,
                pose=estimate.pose,
                inliers=candidates.edges[estimate.inliers],
                config=how,
                alternatives=other_poses(estimate),
            )
        return {name: out_folder / file for name, file in files.items()}

    def show(written: dict[str, Path]) -> None:
        if as_json:
            files = {name: str(path) for name, path in written.items()}
            print_json({**record, "files": files})
            return
        for line in estimate_sentences(estimate, candidates, confidence):
            print_plain(line)
        print_plain(f"{count(estimate.iterations, 'sample')} in {estimate.timing['total']:.3f} s.")
        if written:
            print_plain(f"Written: {', '.join(map(str, written.values()))}")

    deliver(write, show)
    raise typer.Exit(OK if estimate.success else UNSOLVED)


def _cameras(problem: str, **given: str | None) -> list[Camera]:
    """Read the cameras of a relative pose; a homography has none."""
    wanted = problem == "relative"
    for name, text in given.items():
        if (text is not None) != wanted:
            if not wanted:
                raise ValueError(f"--{name} must be left out for a homography, got {text!r}")
            raise ValueError(
                f"--{name} must be given for a relative pose, as fx,fy,cx,cy or a file; --problem "
                "homography needs no cameras"
            )
    return [parse_camera(text, name) for name, text in given.items() if text is not None]

"""``manymatch solve``: candidates in; a model of the geometry out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from manymatch._validate import choice, count
from manymatch.cli import console, flags
from manymatch.estimate.confidence import assess
from manymatch.estimate.homography import PLANAR_MODELS
from manymatch.estimate.many import PROBLEMS
from manymatch.estimate.relative_pose import estimate_relative_pose
from manymatch.estimate.words import NOTHING, estimate_sentences
from manymatch.geometry.pose import RelativePose
from manymatch.io import load_graph, write_matches_npz
from manymatch.io.files import output_folder, whole_files, write_text
from manymatch.io.matches import to_json
from manymatch.matcher.cameras import parse_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.match_result import CONVENTION, earlier_result, other_poses
from manymatch.options import Options

EXAMPLE = (
    "Example: manymatch solve pair.npz --camera0 800,800,511.5,383.5 --camera1 800,800,511.5,383.5"
)
HINT = "two images are matched by: manymatch match IMAGE0 IMAGE1"

# What maps to what, for result.json.
_CLOUDS = "x1 = transform @ x0 in homogeneous coordinates"
_CONVENTIONS = {
    "relative": CONVENTION,
    "homography": "x1 ~ homography @ x0 in pixels; homography[2][2] is 1",
    "fundamental": "x1 @ fundamental @ x0 = 0 in pixels; its norm is 1",
    "absolute": "x = R @ X + t maps coordinates of the map to those of the camera",
    "rigid": _CLOUDS,
    "similarity": f"{_CLOUDS}; scale is that of its 3x3 part",
}
_MODELS = ("homography", "fundamental", "transform", "scale")


@flags.setting_flags(Options, passed={estimate_relative_pose: "shared_focal"})
def run(
    graph: Annotated[
        Path,
        "Candidates: a graph .npz, an .npz with points0, points1 and edges (or points2D, points3D "
        "and edges), an association CSV or a SuperGlue .npz.",
    ],
    problem: Annotated[str, f"What to estimate: {', '.join(PROBLEMS)}."] = "relative",
    camera0: Annotated[
        str | None,
        "For a relative pose: fx,fy,cx,cy or MODEL,width,height,params... or a .txt or .json file; "
        "unknown,width,height if the focal length is to be found.",
    ] = None,
    camera1: Annotated[str | None, "The second camera, likewise."] = None,
    camera: Annotated[str | None, "For an absolute pose: the camera, likewise."] = None,
    threshold: Annotated[
        float | None, "For a rigid transform or a similarity, in the unit of the points."
    ] = None,
    model: Annotated[str | None, f"For a homography: {' or '.join(PLANAR_MODELS)}."] = None,
    max_edges: Annotated[int | None, "Use only that many candidates, best first."] = None,
    out: Annotated[Path | None, "Folder for result.json and matches.npz."] = None,
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    passed: dict[str, Any],
) -> None:
    """Estimate a pose, a matrix or a transform from candidates of your own.

    Exit codes: 0 with a result, 1 if there is none or nothing matches, 2 if the input is bad or the
    result cannot be written (it is printed all the same).
    """
    choice(problem, "--problem", PROBLEMS)
    config = MatcherConfig.of(**{"preset": "classic", **settings})
    console.check_file(graph, "graph", "a file of candidates")
    candidates = load_graph(graph)
    given = {
        "camera0": camera0,
        "camera1": camera1,
        "camera": camera,
        "threshold": threshold,
        "shared-focal": passed["shared_focal"],
        "model": model,
    }
    arguments, keywords = _arguments(problem, given)
    if out is not None:
        output_folder(out, "--out")
    if max_edges is not None:
        candidates = candidates.head(max_edges)
    function = PROBLEMS[problem].estimate
    estimate = function(candidates, *arguments, config.method, config.options, **keywords)
    confidence = assess(estimate)
    success = confidence.verdict not in NOTHING
    if estimate.success and not success:
        estimate = estimate.refused(confidence.reason)
    how = {
        "problem": problem,
        **({"model": model} if model else {}),
        "method": config.method,
        "options": config.options.to_dict(),
        "cameras": [camera.to_dict() for camera in getattr(estimate, "cameras", ())],
    }
    record = {"pose": None, **estimate.to_dict(), **how, "confidence": confidence.to_dict()}

    def write() -> dict[str, Path]:
        if out is None:
            return {}
        files = {"json": "result.json", "npz": "matches.npz"}
        with whole_files(out, earlier_result(out)[1]) as place:
            extra = {"convention": _CONVENTIONS[problem], "files": list(files.values())}
            text = to_json({**record, **extra}, "result", indent=2)
            write_text(place / files["json"], f"{text}\n")
            # A file of matches has arrays for relative poses; other models are part of `config`.
            own = {name: record[name] for name in _MODELS if name in record}
            if problem == "absolute":
                own["pose"] = record["pose"]
            inliers = candidates.edges[estimate.inliers]
            write_matches_npz(
                place / files["npz"],
                candidates.points0,
                candidates.points1,
                estimate.matches,
                confidence=estimate.match_probability,
                pose=estimate.model if isinstance(estimate.model, RelativePose) else None,
                inliers=inliers,
                config={**how, **own},
                alternatives=other_poses(estimate),
                source=candidates.source_of(estimate.matches),
                inlier_source=candidates.source_of(inliers),
                source_names=candidates.source_names,
            )
        return {name: out / file for name, file in files.items()}

    def show() -> None:
        for line in estimate_sentences(estimate, candidates, confidence):
            console.print_plain(line)
        console.print_plain(
            f"{count(estimate.iterations, 'sample')} in {estimate.timing['total']:.3f} s."
        )

    def finish(written: dict[str, Path]) -> None:
        if written:
            console.print_plain(f"Written: {', '.join(map(str, written.values()))}")

    shown = record if as_json else None
    console.deliver(write, show, shown, success=success, finish=finish)


def _arguments(problem: str, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Read the arguments and keywords of a problem, and refuse those of other problems."""
    wanted = PROBLEMS[problem].arguments
    keywords = {"relative": "shared-focal", "homography": "model"}.get(problem, "")
    if "camera" in wanted and given["camera"] is None:
        given = {**given, "camera": given["camera0"], "camera0": None}
    if given["model"] is not None:
        choice(given["model"], "--model", PLANAR_MODELS)
    for name, value in given.items():
        if value is not None and name not in (*wanted, keywords):
            raise ValueError(f"--{name} must be left out for --problem {problem}, got {value!r}")
    for name in wanted:
        if given[name] is None:
            how = "as fx,fy,cx,cy, unknown,width,height or a file"
            if name == "threshold":
                how = "in the unit of the points"
            elif problem == "relative":
                how += "; --problem homography and fundamental need no cameras"
            raise ValueError(f"--{name} must be given for --problem {problem}, {how}")
    read = [
        parse_camera(given[name], name) if isinstance(given[name], str) else given[name]
        for name in wanted
    ]
    own = given.get(keywords)
    return read, {} if own is None else {keywords.replace("-", "_"): own}

"""``manymatch demo``: the package's two photographs, matched by rank one and by many candidates."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

from manymatch.cli import console, flags
from manymatch.cli.match import print_comparison
from manymatch.features.device import default_preset
from manymatch.geometry.pose import RelativePose, pose_error_deg
from manymatch.io.files import local_path, output_folder, whole_files
from manymatch.io.pairs import demo_pair
from manymatch.matcher.match_result import RANK_ONE, MatchResult
from manymatch.matcher.matcher import Matcher

EXAMPLE = "Example: manymatch demo --preset classic --out out/demo"
_RIGHT_DEG = 5.0


@flags.setting_flags(only=("method", "seed"))
def run(
    out: Annotated[Path, "Folder for the photographs, pictures and the report."] = Path("out/demo"),
    as_json: console.Json = False,
    *,
    settings: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Match two photographs that come with the package, and write pictures and a report.

    They are rendered and show a street with many equal windows, so that the most similar window is
    often the wrong one. Shown side by side: rank-one matches with plain consensus, and several
    candidates per keypoint that geometry resolves. The streets were chosen because the latter gain
    there; benchmarks/results/demo.md says by which rule, and how often they gain and lose on other
    streets.
    """
    # One source: rank-one matches are then the usual ones, and the picture shows one kind.
    settings = {"preset": default_preset(one_source=True)[0], **settings}
    output_folder(local_path(out, "--out"), "--out")
    matcher = Matcher(**settings, **runtime)
    pair = demo_pair(matcher.config.preset)
    true = RelativePose(pair.R, pair.t)  # type: ignore[arg-type] # this pair has its true pose
    with console.working("Matching", quiet=as_json):
        result = matcher.match(
            pair.path0, pair.path1, pair.camera0, pair.camera1, with_rank_one=True
        )
    errors = [pose_error_deg(estimate.pose, true.R, true.t) for _, estimate in result.systems()]

    def write() -> dict[str, Path]:
        copies = {path.name: out / path.name for path in (pair.path0, pair.path1)}
        with whole_files(out) as place:
            for path in (pair.path0, pair.path1):
                shutil.copy(path, place)
        rank_one: Any = result.rank_one
        files = {"rank-one": out / "rank_one.png"}
        title = f"{RANK_ONE}: pose error {errors[1]:.1f}°"
        drawn = {"graph": rank_one.graph, "estimate": rank_one.estimate, "title": title}
        result.plot(files["rank-one"], **drawn)
        command = f"manymatch demo --preset {result.config.preset}"
        return copies | files | result.save(out, command=command, true_pose=true)

    def show() -> None:
        console.print_plain("Two rendered photographs of a street, whose true pose is known:")
        console.print_plain(f"{result}\n")
        print_comparison(result, errors)
        console.print_plain(f"\n{_summary(result, *errors)}")

    def finish(files: dict[str, Path]) -> None:
        console.print_files(files)
        if files:
            console.print_plain(
                "\nNext: open the report, hover a keypoint and see its candidates. Then:"
            )
            console.print_plain(
                "  manymatch match your0.jpg your1.jpg --with-rank-one\n  manymatch models"
            )

    record = {"error_deg": errors[0], "rank_one_error_deg": errors[1], **result.to_dict()}
    shown = record if as_json else None
    console.deliver(write, show, shown, success=result.success, finish=finish)


def _summary(result: MatchResult, own: float, rank_one: float) -> str:
    if own >= _RIGHT_DEG:
        return "The pose is not found with these settings."
    if rank_one < _RIGHT_DEG:
        return "Both ways find the pose with these settings."
    first = {tuple(edge) for edge in result.graph.up_to_rank(1).edges.tolist()}
    beyond = sum(tuple(match) not in first for match in result.matches.tolist())
    return (
        f"Taking each keypoint's best match gives a wrong pose here; keeping several candidates "
        f"gives the right one: of the {len(result.matches):,} resolved matches, {beyond:,} are not "
        "the first choice of both keypoints. The street was chosen for this; "
        "benchmarks/results/demo.md says how often several candidates gain and lose."
    )

"""``manymatch match``: two images in; pose, matches, picture and report out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manymatch.associate.candidates import Association
from manymatch.cli import flags
from manymatch.cli.console import OK, UNSOLVED, Json, print_json, print_plain, print_table, working
from manymatch.estimate.options import Options
from manymatch.estimate.words import COMPARISON_HEADINGS, comparison_rows
from manymatch.features.config import FeatureConfig
from manymatch.matcher.matcher import Matcher
from manymatch.matcher.result import FORMATS

if TYPE_CHECKING:
    from manymatch.matcher.result import MatchResult

EXAMPLE = "Example: manymatch match a.jpg b.jpg --out out/ab --with-rank-one"


@flags.setting_flags(FeatureConfig, Association, Options)
def run(
    image0: Annotated[Path, typer.Argument(help="The first image.")],
    image1: Annotated[Path, typer.Argument(help="The second image.")],
    camera0: Annotated[
        str | None,
        typer.Option(
            help="fx,fy,cx,cy, or MODEL,width,height,params..., or a .txt or .json file, or a "
            "COLMAP model; by default from EXIF, else guessed."
        ),
    ] = None,
    camera1: Annotated[str | None, typer.Option(help="The second camera, likewise.")] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the picture, the report and the files.")
    ] = Path("out/match"),
    formats: Annotated[
        str,
        typer.Option("--format", help=f"Matches as {', '.join(FORMATS)}; several by commas."),
    ] = "npz",
    with_rank_one: Annotated[
        bool,
        typer.Option("--with-rank-one", help="Also match with rank-one edges and plain consensus."),
    ] = False,
    picture: Annotated[bool, typer.Option(help="Write matches.png.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    longest0: flags.Longest0 = None,
    longest1: flags.Longest1 = None,
    as_json: Json = False,
    *,
    settings: dict[str, Any],
    runtime: dict[str, Any],
) -> None:
    """Find the relative pose of two images and their one-to-one matches."""
    matcher = Matcher(**settings, **runtime)
    with working("Matching", quiet=as_json):
        result = matcher.match(
            image0,
            image1,
            camera0,
            camera1,
            longest0=longest0,
            longest1=longest1,
            with_rank_one=with_rank_one,
        )
    with working("Writing", quiet=as_json):
        written = result.save(
            out_folder,
            flags.split_list(formats),
            picture=picture,
            report=report,
            command=shlex.join(["manymatch", *sys.argv[1:]]),
        )
    if as_json:
        files = {name: str(path) for name, path in written.items()}
        print_json({**result.to_dict(), "files": files})
    else:
        _print(result, written)
    raise typer.Exit(OK if result.estimate.success else UNSOLVED)


def _print(result: MatchResult, written: dict[str, Path]) -> None:
    counts, estimate, features = result.counts, result.estimate, result.config.features
    for line in result.lines():
        print_plain(line)
    print_plain("")
    rows = {
        "features": f"{features.detector} + {features.descriptor} ({result.config.preset})",
        "keypoints": f"{counts['keypoints0']} and {counts['keypoints1']}",
        "candidates": f"{counts['associated']} found, {result.graph.num_edges} kept",
        "samples": str(estimate.iterations),
        "seconds": ", ".join(f"{stage} {value:.2f}" for stage, value in result.timing.items()),
    }
    print_table({"": "left", " ": "left"}, rows.items())
    if result.rank_one is not None:
        print_plain("")
        print_comparison(result)
    print_plain("")
    for name, path in written.items():
        print_plain(f"{name:<11} {path}")


def print_comparison(result: MatchResult, errors_deg: list[float] | None = None) -> None:
    """Print the result beside the rank-one result, with pose errors where they are known."""
    rows = comparison_rows(result.systems(), errors_deg)
    headings = COMPARISON_HEADINGS[: len(rows[0])]
    print_table({name: "right" if name != "system" else "left" for name in headings}, rows)

"""``manymatch match``: two images in; pose, matches, picture and report out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from manymatch.cli import _matcher_flags as flags
from manymatch.cli._console import OK, UNSOLVED, clean_exit, out, print_json, working
from manymatch.geometry.pose_words import describe_pose
from manymatch.matcher.files import FORMATS, save_result
from manymatch.matcher.matcher import Matcher
from manymatch.matcher.result import matches_text

if TYPE_CHECKING:
    from manymatch.matcher.result import MatchResult

EXAMPLE = "Example: manymatch match a.jpg b.jpg --out out/ab --compare"
_COLOURS = {"solved": "green", "weak": "yellow", "degenerate": "yellow", "failed": "red"}


def match(
    image0: Annotated[Path, typer.Argument(help="The first image.")],
    image1: Annotated[Path, typer.Argument(help="The second image.")],
    camera0: Annotated[
        str | None,
        typer.Option(
            help="fx,fy,cx,cy, or MODEL,width,height,params..., or a .txt or .json file, or a "
            "COLMAP model; by default from EXIF, else guessed.",
            show_default=False,
        ),
    ] = None,
    camera1: Annotated[
        str | None, typer.Option(help="The second camera, likewise.", show_default=False)
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the picture, the report and the files.")
    ] = Path("out/match"),
    formats: Annotated[
        str, typer.Option("--format", help=f"Matches as {', '.join(FORMATS)}; several by commas.")
    ] = "npz",
    compare: Annotated[
        bool, typer.Option(help="Also match the plain way, rank-one and ordinary consensus.")
    ] = False,
    picture: Annotated[bool, typer.Option(help="Write matches.png.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html.")] = True,
    longest0: Annotated[
        int | None,
        typer.Option(help="Working size of image 0 (longer edge); 0 is its own.", min=0),
    ] = None,
    longest1: Annotated[
        int | None, typer.Option(help="Working size of image 1, likewise.", min=0)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    preset: flags.Preset = None,
    config: flags.ConfigFile = None,
    detector: flags.Detector = None,
    descriptor: flags.Descriptor = None,
    layer: flags.Layer = None,
    debias: flags.Debias = None,
    k: flags.K = None,
    max_keypoints: flags.MaxKeypoints = None,
    gms: flags.Gms = None,
    method: flags.Method = None,
    threshold_px: flags.ThresholdPx = None,
    seed: flags.Seed = None,
    extra: flags.Set = None,
    device: flags.Device = "auto",
    offline: flags.Offline = False,
    cache: flags.Cache = None,
) -> None:
    """Find the relative pose of two images and their one-to-one matches."""
    with clean_exit():
        settings = flags.matcher_settings(
            preset=preset,
            config=config,
            device=device,
            offline=offline,
            cache=cache,
            extra=extra,
            detector=detector,
            descriptor=descriptor,
            layer=layer,
            debias=debias,
            k=k,
            max_keypoints=max_keypoints,
            gms=gms,
            method=method,
            threshold_px=threshold_px,
            seed=seed,
        )
        chosen = [form.strip() for form in formats.split(",") if form.strip()]
        matcher = Matcher(**settings)
        with working("Matching", quiet=as_json):
            result = matcher.match(
                image0,
                image1,
                camera0,
                camera1,
                longest0=longest0,
                longest1=longest1,
                compare=compare,
            )
        with working("Writing", quiet=as_json):
            written = save_result(
                result,
                out_folder,
                formats=chosen,
                picture=picture,
                report=report,
                command=_command(),
            )
        if as_json:
            files = {name: str(path) for name, path in written.items()}
            print_json({**result.to_dict(), "files": files})
        else:
            tell(result, written)
    raise typer.Exit(OK if result.estimate.success else UNSOLVED)


def tell(result: MatchResult, written: dict[str, Path]) -> None:
    """Say a result to a person: verdict, pose, numbers, what to know, where the files are."""
    console = out()
    confidence, estimate = result.confidence, result.estimate
    colour = _COLOURS[confidence.verdict]
    console.print(f"[bold {colour}]{confidence.verdict.capitalize()}[/]", end=". ")
    console.print(confidence.reason, markup=False)
    if estimate.pose is not None:
        console.print(f"Camera 1 is {describe_pose(estimate.pose)}.", markup=False)
    console.print()
    console.print(_numbers(result))
    if result.rivals:
        console.print()
        console.print(comparison(result))
    console.print()
    for note in result.notes:
        console.print(note, markup=False, style="dim")
    for name, path in written.items():
        console.print(f"{name:<11} {path}", markup=False, soft_wrap=True)


def _numbers(result: MatchResult) -> Table:
    counts, estimate = result.counts, result.estimate
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    features = result.config.features
    rows = {
        "features": f"{features.detector} + {features.descriptor} ({result.config.preset})",
        "keypoints": f"{counts['keypoints0']} and {counts['keypoints1']}",
        "candidates": f"{counts['associated']} found, {result.graph.num_edges} kept",
        "inliers": f"{estimate.num_inliers} after {estimate.iterations} samples",
        "matches": matches_text(estimate),
        "seconds": ", ".join(f"{stage} {value:.2f}" for stage, value in result.timing.items()),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def comparison(result: MatchResult) -> Table:
    """Put the result beside its rivals."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("system")
    for name in ("candidates", "inliers", "matches", "rotation °"):
        table.add_column(name, justify="right")
    own = f"k = {result.config.association.k}, {result.config.method}"
    rows = [(own, result.graph, result.estimate)]
    rows += [(rival.name, rival.graph, rival.estimate) for rival in result.rivals]
    for name, graph, estimate in rows:
        angle = "-" if estimate.pose is None else f"{estimate.pose.angle_deg:.2f}"
        table.add_row(
            name,
            str(graph.num_edges),
            str(estimate.num_inliers),
            str(len(estimate.matches)),
            angle,
        )
    return table


def _command() -> str:
    """Return the command line as it was given."""
    return shlex.join(["manymatch", *sys.argv[1:]])

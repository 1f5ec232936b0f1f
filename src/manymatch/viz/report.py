"""The report: one self-contained HTML page about one pair of images."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch._files import as_path, write_whole
from manymatch._validate import real, refusal
from manymatch.estimate.relative_pose import Estimate
from manymatch.geometry.camera import as_camera
from manymatch.graph import AssociationGraph
from manymatch.viz import _report_data as data
from manymatch.viz import _report_html as html

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def write_report(
    path: str | os.PathLike[str],
    *,
    images: tuple[object, object],
    graph: AssociationGraph,
    estimate: Estimate,
    camera0: object,
    camera1: object,
    config: Mapping[str, Any],
    confidence: Mapping[str, Any] | None = None,
    timing: Mapping[str, float] | None = None,
    title: str | None = None,
    names: tuple[str, str] = ("a.jpg", "b.jpg"),
    notes: Sequence[str] = (),
    compare: Sequence[Mapping[str, Any]] | None = None,
    truth_error_deg: float | None = None,
) -> Path:
    """Write everything about one pair into one HTML file that needs nothing else.

    Parameters
    ----------
    path : path
        File to write. It appears only when it is complete.
    images : pair of (H, W), (H, W, 3) or (H, W, 4) arrays or None
        The photographs whose pixels the graph's keypoints are in. They are embedded small; None
        gives a plain panel.
    graph : AssociationGraph
        Candidates, in pixels.
    estimate : Estimate
        What was found on this graph, a failure included.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        The cameras of the estimate.
    config : dict
        Settings, versions and seed, nested as you like; shown in full. A text under ``command``
        is shown as the way to get the same report again.
    confidence : dict, optional
        Any of chance, parallax_deg, low_parallax, planar, rotation_sd_deg, translation_sd_deg,
        verdict and reason.
    timing : dict of str to float, optional
        Seconds by stage; those of the estimate if not given.
    title : str, optional
        Heading; the two names if not given.
    names : pair of str
        Names of the images.
    notes : sequence of str
        Sentences the reader should know, such as a guessed focal length.
    compare : sequence of dict, optional
        Other results between the same keypoints: name, estimate and, if you like, the graph they
        were found on, and error_deg where the true pose is known.
    truth_error_deg : float, optional
        Error of this estimate where the true pose is known, in degrees.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ValueError
        If an argument is not what it should be, or the estimate belongs to another graph.
    ModuleNotFoundError
        If there are images but no Pillow.
    """
    target = as_path(path)
    _check_result(graph, estimate, "estimate", same_edges=True)
    cameras = as_camera(camera0, "camera0"), as_camera(camera1, "camera1")
    given = _pair(images, "images", "a pair of arrays or None")
    names = _pair(names, "names", "a pair of names")
    error_deg = None
    if truth_error_deg is not None:
        error_deg = real(truth_error_deg, "truth_error_deg", 0.0, 180.0, closed=True)
    others = _checked_others(compare or (), graph)

    photos = [
        None if image is None else data.as_pixels(image, f"images[{side}]")
        for side, image in enumerate(given)
    ]
    sizes = (
        data.frame_size(photos[0], cameras[0], graph.points0),
        data.frame_size(photos[1], cameras[1], graph.points1),
    )
    states = data.edge_states(graph, estimate)
    residual = data.residuals_px(graph, estimate.pose, *cameras)
    threshold = estimate.options.threshold_px
    sure = {} if confidence is None else confidence
    layers = [(row["name"], row["estimate"]) for row in others]
    content = {
        "names": [str(name) for name in names],
        **data.payload(graph, estimate, cameras, sizes, layers),
    }
    script = _script()
    heading = title or f"{names[0]} ↔ {names[1]}"
    page = Template(_part("report_template.html")).substitute(
        title=escape(heading),
        policy=_policy(script),
        style=_part("report.css"),
        script=script,
        data=_json_for_script(content),
        aspect=f"{sizes[0][0] / sizes[0][1] + sizes[1][0] / sizes[1][1]:.4f}",
        banner=html.banner(estimate, sure, error_deg),
        notes=html.note_list(notes),
        layers=_layer_buttons(estimate, others),
        panels="".join(_panel(k, str(names[k]), sizes[k], photos[k]) for k in (0, 1)),
        captions="".join(_caption(k, str(names[k]), sizes[k]) for k in (0, 1)),
        cards="".join(
            [
                html.card("From candidates to matches", html.funnel(graph, estimate, states), 1),
                html.card("Which candidates won", html.ranks(graph, states), 2),
                html.card("Residuals", html.residuals(residual, states, threshold), 6),
                html.card("Pose", html.pose(estimate.pose), 4),
                html.card("Time", html.times(estimate.timing if timing is None else timing), 7),
                html.card("How sure", html.sureness(estimate, sure), 3),
                html.card("Comparison", html.comparison(estimate, others, error_deg), 5),
            ]
        ),
        configuration=html.configuration(config),
        reproduce=html.reproduce(estimate, cameras, config),
        version=escape(manymatch.__version__),
    )
    write_whole(target, lambda file: file.write(page.encode("utf-8", "replace")))
    return target


def _pair(value: object, name: str, want: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refusal(name, want, value)
    return value[0], value[1]


def _check_result(graph: object, estimate: object, name: str, *, same_edges: bool) -> None:
    """Check that an estimate is between the graph's keypoints and, if wanted, on its edges."""
    if not isinstance(graph, AssociationGraph):
        raise refusal("graph", "an AssociationGraph", graph)
    if not isinstance(estimate, Estimate):
        raise refusal(name, "an Estimate", estimate)
    if same_edges and len(estimate.inliers) != graph.num_edges:
        raise ValueError(
            f"{name} must be that of the graph with its {graph.num_edges} edges, "
            f"got one of {len(estimate.inliers)} edges"
        )
    matches = np.asarray(estimate.matches, dtype=np.int64).reshape(-1, 2)
    counts = (len(graph.points0), len(graph.points1))
    if len(matches) and np.any(matches.max(axis=0) >= counts):
        raise ValueError(
            f"{name} must match keypoints of the graph, which has {counts[0]} and {counts[1]}, "
            f"got indices up to {matches.max(axis=0).tolist()}"
        )


def _checked_others(
    compare: Sequence[Mapping[str, Any]], graph: AssociationGraph
) -> list[dict[str, Any]]:
    """Check the rows of the comparison."""
    rows = []
    for k, row in enumerate(compare):
        if not {"name", "estimate"} <= set(row):
            raise ValueError(
                f"compare[{k}] must have name and estimate, got the keys {sorted(row)}"
            )
        _check_result(graph, row["estimate"], f"compare[{k}]['estimate']", same_edges=False)
        other = row.get("graph")
        if other is not None and not _same_keypoints(graph, other):
            raise ValueError(
                f"compare[{k}]['graph'] must have the keypoints of graph, got {other!r}"
            )
        error = row.get("error_deg")
        if error is not None:
            error = real(error, f"compare[{k}]['error_deg']", 0.0, 180.0, closed=True)
        rows.append({"name": str(row["name"]), "estimate": row["estimate"], "error_deg": error})
    return rows


def _same_keypoints(graph: AssociationGraph, other: AssociationGraph) -> bool:
    return np.array_equal(graph.points0, other.points0) and np.array_equal(
        graph.points1, other.points1
    )


def _part(name: str) -> str:
    return resources.files("manymatch.viz").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """Return the page's script, of parts that share one scope of their own."""
    parts = (_part(f"report_{name}.js") for name in ("stage", "detail", "input"))
    return '"use strict";\n{\n' + "\n".join(parts) + "}\n"


def _policy(script: str) -> str:
    """Allow nothing but what is in the file, and of scripts only our own."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _json_for_script(content: dict[str, Any]) -> str:
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _layer_buttons(estimate: Estimate, others: list[dict[str, Any]]) -> str:
    """Return the radio buttons that choose what is drawn over the images."""
    shown = "matches" if len(estimate.matches) else "candidates"
    entries: list[tuple[str, str, int | None]] = [
        ("matches", "Matches", len(estimate.matches)),
        ("candidates", "All candidates", len(estimate.inliers)),
    ]
    entries += [
        (f"other{k}", row["name"], len(row["estimate"].matches))
        for k, row in enumerate(others, start=1)
    ]
    entries.append(("none", "None", None))
    return "".join(
        f'<label><input type="radio" name="layer" value="{value}"'
        f"{' checked' if value == shown else ''}><span>{escape(name)}"
        f"{'' if count is None else f' <b>{count:,}</b>'}</span></label>"
        for value, name, count in entries
    )


def _panel(side: int, name: str, size: tuple[int, int], photo: NDArray[np.uint8] | None) -> str:
    """Return one image, focusable so that the keyboard can walk over its keypoints."""
    label = escape(
        f"Image {side}, {name}: arrow keys move between keypoints, Enter holds one, Escape "
        "lets it go",
        quote=True,
    )
    ratio = size[0] / size[1]
    picture = ""
    if photo is not None:
        picture = f'<img alt="" src="{data.embed(photo)}">'
    return (
        f'<div class="panel" id="panel{side}" tabindex="0" role="group" aria-label="{label}" '
        f'aria-describedby="detail" style="aspect-ratio:{size[0]}/{size[1]};flex-grow:{ratio:.4f}">'
        f"{picture}</div>"
    )


def _caption(side: int, name: str, size: tuple[int, int]) -> str:
    return (
        f'<p style="flex-grow:{size[0] / size[1]:.4f}"><b>{side}</b> <span>{escape(name)}</span> '
        f"<small>{size[0]} &times; {size[1]}</small></p>"
    )

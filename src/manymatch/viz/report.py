"""The report: one self-contained HTML page about one pair of images, or its stage alone."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html
import io
import math
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch._validate import count, real, refusal
from manymatch.estimate import words
from manymatch.estimate.confidence import assess
from manymatch.estimate.relative_pose import RelativePoseEstimate
from manymatch.geometry.camera import as_camera
from manymatch.graph import AssociationGraph
from manymatch.io.files import as_path, write_whole
from manymatch.io.image import load_image, require_pillow
from manymatch.io.matches import to_json
from manymatch.viz import overlay
from manymatch.viz.figure import drawable, screen_image
from manymatch.viz.overlay import CHOSEN, CONSISTENT, REFUSED, source_colours

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch.estimate.confidence import Confidence
    from manymatch.geometry.camera import Camera
    from manymatch.geometry.pose import RelativePose

    #: Name, estimate, and the error of its pose in degrees where the true pose is known.
    System = tuple[str, RelativePoseEstimate, float | None]

_QUALITIES = (84, 76, 68, 58, 46, 34)
# Height that the choice among several poses adds to the frame in a notebook.
_CHOICE_PX = 96
_RIGHT_DEG, _NEAR_DEG = 5.0, 10.0
_KINDS = {**dict.fromkeys(words.RELIABLE, "good"), "failed": "bad"}
# Of any other verdict, and of an error between the two limits.
_DOUBTFUL = "doubt"
# The histogram: its bins up to the threshold, and thresholds along its axis.
_BINS, _THRESHOLDS = 10, 3
_CITATION = (
    "Haodong Jiang, Mingzhe Li, Junfeng Wu. Preserve, Then Resolve: Many-to-Many Association and "
    "Robust Estimation with General-Purpose Visual Features. WACV 2027."
)


@dataclasses.dataclass(frozen=True)
class _Size:
    """How much of a pair is put into a page.

    Of a photograph, pixels along the longer edge and, as far as JPEG allows, bytes; of the graph,
    candidates, which the alternatives share, since each has residuals and lines of its own.
    """

    longest_px: int
    image_bytes: int
    edges: int
    alternatives: int

    def edges_of(self, poses: int) -> int:
        """Return how many candidates are drawn if a page shows this many poses."""
        return max(1, self.edges // poses)


# With three alternatives 2,100 candidates are left, more than "auto" uses.
_FILE = _Size(longest_px=1600, image_bytes=440_000, edges=8_400, alternatives=3)
# A notebook keeps the output of every cell in its file.
_NOTEBOOK = _Size(longest_px=900, image_bytes=130_000, edges=2_000, alternatives=1)


@dataclasses.dataclass(kw_only=True)
class Shown:
    """What every page shows of one pair; checked when made.

    Parameters
    ----------
    images : pair of images or None
        Paths or arrays, as `manymatch.io.load_image` takes them, in whose pixels the graph's
        keypoints are. They are embedded small; None gives a plain panel.
    graph : AssociationGraph
        Candidates, in pixels.
    estimate : RelativePoseEstimate
        What was found on this graph, a failure included.
    camera0, camera1 : Camera, 3x3 matrix, COLMAP-style dict or pycolmap.Camera
        The cameras of the estimate, with the focal lengths found.
    confidence : Confidence, optional
        Of the estimate; computed if not given.
    title : str, optional
        Heading; the two names if not given.
    names : pair of str
        Names of the images.
    others : sequence of (str, RelativePoseEstimate, float or None)
        Other results between the same keypoints: name, estimate, and the error of its pose in
        degrees where the true pose is known.
    error_deg : float, optional
        Error of this estimate where the true pose is known, in degrees.
    """

    images: tuple[object, object]
    graph: AssociationGraph
    estimate: RelativePoseEstimate
    camera0: dataclasses.InitVar[object]
    camera1: dataclasses.InitVar[object]
    confidence: Confidence | None = None
    title: str | None = None
    names: tuple[str, str] = ("a.jpg", "b.jpg")
    others: Sequence[System] = ()
    error_deg: float | None = None

    def __post_init__(self, camera0: object, camera1: object) -> None:
        _check_estimate(self.graph, self.estimate, "estimate", same_edges=True)
        self.systems: list[System] = [
            ("this result", self.estimate, _checked_error(self.error_deg, "error_deg"))
        ]
        for k, (name, other, error) in enumerate(self.others):
            _check_estimate(self.graph, other, f"others[{k}]", same_edges=False)
            self.systems.append((str(name), other, _checked_error(error, f"others[{k}]")))
        self.verdict = self.confidence or assess(self.estimate)
        self.cameras = as_camera(camera0, "camera0"), as_camera(camera1, "camera1")


def write_report(
    path: str | os.PathLike[str],
    *,
    config: Mapping[str, Any],
    timing: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    command: str | None = None,
    camera_priors: tuple[Camera, Camera] | None = None,
    shared_focal: bool | None = None,
    **shown: Any,
) -> Path:
    """Write everything about one pair into one HTML file that needs nothing else; return its path.

    Parameters
    ----------
    path : path
        File to write. It appears only when it is complete.
    config : dict
        Settings, versions and seed, nested to any depth; shown in full.
    timing : dict of str to float, optional
        Seconds by stage; those of the estimate if not given.
    notes : sequence of str
        Sentences the reader should know, such as where the cameras are from.
    command : str, optional
        The command line that gives the same report again.
    camera_priors : pair of Camera, optional
        The cameras that were given to the estimator, if a focal length was unknown.
    shared_focal : bool, optional
        As it was given to the estimator.
    **shown
        The pair, see `Shown`.

    Raises
    ------
    ValueError
        If an argument is not what it should be, or the estimate belongs to another graph.
    ModuleNotFoundError
        If there are images but no Pillow.
    """
    target = as_path(path)
    pair = Shown(**shown)
    graph, estimate, cameras = pair.graph, pair.estimate, pair.cameras
    poses = overlay.each_pose(graph, estimate, cameras, _FILE.alternatives)
    page = page_template("report.html").render(
        **_stage(pair, poses, _FILE),
        embedded=False,
        error_deg=None if estimate.pose is None else pair.systems[0][2],
        error_kind=_error_kind,
        notes=[str(note) for note in notes],
        details=[
            {"index": k, **_details(graph, e, cameras, _FILE.edges_of(len(poses)))}
            for k, e in enumerate(poses)
        ],
        facts=words.confidence_rows(pair.verdict, estimate),
        times=_times(estimate.timing if timing is None else timing),
        comparison=_comparison(pair.systems),
        settings=list(_flat(config)),
        config=to_json(config, "config", 2, default=_plain, ensure_ascii=False),
        command=command,
        python=_python_code(estimate, camera_priors or cameras, shared_focal),
        citation=_CITATION,
        version=manymatch.__version__,
    )
    write_whole(target, lambda file: file.write(page.encode("utf-8", "replace")))
    return target


def notebook_view(**shown: Any) -> str:
    """Return the verdict and the images of the report as HTML for the output of a notebook's cell.

    It is a frame that holds a page of its own: neither its styles and scripts nor those of the
    notebook or of other results reach the other side. Its size is bounded for images of any size.
    The arguments are those of `Shown`.
    """
    pair = Shown(**shown)
    alternatives = _NOTEBOOK.alternatives
    poses = overlay.each_pose(pair.graph, pair.estimate, pair.cameras, alternatives)
    stage = _stage(pair, poses, _NOTEBOOK)
    page = page_template("report.html").render(**stage, embedded=True, error_deg=None, notes=())
    # File names may hold characters that are not valid Unicode.
    page, heading = (
        html.escape(text.encode("utf-8", "replace").decode("utf-8"))
        for text in (page, stage["title"])
    )
    height = _frame_height(*stage["aspects"]) + (_CHOICE_PX if len(poses) > 1 else 0)
    return (
        f'<iframe title="{heading}" sandbox="allow-scripts" '
        f'style="display:block;width:100%;height:{height}px;border:0" '
        f'srcdoc="{page}"></iframe>'
    )


def _frame_height(aspect0: float, aspect1: float) -> int:
    """Return the height in pixels for images that are 700 wide, as the script lays them out."""
    beside, stacked = aspect0 + aspect1, 1.0 / (1.0 / aspect0 + 1.0 / aspect1)
    heights = [min(700.0 / aspect, 380.0) for aspect in (beside, stacked)]
    larger = heights[0] ** 2 * beside >= heights[1] ** 2 * stacked
    return 190 + round(max(heights[0] if larger else heights[1], 280.0))


def _stage(pair: Shown, poses: list[RelativePoseEstimate], size: _Size) -> dict[str, Any]:
    """Return the values of the template for the verdict, the images and the drawing over them."""
    graph, cameras, estimate, confidence = pair.graph, pair.cameras, pair.estimate, pair.verdict
    images = _checked_pair(pair.images, "images", "a pair of images or None")
    labels = [str(name) for name in _checked_pair(pair.names, "names", "a pair of names")]
    panels: list[dict[str, Any]] = []
    for side, (image, points) in enumerate(
        zip(images, (graph.points0, graph.points1), strict=True)
    ):
        frame, picture = _photo(image, f"images[{side}]", size)
        width, height = frame or _guessed_size(cameras[side], points)
        uri = None if picture is None else embedded_jpeg(picture, size.image_bytes)
        shown = None if picture is None or picture.size == frame else picture.size
        panels.append(
            {"name": labels[side], "width": width, "height": height, "uri": uri, "shown": shown}
        )
    sizes = [(panel["width"], panel["height"]) for panel in panels]
    others = [(name, e) for name, e, _ in pair.systems[1:]]
    most = size.edges_of(len(poses))
    drawn = overlay.payload(graph, poses, cameras, (sizes[0], sizes[1]), others, most)
    choices = _choices(poses, confidence)
    headline, sentences = words.headline(estimate, confidence)
    if len(poses) > 1:
        # The pose that is shown has its sentence above the images.
        sentences = [sentences[0], *words.focal_sentences(estimate, confidence)]
    script = template_file("report.js")
    said = [choice["said"] for choice in choices]
    counts = [len(e.matches) for e in poses]
    return {
        "title": pair.title or f"{labels[0]} ↔ {labels[1]}",
        "policy": script_policy(script),
        "style": template_file("report.css"),
        "script": script,
        "data": {"names": labels, **drawn, "said": said, "counts": counts},
        "poses": choices,
        "unseen": len(estimate.alternatives) + 1 - len(poses),
        "panels": panels,
        "aspects": [width / height for width, height in sizes],
        "verdict": confidence,
        "kind": _KINDS.get(confidence.verdict, _DOUBTFUL),
        "headline": headline,
        "sentences": sentences,
        "num_matches": len(estimate.matches),
        "num_candidates": graph.num_edges,
        "others": [(name, len(e.matches)) for name, e in others],
    }


@functools.cache
def page_template(name: str) -> Any:
    """Return a template; values are escaped unless the template says otherwise."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters.update(thousands=lambda number: f"{number:,}", seconds=_seconds)
    return environment.from_string(template_file(name))


def template_file(name: str) -> str:
    """Return the text of a template, style or script."""
    return resources.files("manymatch.viz").joinpath("templates", name).read_text(encoding="utf-8")


def script_policy(script: str) -> str:
    """Return a policy that allows only the content of the file, and only this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _checked_pair(value: object, name: str, want: str) -> tuple[Any, Any]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise refusal(name, want, value)
    return value[0], value[1]


def _checked_error(value: object, name: str) -> float | None:
    return None if value is None else real(value, name, 0.0, 180.0, closed=True)


def _check_estimate(graph: object, estimate: object, name: str, *, same_edges: bool) -> None:
    """Check that an estimate is between the graph's keypoints and, if wanted, on its edges."""
    if not isinstance(graph, AssociationGraph):
        raise refusal("graph", "an AssociationGraph", graph)
    if not isinstance(estimate, RelativePoseEstimate):
        raise refusal(name, "an Estimate of a relative pose", estimate)
    if same_edges and len(estimate.inliers) != graph.num_edges:
        raise ValueError(
            f"{name} must be that of the graph with its {graph.num_edges} edges, "
            f"got one of {len(estimate.inliers)} edges"
        )
    counts = (len(graph.points0), len(graph.points1))
    if np.any(estimate.matches >= counts):
        raise ValueError(
            f"{name} must match keypoints of the graph, which has {counts[0]} and {counts[1]}, "
            f"got indices up to {estimate.matches.max(axis=0).tolist()}"
        )


def _choices(poses: list[RelativePoseEstimate], confidence: Confidence) -> list[dict[str, Any]]:
    """Return the buttons that choose among several poses; of one pose its sentence only."""
    shares = [words.chosen_share(poses[0]), *(a.probability for a in poses[0].alternatives)]
    choices = []
    for k, (estimate, share) in enumerate(zip(poses, shares, strict=False)):
        model = words.model_sentence(estimate, None if k else confidence)
        matches = count(len(estimate.matches), "match", "matches")
        of = count(estimate.num_inliers, "consistent candidate")
        text = words.probability_text(share)
        choices.append(
            {
                "name": f"Alternative {k}" if k else "Chosen pose",
                "share": text,
                "said": f"{model} {matches} out of {of}; {text} among the poses found.",
            }
        )
    return choices


def _details(
    graph: AssociationGraph,
    estimate: RelativePoseEstimate,
    cameras: tuple[Camera, Camera],
    drawn: int,
) -> dict[str, Any]:
    """Return the contents of the cards about one pose."""
    states = overlay.edge_states(graph, estimate)
    residual = overlay.residuals_px(graph, estimate.pose, *cameras)
    chosen = states == CHOSEN
    ranks = None
    if graph.rank is not None and chosen.any():
        counts = np.bincount(np.minimum(graph.rank[chosen], 5), minlength=6)[1:]
        ranks = {"counts": counts.tolist(), "deepest": int(graph.rank.max())}
    return {
        "keypoints": words.keypoints_text(graph),
        "candidates": graph.num_edges,
        "per_keypoint": graph.num_edges / max(int(np.count_nonzero(graph.degrees()[0])), 1),
        "consistent": int(np.sum(states >= CONSISTENT)),
        "matches": len(estimate.matches),
        "drawn": drawn if graph.num_edges > drawn else None,
        "ranks": ranks,
        "sources": _sources(graph, states, estimate),
        "residuals": _residuals(residual, states, estimate),
        "pose": _pose(estimate.pose),
    }


def _sources(
    graph: AssociationGraph, states: NDArray[np.int64], estimate: RelativePoseEstimate
) -> list[tuple[str, str, int, int, int, str]]:
    """Return name, colour, counts by state and trust of every source, if there are several."""
    if graph.source is None or len(graph.source_names) < 2:
        return []
    number = len(graph.source_names)
    counts = [
        np.bincount(graph.source[states >= least], minlength=number).tolist()
        for least in (REFUSED, CONSISTENT, CHOSEN)
    ]
    trust = [f"{value:.2f}" for value in estimate.source_trust] or ["–"] * number
    named = zip(source_colours(graph), *counts, trust, strict=True)
    return [(*name_and_colour, *row) for name_and_colour, *row in named]


def _residuals(
    residual: FloatArray, states: NDArray[np.int64], estimate: RelativePoseEstimate
) -> dict[str, Any] | None:
    """Return the histogram of the Sampson distances of all, consistent and chosen candidates."""
    known = np.isfinite(residual)
    if not known.any():
        return None
    residual, states, threshold = residual[known], states[known], estimate.threshold_px
    end = _THRESHOLDS * threshold
    edges = np.linspace(0.0, end, _THRESHOLDS * _BINS + 1)
    counts = {
        name: np.histogram(residual[(states >= least) & (residual <= end)], edges)[0]
        for name, least in (("all", REFUSED), ("consistent", CONSISTENT), ("chosen", CHOSEN))
    }
    top = max(int(counts["all"].max()), 1)
    chosen = residual[states == CHOSEN]
    return {
        "end": f"{end:.3g}",
        "threshold": f"{threshold:.3g}",
        "bins": len(edges) - 1,
        "grid": [(n, n / top) for n in _round_numbers(top)],
        "bars": [
            (name, k, n / top)
            for name, values in counts.items()
            for k, n in enumerate(values.tolist())
            if n
        ],
        "ticks": [f"{k * threshold:.3g}" for k in range(_THRESHOLDS + 1)],
        "median": float(np.median(chosen)) if len(chosen) else None,
        "beyond": count(int(np.sum(residual > end)), "candidate"),
    }


def _round_numbers(top: int) -> list[int]:
    """Return two or more round numbers up to top, for the lines of the grid."""
    size = 10 ** (len(str(top)) - 1)
    for step in (size * 5, size * 2, size, size // 2, size // 5):
        if step and top // step >= 2:
            return [k * step for k in range(1, top // step + 1)]
    return [top]


def _pose(pose: RelativePose | None) -> dict[str, Any] | None:
    """Return the drawings of the two cameras, and R and t as text to copy."""
    if pose is None:
        return None
    centre, forward = words.camera_centre(pose), pose.R.T[:, 2]
    sides = (("left", "right"), ("up", "down"), ("backward", "forward"))
    rows = [" ".join(f"{v: .6f}" for v in row) for row in (*pose.R, pose.t)]
    return {
        "views": [
            # Forward is up in the first drawing and to the right in the second.
            _view("from above", centre[[0, 2]] * (1, -1), forward[[0, 2]] * (1, -1), (0.0, -1.0)),
            _view("from the side", centre[[2, 1]], forward[[2, 1]], (1.0, 0.0)),
        ],
        "rotation": f"{pose.angle_deg:.2f}° about ({', '.join(f'{v:+.3f}' for v in pose.axis)})",
        "position": ", ".join(
            f"{abs(v):.3f} {side[int(v > 0)]}" for v, side in zip(centre, sides, strict=True)
        ),
        "text": "\n".join(["R =", *rows[:3], "t =", rows[3]]),
    }


def _view(
    name: str, centre: FloatArray, forward: FloatArray, ahead: tuple[float, float]
) -> dict[str, Any]:
    """Return camera 0, which looks ahead, and camera 1 as wedges that open where they look."""
    middle, scale = np.array([90.0, 74.0]), 72.0
    # Cameras behind one another would write their numbers on the same spot.
    apart = 0.0 if np.hypot(*centre) > 0.3 else 9.0
    cameras = []
    for sign, direction in ((-1.0, np.array(ahead)), (1.0, forward)):
        place = middle + sign * scale * centre / 2.0
        length = max(float(np.hypot(*direction)), 1e-9)
        across = np.array([-direction[1], direction[0]]) / length
        tip = place + 30.0 * direction
        corners = np.round([place, tip + 15.0 * across, tip - 15.0 * across], 1)
        label = place - 13.0 * direction / length + sign * apart
        cameras.append({"corners": corners.tolist(), "label": np.round(label, 1).tolist()})
    return {"name": name, "cameras": cameras}


def _times(timing: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the seconds of all stages, and of each; None where nothing took time."""
    known = {str(k): float(v) for k, v in timing.items() if math.isfinite(v)}
    total = known.pop("total", None)
    if max(known.values(), default=0.0) <= 0.0:
        return None
    return {"total": sum(known.values()) if total is None else total, "stages": known}


def _comparison(systems: list[System]) -> dict[str, Any] | None:
    """Return the table of this result and the others, one row each."""
    if len(systems) == 1:
        return None
    errors = [error for _, _, error in systems]
    known = any(error is not None for error in errors)
    rows = words.comparison_rows([(n, e) for n, e, _ in systems], errors if known else None)
    headings = words.COMPARISON_HEADINGS[: len(rows[0])]
    kinds = ["" if error is None else _error_kind(error) for error in errors]
    return {"headings": headings[1:], "rows": list(zip(rows, kinds, strict=True)), "known": known}


def _python_code(
    estimate: RelativePoseEstimate, cameras: tuple[Camera, Camera], shared_focal: bool | None
) -> str:
    """Return the lines of Python that repeat the estimate."""
    lines = ["import manymatch as mm", ""]
    for k, camera in enumerate(cameras):
        params = ", ".join(f"{v:.9g}" for v in camera.params)
        size = f"{camera.width}, {camera.height}"
        more = f", skew={camera.skew!r}" if camera.skew else ""
        more += "" if camera.known_focal else f", focal_sigma={camera.focal_sigma!r}"
        lines.append(f'camera{k} = mm.Camera("{camera.model}", {size}, [{params}]{more})')
    options = ", ".join(f"{name}={value!r}" for name, value in estimate.options.to_dict().items())
    lines += [f"options = mm.Options({options})", "estimate = mm.estimate_relative_pose("]
    lines.append(f'    graph, camera0, camera1, method="{estimate.method}", options=options,')
    if estimate.working_scale is not None:
        scale = tuple(np.asarray(s).tolist() for s in estimate.working_scale)
        lines.append(f"    working_scale={scale},")
    if shared_focal is not None:
        lines.append(f"    shared_focal={shared_focal},")
    lines.append(")")
    return "\n".join(lines)


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """List the leaves of a nested mapping with dotted names."""
    rows = []
    for key, entry in value.items():
        if isinstance(entry, dict) and entry:
            rows += _flat(entry, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", "none" if entry is None else str(entry)))
    return rows


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it knows."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _error_kind(error_deg: float) -> str:
    return "good" if error_deg < _RIGHT_DEG else _DOUBTFUL if error_deg < _NEAR_DEG else "bad"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1.0 else f"{1e3 * value:.{0 if value >= 0.01 else 2}f} ms"


def _photo(image: object, name: str, size: _Size) -> tuple[tuple[int, int] | None, Any]:
    """Return width and height of a photograph, and the photograph made small for the screen."""
    if image is None:
        return None, None
    array = image if isinstance(image, np.ndarray) and image.ndim >= 2 else load_image(image, name)
    frame = array.shape[1], array.shape[0]
    shrink = min(1.0, size.longest_px / max(*frame, 1))
    small = max(1, round(frame[0] * shrink)), max(1, round(frame[1] * shrink))
    return frame, require_pillow().fromarray(screen_image(array, small, name))


def embedded_jpeg(picture: Any, most_bytes: int) -> str:
    """Return a Pillow image as a JPEG in a data URI."""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality, optimize=True, progressive=True)
        if buffer.tell() <= most_bytes:
            break
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _guessed_size(camera: Camera, points: FloatArray) -> tuple[int, int]:
    """Return width and height of the frame the keypoints are in where there is no photograph."""
    if camera.width is not None and camera.height is not None:
        return camera.width, camera.height
    extent = np.ceil(np.max(drawable(points), axis=0, initial=1.0)) + 1.0
    # Principal points are near the middle of an image.
    centre = np.ceil(2.0 * np.array([camera.cx, camera.cy]) + 1.0)
    width, height = np.maximum(extent, np.clip(centre, 1.0, 8.0 * extent))
    return int(width), int(height)

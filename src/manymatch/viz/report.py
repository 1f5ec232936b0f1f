"""The report: one self-contained HTML page about one pair of images, or its stage alone."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html
import io
import json
import math
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import manymatch
from manymatch._validate import FloatArray, count
from manymatch.estimate import words
from manymatch.estimate.many import PROBLEMS
from manymatch.geometry.pose import RelativePose, pose_error_deg
from manymatch.io.files import as_path, write_whole
from manymatch.io.image import load_image, open_image, require_pillow
from manymatch.io.matches import to_json
from manymatch.viz import overlay
from manymatch.viz.figure import screen_image
from manymatch.viz.overlay import CHOSEN, CONSISTENT, REFUSED, source_colours, verdict_kind

if TYPE_CHECKING:
    from manymatch.estimate.confidence import Confidence
    from manymatch.estimate.relative_pose import RelativePoseEstimate
    from manymatch.graph import AssociationGraph
    from manymatch.matcher.match_result import MatchResult

_QUALITIES = (84, 76, 68, 58, 46, 34)
# Height that the choice among several poses adds to the frame in a notebook.
_CHOICE_PX = 120
_RIGHT_DEG, _NEAR_DEG = 5.0, 10.0
# The histogram: its bins up to the threshold, and thresholds along its axis.
_BINS, _THRESHOLDS = 10, 3
_CITATION = (
    "Haodong Jiang, Mingzhe Li, Junfeng Wu. Preserve, Then Resolve: Many-to-Many Association and "
    "Robust Estimation with General-Purpose Visual Features. WACV 2027."
)


@dataclasses.dataclass(frozen=True)
class _Size:
    """How much of a pair a page holds.

    Of a photograph: pixels along the longer edge and, as far as JPEG allows, bytes. All poses share
    the number of candidates, as each pose has residuals and lines of its own.
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


def write_report(
    result: MatchResult,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    command: str | None = None,
    true_pose: RelativePose | None = None,
) -> Path:
    """Write everything about one pair into one HTML file that needs nothing else; return its path.

    The arguments are those of `MatchResult.report`. The file appears only when it is complete.
    Images need Pillow.
    """
    page = report_page(result, title=title, command=command, true_pose=true_pose)
    return write_page(path, page)


def report_page(
    result: MatchResult,
    *,
    title: str | None = None,
    command: str | None = None,
    true_pose: RelativePose | None = None,
    photos: Sequence[str] | None = None,
    hosted: bool = False,
) -> str:
    """Return the page of `write_report` as text.

    `photos` are the photographs as `report_photos` returns them, if they are there already. A page
    that is `hosted` in a frame of another page has no heading, and tells that page its height.
    """
    estimate = result.answer
    poses = _poses(result, _FILE)
    systems = result.systems()
    errors = None
    if true_pose is not None:
        errors = [pose_error_deg(e.pose, true_pose.R, true_pose.t) for _, e in systems]
    timing = dict(result.timing or estimate.timing)
    total = timing.pop("total", sum(timing.values()))
    return rendered(
        "report",
        **_stage(result, poses, _FILE, title, photos),
        host="app" if hosted else None,
        error_deg=errors[0] if errors and estimate.pose is not None else None,
        error_kind=_error_kind,
        notes=result.notes,
        details=[
            {"index": k, **_details(result, e, _FILE.edges_of(len(poses)))}
            for k, e in enumerate(poses)
        ],
        facts=words.confidence_rows(result.confidence, estimate),
        times={"total": total, "stages": timing} if any(timing.values()) else None,
        headings=words.COMPARISON_HEADINGS[1 : None if errors else -1],
        rows=words.comparison_rows(systems, errors) if len(systems) > 1 else (),
        errors=errors,
        config=to_json(result.provenance(), "config", 2, ensure_ascii=False),
        command=command,
        python=_python_code(result),
        citation=_CITATION,
    )


def report_photos(result: MatchResult) -> list[str]:
    """Return the photographs of a result as data URIs, as the report embeds them."""
    return _photos(result, _FILE)


def notebook_view(result: MatchResult) -> str:
    """Return the verdict and the images of the report as HTML for the output of a notebook's cell.

    It is a frame that holds a page of its own: neither its styles and scripts nor those of the
    notebook or of other results reach the other side. Its size is bounded for images of any size.
    """
    poses = _poses(result, _NOTEBOOK)
    stage = _stage(result, poses, _NOTEBOOK)
    page = rendered("report", **stage, host="notebook", error_deg=None, notes=())
    height = _frame_height(*stage["aspects"]) + (_CHOICE_PX if len(poses) > 1 else 0)
    return framed(page, stage["title"], height)


def framed(page: str, title: str, height: int) -> str:
    """Return HTML of a frame that holds a whole page, which can neither read nor change its host.

    The height is in pixels.
    """
    heading = title.encode("utf-8", "replace").decode("utf-8")
    return (
        f'<iframe title="{html.escape(heading)}" sandbox="allow-scripts" '
        f'style="display:block;width:100%;height:{height}px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def _frame_height(aspect0: float, aspect1: float) -> int:
    """Return the height in pixels for images that are 700 wide, as the script lays them out."""
    beside, stacked = aspect0 + aspect1, 1.0 / (1.0 / aspect0 + 1.0 / aspect1)
    heights = [min(700.0 / aspect, 380.0) for aspect in (beside, stacked)]
    larger = heights[0] ** 2 * beside >= heights[1] ** 2 * stacked
    return 190 + round(max(heights[0] if larger else heights[1], 280.0))


def _poses(result: MatchResult, size: _Size) -> list[RelativePoseEstimate]:
    cameras = result.camera0, result.camera1
    return overlay.each_pose(result.graph, result.answer, cameras, size.alternatives)


def _photos(result: MatchResult, size: _Size) -> list[str]:
    if result.images is None:
        return []
    frames = (shrunk(frame, size.longest_px) for frame in (result.size0, result.size1))
    return [
        embedded_photo(image, frame, size.image_bytes)
        for image, frame in zip(result.images, frames, strict=True)
    ]


def _stage(
    result: MatchResult,
    poses: list[RelativePoseEstimate],
    size: _Size,
    title: str | None = None,
    photos: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the values of the template for the verdict, the images and the drawing over them."""
    graph, estimate, confidence = result.graph, result.answer, result.confidence
    sizes = (result.size0, result.size1)
    panels: list[dict[str, Any]] = []
    uris = _photos(result, size) if photos is None else photos
    for side, (name, frame) in enumerate(zip(result.names, sizes, strict=True)):
        panel = {"name": name, "width": frame[0], "height": frame[1], "uri": None, "shown": None}
        if uris:
            small = shrunk(frame, size.longest_px)
            panel |= {"uri": uris[side], "shown": None if small == frame else small}
        panels.append(panel)
    others = result.systems()[1:]
    cameras = (result.camera0, result.camera1)
    drawn = overlay.payload(graph, poses, cameras, sizes, others, size.edges_of(len(poses)))
    choices = _choices(poses, confidence)
    headline, sentences = words.headline(estimate, confidence)
    if len(poses) > 1:
        # The pose that is shown has its sentence above the images.
        sentences = [said for said in sentences if not said.startswith(words.GUESS)]
    said = [choice["said"] for choice in choices]
    counts = [len(e.matches) for e in poses]
    return {
        "title": title or f"{result.names[0]} ↔ {result.names[1]}",
        "data": {"names": result.names, **drawn, "said": said, "counts": counts},
        "poses": choices,
        "unseen": len(estimate.alternatives) + 1 - len(poses),
        "panels": panels,
        "aspects": [width / height for width, height in sizes],
        "verdict": confidence,
        "kind": verdict_kind(confidence.verdict),
        "headline": headline,
        "sentences": sentences,
        "numbers": headline_numbers(result),
        "num_matches": len(estimate.matches),
        "num_candidates": graph.num_edges,
        "others": [(name, len(e.matches)) for name, e in others],
    }


def headline_numbers(result: MatchResult) -> list[tuple[str, str, str]]:
    """Return the three numbers that matter, each with its name and a few words about it.

    They are the probability that the pose is right, its uncertainty, and the number of matches.
    """
    confidence, estimate = result.confidence, result.answer
    of = count(result.graph.num_edges, "candidate")
    matches = (f"{len(estimate.matches):,}", "matches", f"out of {of}")
    if not result.success:
        return [matches]
    parts = (confidence.rotation, confidence.translation)
    spread = [part.sd_deg for part in parts if part is not None and math.isfinite(part.sd_deg)]
    named = ("rotation", "direction")
    about = " and ".join(name for name, part in zip(named, parts, strict=True) if part is not None)
    limit = PROBLEMS[confidence.problem].limit
    return [
        (words.probability_text(confidence.pose_probability), "probability", f"right {limit}"),
        (f"±{words.angle(max(spread))}" if spread else "–", "uncertainty", f"{about}, one sigma"),
        matches,
    ]


@functools.cache
def page_template(name: str) -> Any:
    """Return a template; values are escaped unless the template says otherwise."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = page_json
    environment.filters.update(thousands=lambda number: f"{number:,}", seconds=_seconds)
    return environment.get_template(name)


def _bytes_of(numbers: NDArray[Any]) -> int:
    """Return how many bytes hold each of these whole numbers."""
    return 1 if (most := numbers.max(initial=0)) < 1 << 8 else 2 if most < 1 << 16 else 4


def page_json(value: Any, **_: Any) -> str:
    """Return the JSON that data.js reads: an array of numbers is its kind and its bytes.

    Real numbers become single precision; whole numbers must not be negative.
    """

    def packed(array: Any) -> dict[str, str]:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"a page has no place for {type(array).__name__}")
        kind = "f4" if array.dtype.kind == "f" else f"u{_bytes_of(array)}"
        return {kind: base64.b64encode(array.astype(f"<{kind}").tobytes()).decode("ascii")}

    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=packed)


def rendered(name: str, **values: Any) -> str:
    """Render the page of a name, with its script and styles, as text.

    The page's policy allows only the content of the file, and only this script.
    """
    script = template_file("data.js") + template_file(f"{name}.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    values["policy"] = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    own = "" if name == "report" else template_file(f"{name}.css")
    values |= {"script": script, "style": template_file("report.css") + own}
    text = page_template(f"{name}.html").render(version=manymatch.__version__, **values)
    # File names may hold characters that are not valid Unicode.
    return str(text).encode("utf-8", "replace").decode("utf-8")


def write_html(path: str | os.PathLike[str], name: str, **values: Any) -> Path:
    """Write the page of a name, which appears only when it is complete, and return its path."""
    return write_page(path, rendered(name, **values))


def write_page(path: str | os.PathLike[str], page: str) -> Path:
    """Write a page, which appears only when it is complete, and return its path."""
    target = as_path(path)
    write_whole(target, lambda file: file.write(page.encode("utf-8")))
    return target


@functools.cache
def template_file(name: str) -> str:
    """Return the text of a template, style or script."""
    return resources.files("manymatch.viz").joinpath("templates", name).read_text(encoding="utf-8")


def _choices(poses: list[RelativePoseEstimate], confidence: Confidence) -> list[dict[str, Any]]:
    """Return the buttons that choose among several poses; of one pose its sentence only."""
    shares = [confidence.pose_probability, *confidence.alternative_probabilities]
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
                "said": f"{model} {matches} out of {of}; right with probability {text}.",
            }
        )
    return choices


def _details(result: MatchResult, estimate: RelativePoseEstimate, drawn: int) -> dict[str, Any]:
    graph, cameras = result.graph, (result.camera0, result.camera1)
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
        "grid": [(n, n / top) for n in (top // 2, top) if n],
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


def _python_code(result: MatchResult) -> str:
    estimate = result.estimate
    cameras = result.camera_priors or (result.camera0, result.camera1)
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
    if result.shared_focal is not None:
        lines.append(f"    shared_focal={result.shared_focal},")
    lines.append(")")
    return "\n".join(lines)


def _error_kind(error_deg: float) -> str:
    return "good" if error_deg < _RIGHT_DEG else "doubt" if error_deg < _NEAR_DEG else "bad"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1.0 else f"{1e3 * value:.{0 if value >= 0.01 else 2}f} ms"


def embedded_jpeg(picture: Any, most_bytes: int) -> str:
    """Return a Pillow image as a JPEG in a data URI."""
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality, optimize=True, progressive=True)
        if buffer.tell() <= most_bytes:
            break
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def shrunk(size: tuple[int, int], longest: int) -> tuple[int, int]:
    """Return a width and height whose longer edge is at most so long."""
    shrink = min(1.0, longest / max(*size, 1))
    return max(1, round(size[0] * shrink)), max(1, round(size[1] * shrink))


def photo_of_file(path: Path, longest: int, most_bytes: int) -> str | None:
    """Return a photograph as a small JPEG in a data URI; None if it cannot be read."""
    try:
        with open_image(path) as opened:
            # JPEG is decoded at a fraction of its size, which is many times faster.
            opened.draft("RGB", (longest, longest))
            photo = load_image(opened)
    except ValueError:
        return None
    return embedded_photo(photo, shrunk(photo.shape[1::-1], longest), most_bytes)


def embedded_photo(image: Any, size: tuple[int, int], most_bytes: int) -> str:
    """Return a photograph at a width and height as a JPEG in a data URI."""
    return embedded_jpeg(
        require_pillow().fromarray(screen_image(image, size, "images")), most_bytes
    )

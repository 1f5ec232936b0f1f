"""The report's texts and tables as HTML; everything that comes from outside is escaped here."""

from __future__ import annotations

import json
import math
from html import escape
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from manymatch.geometry.pose_words import camera_centre, describe_pose, describe_rotation
from manymatch.matcher.result import mean_probability
from manymatch.viz import _report_svg as svg
from manymatch.viz._report_data import CHOSEN, CONSISTENT, MOST_EDGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from manymatch._validate import FloatArray
    from manymatch.estimate.relative_pose import Estimate
    from manymatch.geometry.camera import Camera
    from manymatch.geometry.pose import RelativePose
    from manymatch.graph import AssociationGraph

_CITATION = (
    "Haodong Jiang, Mingzhe Li, Junfeng Wu. Preserve, Then Resolve: Many-to-Many Association and "
    "Robust Estimation with General-Purpose Visual Features. WACV 2027."
)
_RIGHT_DEG, _NEAR_DEG = 5.0, 10.0


def card(title: str, body: str, order: int) -> str:
    """Return a titled box, nothing without a body; `order` is its place in a single column."""
    if not body:
        return ""
    return f'<section class="card" style="order:{order}"><h2>{title}</h2>{body}</section>'


def verdict(estimate: Estimate, confidence: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (good | weak | bad, the verdict in a word or two, the reason)."""
    if estimate.pose is None:
        return "bad", "Not solved", _sentence(estimate.failure)
    word = str(confidence.get("verdict") or ("weak" if estimate.low_parallax else "solved"))
    kind = "good" if word == "solved" else "weak"
    reason = confidence.get("reason")
    if not reason and estimate.low_parallax:
        reason = (
            f"the rays of the matches meet at only {estimate.parallax_deg:.2f}°: trust the "
            "rotation, not the direction of the motion."
        )
    if not reason:
        reason = (
            f"{len(estimate.matches)} one-to-one matches agree with one pose, with a median "
            f"parallax of {estimate.parallax_deg:.1f}°."
        )
    return kind, _capital(word), _sentence(str(reason))


def banner(estimate: Estimate, confidence: Mapping[str, Any], truth_error_deg: float | None) -> str:
    """Return the verdict, its reason and the pose in words."""
    kind, word, reason = verdict(estimate, confidence)
    pill = f'<span class="pill {kind}">{escape(word)}</span>'
    if truth_error_deg is not None and estimate.pose is not None:
        pill += (
            f'<span class="pill {_error_kind(truth_error_deg)}">'
            f"{truth_error_deg:.2f}° from the known pose</span>"
        )
    said = "No pose was found."
    if estimate.pose is not None and (estimate.low_parallax or confidence.get("low_parallax")):
        turned = describe_rotation(estimate.pose)
        said = f"The second camera is {turned}; which way it moved cannot be told."
    elif estimate.pose is not None:
        said = f"The second camera is {describe_pose(estimate.pose)}."
    return (
        f'<section class="banner {kind}" aria-label="Verdict"><p class="pills">{pill}</p>'
        f'<p class="said">{escape(said)}</p><p class="reason">{escape(reason)}</p></section>'
    )


def note_list(notes: Sequence[str]) -> str:
    """Return what the reader should know, one line each."""
    lines = "".join(f"<li>{escape(str(note))}</li>" for note in notes)
    return f'<ul class="notes">{lines}</ul>' if lines else ""


def funnel(graph: AssociationGraph, estimate: Estimate, states: NDArray[np.int64]) -> str:
    """Return bars from candidates to matches, and from which ranks the matches come."""
    counts = graph.num_edges, int(np.sum(states >= CONSISTENT)), len(estimate.matches)
    degree0, _ = graph.degrees()
    active = int(np.count_nonzero(degree0))
    names = (
        (
            "Candidates kept",
            f"{graph.num_edges / max(active, 1):.1f} per keypoint that has any",
        ),
        ("Consistent with the pose", "within the threshold, in front of both cameras"),
        ("Resolved matches", "every keypoint at most once"),
    )
    rows = []
    for k, ((name, hint), count) in enumerate(zip(names, counts, strict=True)):
        share = 100.0 * count / max(counts[0], 1)
        rows.append(
            f'<li><div class="row"><b>{count:,}</b> <span>{name}</span></div>'
            f'<div class="track"><i class="step{k}" style="width:{share:.1f}%"></i></div>'
            f'<small class="quiet">{hint}</small></li>'
        )
    keypoints = f"{len(graph.points0):,} and {len(graph.points1):,} keypoints"
    body = f'<p class="quiet">{keypoints}</p><ol class="funnel">{"".join(rows)}</ol>'
    if counts[0] > MOST_EDGES:
        body += f'<p class="quiet">The pictures show {MOST_EDGES:,} of the candidates.</p>'
    return body


def ranks(graph: AssociationGraph, states: NDArray[np.int64]) -> str:
    """Return how many of the chosen candidates were the first choice, the second, and so on."""
    chosen = states == CHOSEN
    if graph.rank is None or not chosen.any():
        return ""
    values = np.minimum(graph.rank[chosen], 5)
    counts = np.bincount(values, minlength=6)[1:]
    later = int(counts[1:].sum())
    share = 100.0 * later / int(counts.sum())
    deepest = int(graph.rank.max())
    bars = "".join(
        f'<li><span>{k}{"+" if k == 5 and deepest > 5 else ""}</span><div class="track">'
        f'<i class="rank{k}" style="width:{100.0 * count / counts.max():.1f}%"></i></div>'
        f"<b>{count:,}</b></li>"
        for k, count in enumerate(counts, start=1)
        if k <= deepest
    )
    said = (
        f"{later:,} of the matches ({share:.0f} %) were not each other's first choice: one-to-one "
        "matching would never have looked at them."
        if later
        else "All matches were each other's first choice."
    )
    return f'<p class="lead">{said}</p><ol class="ranks" aria-label="Matches by rank">{bars}</ol>'


def residuals(residual_px: FloatArray, states: NDArray[np.int64], threshold_px: float) -> str:
    """Return the histogram of the Sampson distances with its key."""
    finite = residual_px[np.isfinite(residual_px)]
    if len(finite) == 0:
        return ""
    chosen = residual_px[(states == CHOSEN) & np.isfinite(residual_px)]
    middle = f"Half of the chosen are within {np.median(chosen):.2f} px. " if len(chosen) else ""
    beyond = int(np.sum(finite > 3 * threshold_px))
    return (
        '<p class="key"><span class="k-chosen">chosen</span> <span class="k-consistent">consistent'
        '</span> <span class="k-all">all candidates</span></p>'
        f"{svg.histogram(finite, states[np.isfinite(residual_px)], threshold_px)}"
        f'<p class="quiet">Sampson distance. {middle}{beyond:,} candidates lie beyond the axis.</p>'
    )


def pose(found: RelativePose | None) -> str:
    """Return drawings of the two cameras, and R and t as text to copy."""
    if found is None:
        return ""
    axis = ", ".join(f"{v:+.3f}" for v in found.axis)
    sides = (("left", "right"), ("up", "down"), ("backward", "forward"))
    stands = ", ".join(
        f"{abs(v):.3f} {words[int(v > 0)]}"
        for v, words in zip(camera_centre(found), sides, strict=True)
    )
    rows = [" ".join(f"{v: .6f}" for v in row) for row in (*found.R, found.t)]
    text = "\n".join(["R =", *rows[:3], "t =", rows[3]])
    return (
        f"{svg.pose_views(found)}"
        f"<dl><dt>Rotation</dt><dd>{found.angle_deg:.2f}° about ({axis})</dd>"
        f"<dt>Second camera at</dt><dd>{stands}</dd></dl>"
        '<p class="quiet">x<sub>1</sub> = R x<sub>0</sub> + t; x right, y down, z forward. The '
        "length of t is not known from two views.</p>"
        f"{code(text, 'R and t')}"
    )


def code(text: str, name: str) -> str:
    """Return preformatted text with a button that copies it."""
    label = escape(name, quote=True)
    return (
        f'<div class="code"><button type="button" class="copy" aria-label="Copy {label}">Copy'
        f'</button><pre tabindex="0" aria-label="{label}">{escape(text)}</pre></div>'
    )


def sureness(estimate: Estimate, confidence: Mapping[str, Any]) -> str:
    """Return the numbers that say how far the pose can be trusted."""
    if estimate.pose is None:
        return ""
    rows: list[tuple[str, str, str]] = []
    if _is_number(confidence.get("chance")):
        hint = "that a matching as large arises at random"
        if _is_number(confidence.get("chance_matches")):
            hint += f", where about {confidence['chance_matches']:.0f} matches do"
        rows.append(("Chance", _chance(confidence["chance"]), hint))
    right = mean_probability(estimate)
    if right is not None:
        rows.append(("A match", f"{100.0 * right:.0f} %", "probability to be right, in the mean"))
    parallax = confidence.get("parallax_deg", estimate.parallax_deg)
    if _is_number(parallax):
        low = confidence.get("low_parallax", estimate.low_parallax)
        hint = "median angle between the rays of a match" + (", which is low" if low else "")
        rows.append(("Parallax", f"{parallax:.2f}°", hint))
    for key, name in (
        ("rotation_sd_deg", "Rotation"),
        ("translation_sd_deg", "Direction of motion"),
    ):
        if _is_number(confidence.get(key)):
            rows.append((name, f"±{_figures(confidence[key])}°", "standard deviation"))
        elif key in confidence:
            rows.append((name, "unknown", "the matches do not determine it"))
    planar = confidence.get("planar")
    if isinstance(planar, bool):
        rows.append(("One plane", "yes" if planar else "no", "whether it holds the matches"))
    elif _is_number(planar):
        rows.append(("One plane", f"{100.0 * planar:.0f} %", "of the matches lie on it"))
    if _is_number(confidence.get("noise_px")):
        rows.append(("Noise", f"{confidence['noise_px']:.2f} px", "of a keypoint, estimated"))
    items = "".join(
        f"<div><dt>{name}</dt><dd><b>{value}</b><small>{hint}</small></dd></div>"
        for name, value, hint in rows
    )
    return f'<dl class="facts">{items}</dl>' if rows else ""


def times(timing: Mapping[str, Any]) -> str:
    """Return a bar for every stage's seconds."""
    stages = {
        str(name): float(value)
        for name, value in timing.items()
        if _is_number(value) and name != "total"
    }
    whole = sum(stages.values())
    if whole <= 0.0:
        return ""
    total = timing["total"] if _is_number(timing.get("total")) else whole
    bars = "".join(
        f'<li><span>{escape(name.replace("_", " "))}</span><div class="track"><i class="time" '
        f'style="width:{100.0 * max(value, 0.0) / max(stages.values()):.1f}%"></i></div>'
        f"<b>{_seconds(value)}</b></li>"
        for name, value in stages.items()
    )
    return f'<p class="lead">{_seconds(float(total))} in all.</p><ol class="times">{bars}</ol>'


def comparison(
    estimate: Estimate, compare: Sequence[Mapping[str, Any]], truth_error_deg: float | None
) -> str:
    """Return the table of this result and the others, one row each."""
    if not compare:
        return ""
    rows = [("this result", estimate, truth_error_deg)]
    rows += [(str(row["name"]), row["estimate"], row.get("error_deg")) for row in compare]
    known = any(error is not None for _, _, error in rows)
    head = "<th>error</th>" if known else ""
    body = ""
    for k, (name, other, error) in enumerate(rows):
        cell = ""
        if known:
            kind = "" if error is None else _error_kind(error)
            cell = f'<td class="{kind}">{"-" if error is None else f"{error:.2f}°"}</td>'
        body += (
            f'<tr{" class=this" if k == 0 else ""}><th scope="row">{escape(name)}</th>{cell}'
            f"<td>{other.inliers.size:,}</td><td>{other.num_inliers:,}</td>"
            f"<td>{len(other.matches):,}</td></tr>"
        )
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{head}<th>kept</th>'
        f"<th>inliers</th><th>matches</th></tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="quiet">Above the images, every row can be shown as a layer.</p>'
    )


def configuration(config: Mapping[str, Any]) -> str:
    """Return every setting by its dotted name, and the whole as JSON to copy."""
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in _flat(config)
    )
    text = json.dumps(config, indent=2, default=_plain, ensure_ascii=False)
    return (
        '<details><summary>Configuration, versions and seed</summary><div class="scroll">'
        f'<table class="settings"><tbody>{rows}</tbody></table></div>{code(text, "configuration")}'
        "</details>"
        if rows
        else ""
    )


def reproduce(estimate: Estimate, cameras: tuple[Camera, Camera], config: Mapping[str, Any]) -> str:
    """Return how to get the same result again, and what to cite."""
    command = config.get("command")
    shell = code(command, "command") if isinstance(command, str) and command else ""
    lines = ["import manymatch as mm", ""]
    for k, camera in enumerate(cameras):
        size = f"{camera.width}, {camera.height}"
        params = ", ".join(f"{v:.9g}" for v in camera.params)
        lines.append(f'camera{k} = mm.Camera("{camera.model}", {size}, [{params}])')
    options = ", ".join(f"{name}={value!r}" for name, value in estimate.options.to_dict().items())
    lines += [
        f"options = mm.Options({options})",
        "estimate = mm.estimate_relative_pose(",
        f'    graph, camera0, camera1, method="{estimate.method}", options=options',
        ")",
    ]
    python = code("\n".join(lines), "Python")
    return (
        f"<details><summary>Reproduce and cite</summary>{shell}"
        '<p class="quiet">The same candidates, cameras, options and seed give the same result on '
        f"any number of threads.</p>{python}"
        f'<p class="quiet">If it helps your work, please cite: {escape(_CITATION)}</p></details>'
    )


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """List the leaves of a nested mapping with dotted names."""
    rows = []
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, dict) and entry:
            rows += _flat(entry, f"{name}.")
        else:
            rows.append((name, "none" if entry is None else str(entry)))
    return rows


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it knows."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _error_kind(error_deg: float) -> str:
    return "good" if error_deg < _RIGHT_DEG else "weak" if error_deg < _NEAR_DEG else "bad"


def _is_number(value: object) -> TypeGuard[float]:
    """Tell finite numbers from everything else, truth values included."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return False
    return math.isfinite(value)


def _chance(value: float) -> str:
    """Return a probability as HTML, however small."""
    if value >= 0.001:
        return f"{100.0 * value:.2g} %"
    if value <= 0.0:
        return "practically none"
    return f"1 in 10<sup>{-math.ceil(math.log10(value))}</sup>"


def _figures(value: float) -> str:
    """Return two significant figures without an exponent."""
    digits = 2 if value <= 0.0 else min(6, max(0, 1 - math.floor(math.log10(value))))
    return f"{value:.{digits}f}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1.0 else f"{1e3 * value:.{0 if value >= 0.01 else 2}f} ms"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    text = _capital(text.strip())
    return text if text.endswith((".", "!", "?")) else text + "."

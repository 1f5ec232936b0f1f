"""The figures of README and of the page "The method", made from rendered photographs.

``python -m tools.site.figures`` writes them into ``docs/figures``; it needs no torch, and the same
files come out on every run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import manymatch as mm

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
PAPER, INK, GREY = (24, 26, 31), (235, 237, 240), (150, 156, 166)
WRONG, RIGHT, MAYBE = (232, 93, 74), (52, 199, 148), (120, 160, 255)
# Colours of curves, readable on light and on dark pages.
CURVES = {"CM": "#e0694f", "HCM": "#3d8bfd", "MCM": "#1f9d73"}
WIDTH, GAP, CAPTION = 960, 8, 46
SCALE = 2  # supersampling


def main() -> None:
    """Write all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIGURES)
    parser.add_argument("--streets", type=int, default=6, help="streets of the figure of recall")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    pair = mm.io.demo_pair("classic")
    matcher = mm.Matcher("classic")
    result = matcher.match(pair.path0, pair.path1, pair.camera0, pair.camera1, with_rank_one=True)
    draw_animation(pair, result, arguments.out)
    draw_scores(pair, result, arguments.out)
    draw_recall(arguments.streets, arguments.out)


# The animation


class Canvas:
    """Two photographs side by side with a line of text below, drawn at twice the size."""

    def __init__(self, pair: Any) -> None:
        photos = [Image.open(path).convert("RGB") for path in (pair.path0, pair.path1)]
        self.width = (WIDTH - GAP) // 2
        self.height = round(self.width * photos[0].height / photos[0].width)
        self.scale = self.width / photos[0].width
        size = (WIDTH * SCALE, (self.height + CAPTION) * SCALE)
        self.base = Image.new("RGB", size, PAPER)
        for side, photo in enumerate(photos):
            small = photo.resize(
                (self.width * SCALE, self.height * SCALE), Image.Resampling.LANCZOS
            )
            # Darker, so that lines stand out.
            dark = small.point(lambda value: int(0.6 * value))
            self.base.paste(dark, (side * (self.width + GAP) * SCALE, 0))
        self.font = ImageFont.load_default(20 * SCALE)

    def place(self, side: int, point: np.ndarray) -> tuple[float, float]:
        """Return where a pixel of the first (0) or second (1) photograph is drawn."""
        x, y = (np.asarray(point) + 0.5) * self.scale * SCALE
        return x + side * (self.width + GAP) * SCALE, y

    def frame(self, lines: list[Any], dots: list[Any], text: str, colour: Any = INK) -> Image.Image:
        """Draw lines (point0, point1, colour, width) and dots (side, point, colour)."""
        image = self.base.copy()
        draw = ImageDraw.Draw(image)
        for point0, point1, ink, width in lines:
            ends = [self.place(0, point0), self.place(1, point1)]
            draw.line(ends, fill=ink, width=round(width * SCALE))
        for side, point, ink in dots:
            x, y = self.place(side, point)
            radius = 4.5 * SCALE
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink, outline=PAPER)
        draw.text((14 * SCALE, (self.height + 11) * SCALE), text, fill=colour, font=self.font)
        return image.resize((WIDTH, self.height + CAPTION), Image.Resampling.LANCZOS)


def shown_keypoints(result: Any, count: int) -> list[int]:
    """Choose matches far from each other, those beyond rank one first."""
    graph, matches = result.graph, result.estimate.matches
    first = {tuple(edge) for edge in graph.up_to_rank(1).edges.tolist()}
    degree = graph.degrees()[0]
    order = sorted(
        range(len(matches)),
        key=lambda m: (tuple(matches[m].tolist()) in first, -degree[matches[m, 0]], m),
    )
    chosen: list[int] = []
    for m in order:
        point = graph.points0[matches[m, 0]]
        others = graph.points0[matches[chosen, 0]]
        if len(others) == 0 or np.linalg.norm(others - point, axis=1).min() > 70:
            chosen.append(m)
        if len(chosen) == count:
            break
    return chosen


def draw_animation(pair: Any, result: Any, out: Path, count: int = 16) -> None:
    """Candidates appear, the most similar ones are wrong, geometry chooses."""
    canvas = Canvas(pair)
    graph, estimate = result.graph, result.estimate
    matches = estimate.matches[shown_keypoints(result, count)]
    edges = {int(i): graph.edges[graph.edges[:, 0] == i] for i in matches[:, 0]}
    true = mm.RelativePose(pair.R, pair.t)
    errors = [mm.pose_error_deg(one.pose, true.R, true.t) for _, one in result.systems()]
    dots0 = [(0, graph.points0[i], INK) for i in edges]

    def candidates(keypoints: list[int], most: int, colour: Any, width: float) -> list[Any]:
        return [
            (graph.points0[i], graph.points1[j], colour, width)
            for i in keypoints
            for _, j in edges[i][:most]
        ]

    def ends(lines: list[Any]) -> list[Any]:
        return [(1, line[1], line[2]) for line in lines]

    frames, times = [], []

    def add(lines: list[Any], text: str, milliseconds: int, colour: Any = INK) -> None:
        frames.append(canvas.frame(lines, dots0 + ends(lines), text, colour))
        times.append(milliseconds)

    keypoints = list(edges)
    add([], "Two photographs of a street with many equal windows.", 1400)
    for shown in range(2, count + 1, 2):
        text = "Features propose: several candidates for each keypoint."
        add(candidates(keypoints[:shown], 5, MAYBE, 1.6), text, 110)
    add(candidates(keypoints, 5, MAYBE, 1.6), "The graph keeps all of them.", 1600)
    # The usual way: the first candidate of each, right or wrong.
    chosen = {tuple(match) for match in matches.tolist()}
    best = [
        (graph.points0[i], graph.points1[edges[i][0][1]],
         RIGHT if (i, int(edges[i][0][1])) in chosen else WRONG, 2.4)
        for i in keypoints
    ]  # fmt: skip
    add(best, f"The most similar alone: pose off by {errors[1]:.1f}°.", 2400, WRONG)
    faint = candidates(keypoints, 5, GREY, 0.8)
    resolved = [(graph.points0[i], graph.points1[j], RIGHT, 2.8) for i, j in matches]
    for shown in range(2, count + 1, 2):
        text = "Geometry resolves: one pose, one partner for each keypoint."
        add(faint + resolved[:shown], text, 110)
    add(resolved, f"All candidates, resolved: pose off by {errors[0]:.1f}°.", 3200, RIGHT)
    frames[0].save(
        out / "hero.webp", save_all=True, append_images=frames[1:], duration=times, loop=0,
        quality=62, method=6,
    )  # fmt: skip
    still = [frame for frame, ms in zip(frames, times, strict=True) if ms >= 1600]
    sheet = Image.new("RGB", (WIDTH, sum(frame.height for frame in still)), PAPER)
    for row, frame in enumerate(still):
        sheet.paste(frame, (0, row * frame.height))
    sheet.save(out / "candidates.jpg", quality=72, optimize=True, progressive=True)


# The scores


def turned(pose0: Any, pose1: Any, share: float) -> Any:
    """Pose on the way from one to the other; shares below 0 and above 1 go beyond them."""
    import cv2

    turn, _ = cv2.Rodrigues(pose1.R @ pose0.R.T)
    rotation, _ = cv2.Rodrigues(share * turn)
    axis = np.cross(pose0.t, pose1.t)
    angle = np.arctan2(np.linalg.norm(axis), pose0.t @ pose1.t)
    swing, _ = cv2.Rodrigues(share * angle * axis / np.linalg.norm(axis))
    return mm.RelativePose(rotation @ pose0.R, swing @ pose0.t)


def plain_axes(width: float, height: float) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "manymatch"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(width, height))
    figure.patch.set_alpha(0.0)
    axes.patch.set_alpha(0.0)
    grey = "#808892"
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
    for name in ("left", "bottom"):
        axes.spines[name].set_color(grey)
    axes.tick_params(colors=grey)
    axes.xaxis.label.set_color(grey)
    axes.yaxis.label.set_color(grey)
    return figure, axes


def save_svg(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw_scores(pair: Any, result: Any, out: Path) -> None:
    """Plot the three scores on the way from the wrong pose of rank-one matching to the true one."""
    true, wrong = mm.RelativePose(pair.R, pair.t), result.rank_one.estimate.pose
    shares = np.linspace(-0.15, 1.15, 131)
    scores: dict[str, list[float]] = {name: [] for name in CURVES}
    for share in shares:
        score = mm.score_pose(result.graph, pair.camera0, pair.camera1, turned(true, wrong, share))
        scores["CM"].append(score.num_inliers)
        scores["HCM"].append(score.hcm)
        scores["MCM"].append(score.cardinality)
    figure, axes = plain_axes(7.2, 3.0)
    for name, values in scores.items():
        scaled = np.array(values) / max(values)
        axes.plot(shares, scaled, color=CURVES[name], label=name, linewidth=1.8)
    for place, text in ((0.0, "true pose"), (1.0, "pose of rank-one\nmatching")):
        axes.axvline(place, color="#808892", linewidth=0.8, linestyle=":")
        axes.annotate(text, (place, 1.06), ha="center", color="#808892", annotation_clip=False)
    axes.set_ylabel("score, its maximum is 1")
    axes.set_xticks([])
    axes.set_ylim(0, 1.05)
    axes.legend(frameon=False, labelcolor="#808892", loc="center")
    save_svg(figure, out / "scores.svg")
    for name, values in scores.items():
        at = [values[int(np.argmin(abs(shares - place)))] for place in (0.0, 1.0)]
        print(f"{name}: {at[0]:.1f} at the true pose, {at[1]:.1f} at the other")


# Recall by the number of candidates


def draw_recall(streets: int, out: Path) -> None:
    """Plot which share of keypoints has its true partner among the first K candidates."""
    import subprocess
    import sys
    import tempfile

    ks = [1, 2, 3, 5, 8, 12, 16]
    sums: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tools.street", "--out", folder, "--pairs", str(streets)]
        subprocess.run([*command, "--size", "640", "480"], check=True, capture_output=True)  # noqa: S603
        for name in presets():
            extractor = mm.features.Extractor(name)
            for pair in mm.io.read_pairs(Path(folder) / "pairs.txt", Path(folder) / "images"):
                sums.setdefault(name, []).append(recall(pair, Path(folder), extractor, ks))
    figure, axes = plain_axes(7.2, 3.0)
    means = {name: np.mean(rows, axis=0) for name, rows in sums.items()}
    for name, colour in zip(means, ("#3d8bfd", "#e0694f"), strict=False):
        axes.plot(ks, means[name], color=colour, marker="o", label=name, linewidth=1.8)
    axes.set_xticks(ks)
    axes.set_xlabel("candidates per keypoint, K")
    axes.set_ylabel("keypoints with the true\npartner among them, %")
    axes.set_ylim(0, None)
    axes.legend(frameon=False, labelcolor="#808892", loc="lower right")
    save_svg(figure, out / "recall.svg")
    for name, values in means.items():
        print(name, dict(zip(ks, np.round(values, 1).tolist(), strict=True)))


def presets() -> list[str]:
    """Return SIFT and, where it is installed, a network that was not made for matching."""
    try:
        mm.features.Extractor("embedded")
    except (ImportError, ValueError):
        return ["classic"]
    return ["classic", "embedded"]


def recall(pair: Any, folder: Path, extractor: Any, ks: list[int]) -> list[float]:
    """Return for each K the share of keypoints, in percent, that have a right candidate.

    Counted are keypoints of the first image whose point is seen in the second, within 3 pixels of
    some keypoint there.
    """
    features = [extractor.extract(path) for path in (pair.path0, pair.path1)]
    points0, points1 = features[0].points, features[1].points
    depth = np.asarray(Image.open(folder / "depth" / f"{Path(pair.path0).stem}.png")) / 1000.0
    where = np.clip(np.rint(points0).astype(int), 0, np.array(depth.shape[::-1]) - 1)
    z = depth[where[:, 1], where[:, 0]]
    K0, K1 = pair.camera0.K, pair.camera1.K
    rays = np.column_stack([points0, np.ones(len(points0))]) @ np.linalg.inv(K0).T
    seen = (rays * z[:, None]) @ np.asarray(pair.R).T + pair.t
    image = seen @ K1.T
    image = image[:, :2] / image[:, 2:]
    distance = np.linalg.norm(image[:, None] - points1[None], axis=2)
    counted = (z > 0) & (seen[:, 2] > 0) & (distance.min(axis=1) < 3.0)
    edges, _, rank = mm.associate(
        features[0].descriptors, features[1].descriptors, k=max(ks), operator="oneway"
    )
    right = distance[edges[:, 0], edges[:, 1]] < 3.0
    best = np.full(len(points0), np.inf)
    np.minimum.at(best, edges[right, 0], rank[right])
    return [100.0 * float(np.mean(best[counted] <= k)) for k in ks]


if __name__ == "__main__":
    main()

"""Frames a second of a reconstruction's page in headless Chromium, which has no graphics card.

    python benchmarks/speed/model_page.py [--points 100000] [--cameras 25] [--size 1440 900]

A drag turns the model by a few pixels in every frame, as a mouse would. Printed are the size of
the page, the seconds to write it, frames a second, and the CPU time of all of Chromium's processes
for a frame, which other programs on the machine change little. Needs Linux and Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from manymatch.viz.model_page import (
    PageCamera,
    PageImage,
    PageModel,
    PagePair,
    write_model_page,
)
from tests.support.browser import Browser

WARM_UP, FRAMES = 20, 120
SIZE = (640, 480)
DRAG = """new Promise((done) => {
  const box = view.getBoundingClientRect(), times = [];
  let x = box.left + 0.3 * box.width, y = box.top + 0.5 * box.height;
  const send = (type) => view.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: x,
    clientY: y, buttons: 1, bubbles: true, pointerType: "mouse" }));
  view.setPointerCapture = () => {};
  send("pointerdown");
  const step = (now) => {
    times.push(now);
    x += 3;
    y += Math.sin(times.length / 20);
    send("pointermove");
    if (times.length <= FRAMES) return requestAnimationFrame(step);
    send("pointerup");
    done(times[FRAMES] - times[0]);
  };
  requestAnimationFrame(step);
})"""


def make_page(folder: Path, num_points: int, num_cameras: int) -> Path:
    """Write the page of a bumpy ball with cameras around it that look at it."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(num_points, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    points *= 1.0 + 0.1 * np.sin(6.0 * points).sum(axis=1, keepdims=True)
    colors = np.clip(128 + 90 * points, 0, 255).astype(np.uint8)
    Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8)).resize(SIZE).save(folder / "0.jpg")
    images = [PageImage(f"{k}.jpg", folder / "0.jpg", SIZE) for k in range(num_cameras)]
    cameras = []
    for k in range(num_cameras):
        angle = 2.0 * np.pi * k / num_cameras
        ahead = np.array([-np.cos(angle), -np.sin(angle), 0.0])
        down = np.array([0.0, 0.0, -1.0])
        R = np.array([np.cross(down, ahead), down, ahead])
        cameras.append(PageCamera(k, R, R @ (3.0 * ahead), 500.0, SIZE))
    seen = np.column_stack(
        [rng.integers(0, num_cameras, 4 * num_points), np.arange(4 * num_points)]
    )
    seen[:, 1] %= num_points
    lines = rng.uniform(0, 480, (60, 4))
    pairs = [
        PagePair(k, k + d, "solved", 1.0 / d, d < 4, f"{d} apart.", 100, lines)
        for k in range(num_cameras)
        for d in range(1, min(11, num_cameras - k))
    ]
    model = PageModel(points, colors, cameras, seen)
    write_model_page(folder / "index.html", "Ball", [model], images, pairs, {}, [])
    return folder / "index.html"


def cpu_seconds() -> float:
    """CPU time of the browser that this process has started, with all its processes."""
    stats = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            stats.append((int(entry.name), *map(int, (fields[1], fields[3], *fields[11:13]))))
    # The browser leads a session of its own.
    session = next(pid for pid, parent, *_ in stats if parent == os.getpid())
    ticks = sum(user + kernel for _, _, of, user, kernel in stats if of == session)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure one page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--cameras", type=int, default=25)
    parser.add_argument("--size", type=int, nargs=2, default=(1440, 900), help="of the window")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        begin = time.process_time()
        page = make_page(Path(folder), arguments.points, arguments.cameras)
        seconds = time.process_time() - begin
        print(f"page: {page.stat().st_size / 1e6:.1f} MB, {seconds:.1f} s to make")
        browser.resize(*arguments.size)
        browser.open(page.as_uri())
        browser.evaluate("new Promise((done) => setTimeout(done, 2000))")
        print("canvas: {} x {} pixels".format(*browser.evaluate("[view.width, view.height]")))
        browser.evaluate(DRAG.replace("FRAMES", str(WARM_UP)))
        before = cpu_seconds()
        milliseconds = browser.evaluate(DRAG.replace("FRAMES", str(FRAMES)))
        cpu = 1e3 * (cpu_seconds() - before) / FRAMES
        load = os.getloadavg()[0]
        print(
            f"{1e3 * FRAMES / milliseconds:.1f} frames a second, {cpu:.1f} ms of CPU a frame, "
            f"load of the machine {load:.1f} on {os.cpu_count()} cores"
        )


if __name__ == "__main__":
    main()

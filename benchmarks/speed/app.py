"""Seconds of every interaction with the app, in a real browser, from a click to what it shows.

    python benchmarks/speed/app.py --repeats 20 > benchmarks/results/app.md

The app runs as `manymatch app` does, and Chromium is driven beside it on the same cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.speed.report import processor_name
from manymatch._validate import METHODS
from manymatch.app.jobs import Jobs
from manymatch.app.request import PairRequest
from tests.app.conftest import DEMO, RunningApp
from tests.app.test_app_browser import (
    CHANGED,
    DRAWN,
    KEEP,
    click,
    give,
    open_page,
    wait_for_element,
)
from tests.support.browser import Browser

PAIRS = {
    "classic": ("street2.jpg", "street3.jpg"),
    "fused": ("street0.jpg", "street1.jpg"),
}


def seconds(action: Callable[[], object], done: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    done()
    return time.perf_counter() - start


def set_field(browser: Browser, selector: str, value: str) -> None:
    """Set the value of a field as its user would."""
    browser.evaluate(
        f"(e => {{ const own = Object.getPrototypeOf(e); "
        f"Object.getOwnPropertyDescriptor(own, 'value').set.call(e, {value!r}); "
        "e.dispatchEvent(new Event('input', {bubbles: true})); "
        f"e.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
        f"(document.querySelector({selector!r}))"
    )


def choose(browser: Browser, name: str, value: str) -> None:
    """Choose an entry of a list by keyboard: write it and press Enter."""
    browser.evaluate(f"document.querySelector('#{name} input').focus()")
    browser.evaluate(f"document.querySelector('#{name} input').select()")
    browser.type_text(value)
    browser.press("Enter")


def measure(preset: str, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each interaction with a preset."""
    times: dict[str, list[float]] = {}
    pair = tuple(DEMO / name for name in PAIRS[preset])
    with tempfile.TemporaryDirectory() as folder, Browser(patience=120) as browser:
        start = time.perf_counter()
        app = RunningApp(Path(folder), "--preset", preset)
        times["command to page being served"] = [time.perf_counter() - start]

        def drawn() -> None:
            browser.wait_for(CHANGED)
            browser.wait_for(DRAWN)

        def timed(name: str, action: Callable[[], object], done: Callable[[], object]) -> None:
            times.setdefault(name, []).append(seconds(action, done))

        try:
            timed("page opens", lambda: open_page(browser, app), lambda: None)
            timed("two photographs are uploaded", lambda: give(browser, pair), lambda: None)
            browser.evaluate(KEEP)
            timed("first result after Match", lambda: click(browser, "#match"), drawn)
            times["command to first result"] = [time.perf_counter() - start]
            for number in range(repeats):
                for name, action in again(browser, number).items():
                    browser.evaluate(KEEP)
                    timed(f"solve again: {name}", action, drawn)
                    time.sleep(0.3)
            click(browser, "#export")
            files = "document.querySelectorAll('#files a[download]').length > 0"
            timed("report and matches as files", lambda: None, lambda: browser.wait_for(files))
            [read] = browser.frames()[-1:]
            for _ in range(repeats):
                held = "document.getElementById('detail').textContent.includes('Keypoint')"
                step = "document.getElementById('step').click()"
                timed("candidates of a keypoint", lambda s=step: read(s), lambda h=held: read(h))
            for _ in range(min(repeats, 3)):
                open_page(browser, app)
                give(browser, pair)
                browser.evaluate(KEEP)
                timed(
                    "result of another user's equal pair", lambda: click(browser, "#match"), drawn
                )
            wait_for_element(browser, "#stage iframe")
        finally:
            app.end()
    return times


def worker_seconds(preset: str, repeats: int) -> dict[str, list[float]]:
    """Return processor seconds of the app's jobs, which do not depend on what else runs.

    All threads count, so that two cores may need little more than half of them.
    """
    photos = (DEMO / PAIRS[preset][0], DEMO / PAIRS[preset][1])
    jobs, times = Jobs(lambda _: None), dict[str, list[float]]()

    def timed(name: str, **changes: object) -> None:
        start = time.process_time()
        jobs.match(PairRequest(photos, preset=preset, changes=changes))
        times.setdefault(name, []).append(time.process_time() - start)

    jobs.warm([preset])
    timed("first result")
    for k in range(1, 11):
        jobs.prepare(PairRequest(photos, preset=preset, changes={"k": k}))
    for number in range(repeats):
        timed("solve again: seed", seed=number + 1)
        timed("solve again: K", k=1 + number % 10, seed=100 + number)
        timed("solve again: threshold", threshold_px=1.1 + 0.1 * number)
        timed("solve again: method", method=METHODS[number % len(METHODS)], seed=200 + number)
    return times


def again(browser: Browser, number: int) -> dict[str, Callable[[], object]]:
    """Return changes of settings, none of which was made before."""
    return {
        "seed": lambda: set_field(browser, "#seed input", str(number + 1)),
        "K": lambda: set_field(browser, "#k input[type=number]", str(1 + number % 10)),
        "threshold": lambda: choose(browser, "threshold", f"{1.1 + 0.1 * number:.1f}"),
        "method": lambda: choose(browser, "method", ("hcm-mcm", "auto")[number % 2]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--presets", nargs="+", default=list(PAIRS))
    parser.add_argument("--processor", action="store_true", help="processor seconds, no browser")
    arguments = parser.parse_args()
    of = worker_seconds if arguments.processor else measure
    found = {preset: of(preset, arguments.repeats) for preset in arguments.presets}
    if arguments.processor:
        print_tables(found)
        return
    print("# The app: seconds of every interaction\n")
    print("```sh")
    print(
        f"python benchmarks/speed/app.py --repeats {arguments.repeats} > benchmarks/results/app.md"
    )
    print("```\n")
    print(
        f"{processor_name()}, {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f} in the five "
        "minutes before the end. Chromium runs on the same cores. Photographs of 960 x 720 pixels, "
        "cameras unknown. A time ends when the page in the frame has drawn the result.\n"
    )
    print_tables(found)


def print_tables(found: dict[str, dict[str, list[float]]]) -> None:
    for preset, times in found.items():
        print(f"## Preset {preset}\n")
        print("| interaction | times | p50, s | p95, s |\n|---|---|---|---|")
        for name, values in times.items():
            middle, high = np.percentile(values, [50, 95])
            print(f"| {name} | {len(values)} | {middle:.2f} | {high:.2f} |")
        print()


if __name__ == "__main__":
    main()

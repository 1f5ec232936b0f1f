"""A running app, and browsers that look at it."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import Browser, find_chromium

START = "from manymatch.cli.app import main; main()"
DEMO = Path(__file__).parents[2] / "src" / "manymatch" / "demo_photos"


def pytest_collection_modifyitems(items):
    for item in items:
        if "app_browser" in item.nodeid:
            if importlib.util.find_spec("gradio") is None:
                item.add_marker(
                    pytest.mark.skip(reason='needs gradio: pip install "manymatch[app]"')
                )
            if find_chromium() is None:
                reason = "needs Chromium: apt-get install chromium, or MANYMATCH_CHROMIUM=/path"
                item.add_marker(pytest.mark.skip(reason=reason))


class RunningApp:
    """`manymatch app` in a process of its own, with a folder for its temporary files."""

    def __init__(self, folder, *arguments, command=("-c", START, "app", "--no-browser"), **more):
        self.folder = folder
        command = [sys.executable, *command, *arguments]
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        path = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
        self.process = subprocess.Popen(  # noqa: S603
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Gradio serves files below this folder: neither the package nor uploads are there.
            cwd=elsewhere,
            env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "200", "PYTHONPATH": path, **more},
        )
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                self.address = found[0]
                return
        raise AssertionError(self.output)

    def end(self, how=signal.SIGTERM):
        """End it by a signal; return its exit code."""
        self.process.send_signal(how)
        self.output += self.process.communicate(timeout=60)[0]
        return self.process.returncode


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    running = RunningApp(tmp_path_factory.mktemp("app"), "--preset", "classic", "--seconds", "60")
    yield running
    running.end()


@pytest.fixture
def browser():
    with Browser(patience=90) as browser:
        yield browser

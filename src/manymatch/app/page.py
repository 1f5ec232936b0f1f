"""The app: what all users share, the page with its two tabs, and how it is served."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from manymatch._validate import choice, require
from manymatch.app.folder import FolderTab
from manymatch.app.jobs import ready_presets
from manymatch.app.pair import PairTab
from manymatch.app.session import Limits, Session
from manymatch.app.worker import Worker
from manymatch.viz.report import template_file

# Threads that wait for jobs; the workers do one at a time.
_THREADS = 64


class App:
    """The app's state that all users share: the workers, the folder of all uploads, the limits.

    Users may match the photographs of the folder `photos`, beside what they upload. The preset is
    the one that is chosen at first.
    """

    def __init__(
        self, photos: Path | None = None, preset: str | None = None, limits: Limits | None = None
    ) -> None:
        self.presets = ready_presets()
        if preset is not None:
            choice(preset, "preset", self.presets)
            self.presets.sort(key=lambda name: name != preset)
        self.limits = limits or Limits()
        self.photos = photos
        self.root = Path(tempfile.mkdtemp(prefix="manymatch-app-"))
        # Gradio keeps uploads there.
        os.environ["GRADIO_TEMP_DIR"] = str(self.root)
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["HF_HUB_OFFLINE"] = "1"
        # Pairs do not wait for folders.
        self.quick, self.slow = Worker(), Worker()
        self.quick.start()
        self.pool = ThreadPoolExecutor(_THREADS)

    def pair_job(self, job: str, *arguments: Any, **more: Any) -> Any:
        """Do a job about two photographs."""
        return self.quick.run(job, *arguments, seconds=self.limits.pair_seconds, **more)

    def close(self) -> None:
        """End the workers and remove all files."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.quick.close()
        self.slow.close()
        shutil.rmtree(self.root, ignore_errors=True)


def build(app: App) -> Any:
    """Return the page as Gradio's blocks."""
    gr = require("gradio", "the app", "app")
    how = {"analytics_enabled": False, "fill_width": True, "delete_cache": (3600, 7200)}
    with gr.Blocks(title="manymatch", **how) as page:
        session = gr.State(Session(app.root), delete_callback=Session.close)
        said = "<p>Several candidates per keypoint; geometry chooses.</p>"
        head = f"<header class='mm-head'>{template_file('brand.html')}{said}</header>"
        gr.HTML(head, elem_classes="mm-headline")
        with gr.Tab("Two photographs"):
            PairTab(gr, app, session)
        with gr.Tab("A folder"):
            FolderTab(gr, app, session)
    return page


def _theme(gr: Any) -> Any:
    """Return a plain theme with fonts that every machine has; app.css has the colours."""
    sans = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial")
    return gr.themes.Base(
        primary_hue="teal",
        neutral_hue="slate",
        radius_size="lg",
        font=[*sans, "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )


def launch(
    app: App, *, host: str = "127.0.0.1", port: int | None = None, browser: bool = False
) -> tuple[Any, str]:
    """Serve the page from threads of its own; return it and its address."""
    gr = require("gradio", "the app", "app")
    page = build(app)
    # Networks are loaded while the user looks at the page.
    app.pool.submit(app.pair_job, "warm", app.presets[:1])
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        share=False,
        inbrowser=browser,
        quiet=True,
        prevent_thread_lock=True,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        show_error=False,
        max_file_size=app.limits.upload_mb * 1024 * 1024,
        theme=_theme(gr),
        css=template_file("app.css"),
        head=f"<script>{template_file('app.js')}</script>",
    )
    return page, address


def serve(app: App, tell: Callable[[str], object] = print, **how: Any) -> None:
    """Serve the page, as `launch` does, until Ctrl-C or SIGTERM; then remove what was uploaded."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        page, address = launch(app, **how)
        tell(f"The page is at {address}; Ctrl-C ends it.")
        page.block_thread()
    finally:
        app.close()

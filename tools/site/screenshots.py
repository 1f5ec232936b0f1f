"""Screenshots of the site and of the app for the page "The app", taken with headless Chromium.

    make docs && python -m tools.site.screenshots

They go to docs/images as WebP: the app with a result and with a folder, the site and its gallery,
each in light and dark, on a desktop and on a phone.
"""

from __future__ import annotations

import base64
import io
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.app.conftest import DEMO, RunningApp
from tests.app.test_app_browser import click, give, match, open_folder, open_page
from tests.support.browser import Browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
DESKTOP, PHONE = (1440, 1000), (390, 844)
# Name, page of the site, window, dark.
SITE = (
    ("site-light", "index.html", DESKTOP, False),
    ("site-phone-dark", "index.html", PHONE, True),
    ("gallery-dark", "gallery.html", DESKTOP, True),
    ("gallery-phone-light", "gallery.html", PHONE, False),
)
# Name, window, dark.
APP = (
    ("app-light", DESKTOP, False),
    ("app-dark", DESKTOP, True),
    ("app-phone-light", PHONE, False),
    ("app-phone-dark", PHONE, True),
)
QUALITY, WIDEST = 72, 1100


def save(browser: Browser, name: str) -> None:
    """Save what the window shows."""
    data = base64.b64decode(browser.page("Page.captureScreenshot")["data"])
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.thumbnail((WIDEST, 2 * WIDEST), Image.Resampling.LANCZOS)
    path = DOCS / "images" / f"{name}.webp"
    picture.save(path, quality=QUALITY, method=6)
    print(f"{path}: {path.stat().st_size // 1024} kB")


def main() -> None:
    """Take all screenshots."""
    for name, page, window, dark in SITE:
        with Browser() as browser:
            browser.resize(*window, dark=dark)
            browser.open((DOCS / "_build" / "html" / page).as_uri())
            time.sleep(1.0)
            save(browser, name)
    with tempfile.TemporaryDirectory() as folder:
        app = RunningApp(Path(folder), "--preset", "classic")
        try:
            for name, window, dark in APP:
                with Browser(patience=90) as browser:
                    open_page(browser, app, *window, dark=dark)
                    give(browser, [DEMO / f"courtyard/images/0{k}.jpg" for k in (0, 1)])
                    match(browser)
                    time.sleep(1.5)
                    save(browser, name)
            with Browser(patience=180) as browser:
                open_folder(browser, app, range(0, 20, 3))
                click(browser, "#batch")
                cells = "document.querySelectorAll('#matrix button[data-pair]').length === 42"
                browser.wait_for(cells)
                time.sleep(0.5)
                save(browser, "app-folder")
        finally:
            app.end()


if __name__ == "__main__":
    main()

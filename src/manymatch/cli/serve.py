"""``manymatch app``: a page in the browser that matches photographs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from manymatch._validate import integer
from manymatch.app.page import App, serve
from manymatch.app.session import Limits
from manymatch.cli import console
from manymatch.io.files import as_folder

EXAMPLE = "Example: manymatch app --photos holiday"


def run(
    photos: Annotated[
        Path | None, "A folder of photographs to match, beside those that are dropped on the page."
    ] = None,
    preset: Annotated[str | None, "The preset that is chosen at first."] = None,
    port: Annotated[int | None, "Port of the page; by default a free one from 7860 on."] = None,
    browser: Annotated[bool, "Open the page in the browser."] = True,
    upload_mb: Annotated[int, "Most megabytes of a photograph."] = Limits.upload_mb,
    seconds: Annotated[int, "Most seconds of a pair; a longer job is stopped."] = int(
        Limits.pair_seconds
    ),
) -> None:
    """Open a page in the browser that matches photographs that you drop there.

    Two photographs, or all pairs of a folder: verdict, matches, their candidates, files to
    download. The page is for this machine only and loads nothing from elsewhere. Ctrl-C ends it and
    removes what was uploaded.
    """
    folder = None if photos is None else Path(as_folder(photos, "photos"))
    if port is not None:
        integer(port, "port", 1, 65535)
    limits = dataclasses.replace(
        Limits(),
        upload_mb=integer(upload_mb, "upload-mb", 1),
        pair_seconds=integer(seconds, "seconds", 1),
    )
    app = App(folder, preset, limits)
    serve(app, console.print_plain, port=port, browser=browser)

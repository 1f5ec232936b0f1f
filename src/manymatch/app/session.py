"""One user of the app: the photographs that were uploaded, results, and files to download."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from manymatch.app.request import PairRequest, safe_name
from manymatch.app.worker import JobError, Stop
from manymatch.io.pairs import IMAGE_SUFFIXES


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one user may ask for; anything beyond ends with one sentence."""

    upload_mb: int = 30
    photos: int = 40
    pair_seconds: float = 90.0
    folder_seconds: float = 1800.0


class Session:
    """The folder of one user, which nobody else sees and which is removed at the end.

    Gradio gives every user a copy of the first session: a copy is a new one.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = Path(tempfile.mkdtemp(prefix="session-", dir=root))
        self.requests: dict[str, PairRequest] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.photos: list[Path] = []
        self.stop = Stop()
        # The pair whose photographs the stage of the first tab has.
        self.has_photos = ""
        self._stored: dict[str, Path] = {}
        self._numbers = 0

    def __deepcopy__(self, memo: object) -> Session:
        return Session(self.root)

    def close(self) -> None:
        """Stop what runs and remove all files."""
        self.stop.wanted = True
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, error: Exception) -> str:
        """Return what an error says, without the folder in which the photographs are kept."""
        return re.sub(re.escape(f"{self.folder}{os.sep}") + r"[\w-]+/?", "", str(error))

    def place(self, name: str) -> Path:
        """Make a new folder for files of a kind."""
        self._numbers += 1
        place = self.folder / f"{name}-{self._numbers}"
        place.mkdir()
        return place

    def pair(
        self, first: dict[str, Any] | None, second: dict[str, Any] | None
    ) -> tuple[Path, Path]:
        """Return the files of two uploads under plain names, both in one folder."""
        if not first or not second:
            raise JobError("Please give two photographs: drop, paste or take them, or an example.")
        paths = [self.upload(upload) for upload in (first, second)]
        names = [
            safe_name(upload.get("orig_name") or path.name)
            for upload, path in zip((first, second), paths, strict=True)
        ]
        if names[0] == names[1]:
            names[1] = f"second-{names[1]}"
        key = f"{paths[0]}\n{paths[1]}"
        if key not in self._stored:
            place = self.place("pair")
            for path, name in zip(paths, names, strict=True):
                shutil.copy(path, place / name)
            self._stored[key] = place
        return self._stored[key] / names[0], self._stored[key] / names[1]

    def take(self, paths: Iterable[Path], limits: Limits) -> Path:
        """Put the photographs of the folder tab into one folder, under plain names."""
        images = [path for path in paths if path.suffix.lower() in IMAGE_SUFFIXES]
        images.sort(key=lambda path: path.name)
        if not 2 <= len(images) <= limits.photos:
            raise JobError(
                f"A folder must have from 2 to {limits.photos} photographs here, got "
                f"{len(images)}; manymatch batch takes any number."
            )
        place = self.place("photos")
        self.photos = []
        for path in images:
            name = safe_name(path.name)
            while (place / name).exists():
                name = f"{len(self.photos)}-{name}"
            # A reconstruction follows no links.
            shutil.copy(path, place / name)
            self.photos.append(place / name)
        return place

    def upload(self, upload: dict[str, Any]) -> Path:
        """Return the file of an upload, which must be below the folder of all uploads."""
        given = upload.get("path")
        path = Path(os.path.realpath(str(given)))
        if not given or not path.is_relative_to(self.root.resolve()) or not path.is_file():
            raise JobError("Only photographs that were uploaded here can be matched.")
        return path

"""Features of many images, each computed once while it is needed, in bounded memory."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.features.extractor import Extractor, extract_all
from manymatch.io.image import load_image, stored_orientation
from manymatch.matcher.cameras import ResolvedCamera, resolve_camera

if TYPE_CHECKING:
    from pathlib import Path

    from manymatch.features.extractor import Features
    from manymatch.io.pairs import Pair
    from manymatch.matcher.matcher import Matcher


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Features of one image by every source, in its own pixels, and its camera.

    `orientation` is the EXIF orientation that was undone. There is no `camera` where the one that
    all images share does not fit this image; pairs with a camera of their own do not need it.
    """

    features: tuple[Features, ...]
    camera: ResolvedCamera | None
    why_no_camera: str = ""
    orientation: int = 1

    def camera_in(self, pair: Pair, side: int) -> ResolvedCamera:
        """Camera of this image as image 0 or 1 of a pair: the pair's own, else that of the image.

        It is an error if there is none, or if it does not fit the image.
        """
        own, path = ((pair.camera0, pair.path0), (pair.camera1, pair.path1))[side]
        if own is not None:
            return resolve_camera(own, path, self.features[0].size, f"camera{side}")
        if self.camera is None:
            raise ValueError(self.why_no_camera)
        return self.camera

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        return sum(features.nbytes for features in self.features)


class Views:
    """Cache of views by file, which keeps the most recently used ones.

    `budget` is the number of bytes of features to keep; those that are in use are held beside.
    `cameras` is the camera of every image whose pair has none, as `resolve_camera` takes it.
    """

    def __init__(self, matcher: Matcher, budget: int, cameras: object = None) -> None:
        self._shared = [source.extractor for source in matcher.sources]
        self._local = threading.local()
        self._cameras = cameras
        self._budget = budget
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, int, int | None], Future[View]] = OrderedDict()

    def get(self, path: Path, turns: int, longest: int | None = None) -> View:
        """Return the view of a file, features computed after some quarter turns.

        Threads that want the same view wait for the first of them. With `longest` the image has
        another working size, as in `Matcher.match`.
        """
        key = (path, turns, longest)
        with self._lock:
            future = self._kept.get(key)
            first = future is None
            if future is None:
                future = self._kept[key] = Future()
            self._kept.move_to_end(key)
        if first:
            self._fill(key, future)
        return future.result()

    def _fill(self, key: tuple[Path, int, int | None], future: Future[View]) -> None:
        try:
            view = self.compute(*key)
        except BaseException as error:  # noqa: BLE001 - raised by result(), here and elsewhere
            # The next request computes the view again.
            with self._lock:
                del self._kept[key]
            future.set_exception(error)
            return
        future.set_result(view)
        with self._lock:
            self._bytes += view.nbytes
            while self._bytes > self._budget:
                # The oldest one that is complete; at least this one is.
                oldest = next(key for key, kept in self._kept.items() if kept.done())
                self._bytes -= self._kept.pop(oldest).result().nbytes

    def compute(self, path: Path, turns: int, longest: int | None = None) -> View:
        """Return the view of a file as `get` does, without keeping it."""
        image = load_image(path)
        height, width = image.shape[:2]
        (kinds,) = extract_all(self._extractors, [np.rot90(image, turns)], longest=[longest])
        turned = tuple(features.turned(turns) for features in kinds)
        try:
            camera = resolve_camera(self._cameras, path, (width, height), "camera")
        except ValueError as error:
            return View(turned, None, str(error), stored_orientation(path))
        return View(turned, camera, orientation=stored_orientation(path))

    @property
    def _extractors(self) -> list[Extractor]:
        """Extractors of this thread; those that run a network are shared and take turns."""
        own: Any = getattr(self._local, "extractors", None)
        if own is None:
            own = [
                shared
                if shared.config.needs_torch
                else Extractor(shared.config, offline=shared.offline, cache=shared.cache)
                for shared in self._shared
            ]
            self._local.extractors = own
        return own  # type: ignore[no-any-return]

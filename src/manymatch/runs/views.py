"""Features of many images, each computed once while it is needed, in bounded memory."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.features.extractor import Extractor
from manymatch.io.image import load_image, stored_orientation
from manymatch.matcher.cameras import ResolvedCamera, resolve_camera

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.features.extractor import Features
    from manymatch.io.pairs import Pair
    from manymatch.matcher.matcher import Matcher

# Images of one tile of the order of work. Two tiles of the largest features, 8 MB an image, fit
# into the default memory.
_TILE = 30


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Features of one image, in its own pixels, and the camera it has if none is given.

    `orientation` is the one of EXIF by which the image was turned.
    There is no `camera` where the one that all images share does not fit this image, which matters
    only for pairs that have no camera of their own.
    """

    features: Features
    camera: ResolvedCamera | None
    why_no_camera: str = ""
    orientation: int = 1

    def camera_in(self, pair: Pair, side: int) -> ResolvedCamera:
        """Camera of this image as image 0 or 1 of a pair: the pair's own, else that of the image.

        It is an error if there is none, or if it does not fit the image.
        """
        own, path = ((pair.camera0, pair.path0), (pair.camera1, pair.path1))[side]
        if own is not None:
            return resolve_camera(own, path, self.features.size, f"camera{side}")
        if self.camera is None:
            raise ValueError(self.why_no_camera)
        return self.camera

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        features = self.features
        return features.points.nbytes + features.scores.nbytes + features.descriptors.nbytes


class Views:
    """Cache of views by file, which keeps the most recently used ones.

    `budget` is the number of bytes of features to keep; those that are in use are held beside.
    `cameras` is the camera of every image whose pair has none, as `resolve_camera` takes it.
    """

    def __init__(self, matcher: Matcher, budget: int, cameras: object = None) -> None:
        self._shared = matcher.extractor
        self._local = threading.local()
        self._cameras = cameras
        self._budget = budget
        self._bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Path, int, int | None], Future[View]] = OrderedDict()

    def get(self, path: Path, turns: int, longest: int | None = None) -> View:
        """Return the view of a file, features computed after some quarter turns.

        Threads that want the same view wait for the one that came first. With `longest` the
        image has another working size, as in `Matcher.match`.
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
            view = self._view(*key)
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

    def _view(self, path: Path, turns: int, longest: int | None) -> View:
        image = load_image(path)
        height, width = image.shape[:2]
        features = self._extractor.extract(np.rot90(image, turns), longest=longest)
        across, down = features.working_size
        turned = dataclasses.replace(
            features,
            points=turned_back(features.points, turns, (width, height)),
            size=(width, height),
            working=(across, down) if turns % 2 == 0 else (down, across),
        )
        try:
            camera = resolve_camera(self._cameras, path, (width, height), "camera")
        except ValueError as error:
            return View(turned, None, str(error), stored_orientation(path))
        return View(turned, camera, orientation=stored_orientation(path))

    @property
    def _extractor(self) -> Extractor:
        """Extractor of this thread; one that runs a network is shared and takes turns."""
        shared = self._shared
        if shared.config.needs_torch:
            return shared
        own: Any = getattr(self._local, "extractor", None)
        if own is None:
            own = Extractor(shared.config, offline=shared.offline, cache=shared.cache)
            self._local.extractor = own
        return own  # type: ignore[no-any-return]


def turned_back(points: FloatArray, turns: int, size: tuple[int, int]) -> FloatArray:
    """Map pixels (N, 2) of ``np.rot90(image, turns)`` to pixels of an image of width and height."""
    x, y = points[:, 0], points[:, 1]
    width, height = size
    back = {
        0: (x, y),
        1: (width - 1 - y, x),
        2: (width - 1 - x, height - 1 - y),
        3: (y, height - 1 - x),
    }
    return np.column_stack(back[turns % 4])


def tiled(indices: Sequence[int], pairs: Sequence[Pair]) -> list[int]:
    """Order pairs so that few images have to be in memory at a time.

    Images are numbered as they first appear, and pairs sorted by tiles of these numbers; all pairs
    of a folder then need each image a few times only, however little memory there is.
    """
    number: dict[tuple[Path, int], int] = {}
    tiles = {}
    for index in indices:
        pair = pairs[index]
        keys = (pair.path0, pair.rot0), (pair.path1, pair.rot1)
        tiles[index] = tuple(number.setdefault(key, len(number)) // _TILE for key in keys)
    return sorted(indices, key=tiles.__getitem__)

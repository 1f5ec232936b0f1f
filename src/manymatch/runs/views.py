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
from manymatch.io.pairs import numbered
from manymatch.matcher.cameras import ResolvedCamera, resolve_camera

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from manymatch._validate import IndexArray
    from manymatch.features.extractor import Features
    from manymatch.io.pairs import Pair
    from manymatch.matcher.matcher import Matcher

# Images of one tile of the order of work. Two tiles of the largest features, 8 MB an image, fit
# into the default memory.
_TILE = 30


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Features of one image by every source, in its own pixels, and the camera it has by itself.

    `orientation` is the one of EXIF by which the image was turned.
    There is no `camera` where the one that all images share does not fit this image, which matters
    only for pairs that have no camera of their own.
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


def local_order(pairs: Sequence[Pair]) -> IndexArray:
    """Order pairs so that neighbours in it have images in common, for memory and for machines.

    Images are numbered by a breadth-first search of the graph whose edges are the pairs, and pairs
    follow a Z-order curve over tiles of the two numbers of their images. Any stretch of it then
    needs few images, be it a thousand pairs or a sixteenth of all, whether the pairs are all of a
    folder, a sequence or the neighbours that a retrieval found, in whatever order they are listed.
    """
    images, numbers = numbered(pairs)
    place = _breadth_first(numbers, len(images)) // _TILE
    low, high = np.sort(place[numbers], axis=1).T
    return np.argsort(_spread(high) << np.uint64(1) | _spread(low), kind="stable")


def _breadth_first(edges: IndexArray, count: int) -> IndexArray:
    """Return the place of each node of a graph in a breadth-first order from its first nodes."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    starts = np.searchsorted(ends[:, 0], np.arange(count + 1)).tolist()
    neighbours = ends[:, 1].tolist()
    seen = bytearray(count)
    order: list[int] = []
    for root in range(count):
        if not seen[root]:
            seen[root] = 1
            place = len(order)
            order.append(root)
            while place < len(order):
                node = order[place]
                place += 1
                for other in neighbours[starts[node] : starts[node + 1]]:
                    if not seen[other]:
                        seen[other] = 1
                        order.append(other)
    result = np.empty(count, dtype=np.int64)
    result[order] = np.arange(count)
    return result


def _spread(values: IndexArray) -> NDArray[np.uint64]:
    """Put a zero before each of the lowest 32 bits of numbers."""
    bits = values.astype(np.uint64)
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits

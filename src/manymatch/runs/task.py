"""One pair of a batch, from files to a row."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import TYPE_CHECKING, Any

from manymatch.io.matches_npz import write_matches_npz
from manymatch.matcher.camera_source import ResolvedCamera, resolve_camera
from manymatch.runs.rows import error_row, result_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from manymatch.io.pair import Pair
    from manymatch.matcher.matcher import Matcher
    from manymatch.runs.features import View, Views


@dataclasses.dataclass(frozen=True)
class Task:
    """Matches one pair, in any thread.

    Parameters
    ----------
    matcher : Matcher
        Matches features.
    pairs : sequence of Pair
        All of them.
    views : Views
        Where features come from.
    threads : int
        Of the estimator.
    compare : bool
        Also match the plain way.
    folder : Path or None
        Where keypoints and matches are written.
    """

    matcher: Matcher
    pairs: Sequence[Pair]
    views: Views
    threads: int
    compare: bool
    folder: Path | None

    def __call__(self, index: int) -> dict[str, Any]:
        pair = self.pairs[index]
        start = time.perf_counter()
        try:
            return self._match(index, pair, start)
        except (OSError, ImportError):
            # No fault of the pair: a full disk, a missing package. Unreadable images are values.
            raise
        except Exception as error:  # noqa: BLE001 - one pair must not end a run of thousands
            options = self.matcher.config.options
            seconds = time.perf_counter() - start
            return error_row(index, pair, error, options, seconds, compare=self.compare)

    def _match(self, index: int, pair: Pair, start: float) -> dict[str, Any]:
        view0 = self.views.get(pair.path0, pair.rot0)
        view1 = self.views.get(pair.path1, pair.rot1)
        cameras = _camera(pair, view0, "0"), _camera(pair, view1, "1")
        result = self.matcher.match_features(
            view0.features,
            view1.features,
            *cameras,
            compare=self.compare,
            options=self.matcher.config.options.replace(threads=self.threads),
        )
        if self.folder is not None:
            write_matches_npz(
                self.folder / _file_name(index, pair),
                result.keypoints0,
                result.keypoints1,
                result.estimate.matches,
                confidence=result.estimate.match_probability,
                pose=result.estimate.pose,
                config=result.provenance(),
            )
        return result_row(index, pair, result, cameras, time.perf_counter() - start)


def _camera(pair: Pair, view: View, image: str) -> ResolvedCamera:
    """Camera of an image in this pair: the pair's own, else that of the image."""
    name = f"camera{image}"
    own = getattr(pair, name)
    if own is not None:
        return resolve_camera(own, getattr(pair, f"path{image}"), view.features.size, name)
    if view.camera is None:
        raise ValueError(view.why_no_camera)
    return view.camera


def _file_name(index: int, pair: Pair) -> str:
    names = (re.sub(r"[^\w.-]+", "-", name)[-80:] for name in (pair.name0, pair.name1))
    return f"{index:06d}_{'_'.join(names)}.npz"

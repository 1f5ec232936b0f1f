"""The work on one pair of a batch: images or their features in, the row of the pair out."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any

from manymatch.batch.focals import is_shared
from manymatch.batch.rows import PACKED, error_row, machine_fault, result_row
from manymatch.batch.runner import error_sentence
from manymatch.batch.views import View, ViewError, Views
from manymatch.io.match_log import pack_matches
from manymatch.matcher.matcher import Matcher
from manymatch.matcher.result import provenance_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from manymatch.batch import CameraPer
    from manymatch.batch.focals import FirstPass
    from manymatch.io.pairs import Pair
    from manymatch.matcher.config import MatcherConfig
    from manymatch.options import Options


@dataclasses.dataclass(frozen=True, eq=False)
class PairWork:
    """Matches pairs, and writes nothing.

    It can be pickled: networks are loaded, and features kept, in the process that uses it. Threads
    may share it after `load`. Called with the index of a pair and the pair, it returns the row of
    the pair; with `keep_matches` its entry `PACKED` has the matches. A pair that cannot be matched
    is a row that says why; only what concerns all pairs, such as a missing package, is raised.

    Parameters
    ----------
    config, device, offline, cache
        As `Matcher` takes them.
    cameras, camera_per, with_rank_one
        As in `run_batch`.
    keep_matches : bool
        Whether rows come with their matches.
    memory_mb : int
        Features kept in memory, in MB.
    threads : int, optional
        Of the estimator, in place of those of the configuration. They do not change results.
    """

    config: MatcherConfig
    device: str = "auto"
    offline: bool = False
    cache: object = None
    cameras: object = None
    camera_per: CameraPer = "pair"
    with_rank_one: bool = False
    keep_matches: bool = False
    memory_mb: int = 512
    threads: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @functools.cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.config, device=self.device, offline=self.offline, cache=self.cache)

    @functools.cached_property
    def _views(self) -> Views:
        return Views(self._matcher, self.memory_mb * 1_000_000, self.cameras)

    @functools.cached_property
    def _common(self) -> dict[str, Any]:
        return provenance_of(self.config)

    @functools.cached_property
    def _options(self) -> Options:
        options = self.config.options
        return options if self.threads is None else options.replace(threads=self.threads)

    def load(self) -> None:
        """Load what all pairs need; missing packages and weights are errors here."""
        self._matcher.load()
        _ = self._views, self._options, self._common

    def __call__(self, index: int, pair: Pair, first: FirstPass | None = None) -> dict[str, Any]:
        """Match one pair of image files.

        With a first pass this is the second, with focal lengths of all pairs.
        """
        views = self._views
        return self._row(
            index,
            pair,
            lambda: (views.get(pair.path0, pair.rot0), views.get(pair.path1, pair.rot1)),
            first,
        )

    def extract(self, path: Path, turns: int) -> View | ViewError:
        """Return what `match` wants of an image file after some quarter turns, or why not.

        Nothing of it is kept here.
        """
        try:
            return self._views.compute(path, turns)
        except ImportError:
            raise
        except Exception as error:  # noqa: BLE001 - the rows of its pairs say it
            return ViewError(error_sentence(error), machine_fault(error))

    def match(
        self,
        index: int,
        pair: Pair,
        view0: View | ViewError,
        view1: View | ViewError,
        first: FirstPass | None = None,
    ) -> dict[str, Any]:
        """Match one pair of which `extract` returned the views, here or in another process."""

        def views() -> tuple[View, View]:
            for view in (view0, view1):
                if isinstance(view, ViewError):
                    raise view
            return view0, view1  # type: ignore[return-value]

        return self._row(index, pair, views, first)

    def _row(
        self,
        index: int,
        pair: Pair,
        views: Callable[[], tuple[View, View]],
        first: FirstPass | None,
    ) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            row = self._matched(index, pair, *views(), start, first)
        except ImportError:
            # A missing package concerns all pairs.
            raise
        except Exception as error:  # noqa: BLE001 - one pair must not end a run of thousands
            seconds = time.perf_counter() - start
            row = error_row(
                index, pair, error, self._options, seconds, with_rank_one=self.with_rank_one
            )
        return row if first is None else first.updated(index, row)

    def _matched(
        self,
        index: int,
        pair: Pair,
        view0: View,
        view1: View,
        start: float,
        first: FirstPass | None,
    ) -> dict[str, Any]:
        cameras = view0.camera_in(pair, 0), view1.camera_in(pair, 1)
        if first is not None:
            camera0, camera1 = (first.camera(index, k, c.camera) for k, c in enumerate(cameras))
            cameras = (
                dataclasses.replace(cameras[0], camera=camera0),
                dataclasses.replace(cameras[1], camera=camera1),
            )
        seen = cameras[0].camera, cameras[1].camera
        result = self._matcher.match_features(
            view0.features,
            view1.features,
            *cameras,
            shared_focal=is_shared(self.camera_per, (pair.name0, pair.name1), seen),
            with_rank_one=self.with_rank_one,
            options=self._options,
        )
        result.orientations = (view0.orientation, view1.orientation)
        packed = pack_matches(result.pair_matches(self._common)) if self.keep_matches else None
        seconds = time.perf_counter() - start
        row = result_row(index, pair, result, cameras, seconds, self.camera_per)
        if packed is not None:
            row[PACKED] = packed
        return row

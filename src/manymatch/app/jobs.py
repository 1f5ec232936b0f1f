"""What the app computes, in a process of its own: results of pairs, files, folders, models."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch.app.request import PairRequest, command_line
from manymatch.batch.batch import run_batch
from manymatch.estimate.words import verdict_sentence
from manymatch.features.device import default_preset
from manymatch.features.weights import whereabouts
from manymatch.io.image import load_image, stored_orientation
from manymatch.matcher.align import THRESHOLD_PX, align_features
from manymatch.matcher.cameras import check_camera, resolve_camera
from manymatch.matcher.config import PRESETS, MatcherConfig
from manymatch.matcher.match_result import FORMATS, MatchResult
from manymatch.matcher.matcher import Matcher, Stopwatch, image_names
from manymatch.reconstruct.reconstruct import reconstruct
from manymatch.viz.aligned import overlay_page
from manymatch.viz.overlay import verdict_kind
from manymatch.viz.report import headline_numbers, report_page, report_photos

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from manymatch.associate.candidates import Association, Candidates
    from manymatch.features.extractor import Features

# Photographs, candidates of pairs, and results of pairs that are kept.
_PHOTOS, _CANDIDATES, _RESULTS = 24, 48, 8
# Photographs can be put on each other if this part of the matches lies on one plane.
_PLANE = 0.9
#: Most pixels of a photograph, unless the environment says otherwise.
MOST_PIXELS = 60_000_000
#: Files of a pair that can be downloaded.
EXPORTS = ("report", "picture", "json", "config", *FORMATS)


def ready_presets() -> list[str]:
    """Return the presets whose packages and weights are on this machine, the default one first."""
    ready = [preset for preset in PRESETS if _is_ready(preset)]
    return sorted(ready, key=lambda preset: preset != default_preset()[0])


def _is_ready(preset: str) -> bool:
    models = [model for source in MatcherConfig.of(preset).sources for model in source.models()]
    return all(
        not model.missing_libraries and (whereabouts(model) is not None or not model.needs_weights)
        for model in models
    )


def _is_plane(result: MatchResult) -> bool:
    """Tell whether nearly all matches agree with one homography."""
    share = result.confidence.planar
    return result.homography is not None or (result.success and share >= _PLANE)


class _Kept(OrderedDict[Any, Any]):
    """The values that were last used, of any user."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def get_or(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return a value, made if it is not there."""
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return self[key]


@dataclasses.dataclass(frozen=True)
class _Photo:
    """A photograph, and its features by preset."""

    image: NDArray[np.uint8]
    orientation: int
    features: dict[str, Sequence[Features]]


class _KeepingMatcher(Matcher):
    """A matcher that keeps the candidates of pairs, for other thresholds, methods and seeds."""

    def __init__(self, preset: str, **runtime: Any) -> None:
        super().__init__(preset, **runtime)
        self._kept = _Kept(_CANDIDATES)

    def candidates(
        self,
        features0: Sequence[Features],
        features1: Sequence[Features],
        associations: Sequence[Association] | None = None,
    ) -> tuple[Candidates, dict[str, dict[str, int]]]:
        """Return the candidates as `Matcher.candidates` does."""
        wanted = tuple(self.config.for_method() if associations is None else associations)
        both = (tuple(features0), tuple(features1))
        key = (*(id(features) for side in both for features in side), wanted)

        def find() -> tuple[Any, Any]:
            # The features are kept as well, so that no others can have their identity.
            return both, super(_KeepingMatcher, self).candidates(*both, wanted)

        found: tuple[Candidates, dict[str, dict[str, int]]] = self._kept.get_or(key, find)[1]
        return found


class Jobs:
    """The jobs, and what they keep: matchers, photographs with their features, results."""

    def __init__(self, progress: Callable[[Any], object]) -> None:
        os.environ.setdefault("MANYMATCH_MAX_PIXELS", str(MOST_PIXELS))
        self._progress = progress
        self._matchers: dict[str, Matcher] = {}
        self._photos = _Kept(_PHOTOS)
        self._results = _Kept(_RESULTS)
        self._pictures = _Kept(_PHOTOS)

    def warm(self, presets: Sequence[str]) -> None:
        """Load networks before anyone waits for them, and run them once."""
        import numpy as np

        noise = np.random.default_rng(0).integers(0, 255, (96, 96, 3)).astype(np.uint8)
        for preset in presets:
            matcher = self._matcher(preset)
            matcher.load()
            matcher.extract([noise])

    def match(self, request: PairRequest) -> dict[str, Any]:
        """Match a pair, or solve it again from kept features; return what the page shows."""
        result, photos = self._result(request)
        title = f"{result.names[0]} ↔ {result.names[1]}"
        # The page in the browser puts the photographs in: it has them when only settings change.
        marks = [f"photo:{side}" for side in range(len(photos))]
        page = report_page(result, command=command_line(request), photos=marks, hosted=True)
        return {
            "title": title,
            "preset": request.preset,
            "verdict": result.confidence.verdict,
            "kind": verdict_kind(result.confidence.verdict),
            "said": verdict_sentence(result.confidence),
            "numbers": headline_numbers(result),
            "seconds": result.timing["total"],
            "planar": _is_plane(result),
            "page": page,
            "photos": photos,
            "key": str(request.photos),
        }

    def prepare(self, request: PairRequest) -> None:
        """Find the candidates of a request that may come next, if the photographs are kept."""
        matcher = self._configured(request)
        photos = self._extracted(request, matcher)
        first, second = (photo.features[request.preset] for photo in photos)
        matcher.candidates(first, second)

    def align(self, request: PairRequest) -> str:
        """Align two photographs of a plane; return the page that compares them."""
        matcher = self._configured(request, threshold_px=THRESHOLD_PX)
        photos = self._extracted(request, matcher)
        images = (photos[0].image, photos[1].image)
        alignment = align_features(matcher, images, [p.features[request.preset] for p in photos])
        alignment.names = image_names(*request.photos)
        if not alignment.success:
            raise ValueError("The photographs could not be aligned.")
        return overlay_page(alignment)

    def export(self, request: PairRequest, wanted: Sequence[str], folder: Path) -> list[Path]:
        """Write the files of a result in some of `EXPORTS`, those of one format as one archive."""
        result, _ = self._result(request)
        formats = [name for name in FORMATS if name in wanted]
        files = result.save(
            folder / "files",
            formats,
            picture="picture" in wanted,
            report="report" in wanted,
            command=command_line(request),
        )
        single = ("report", "picture", "json", "config", "npz")
        found = [files[name] for name in single if name in wanted]
        for form in formats:
            if form != "npz":
                place = folder / form
                made = result.save(place, [form], picture=False, report=False)
                for name in ("json", "config"):
                    made[name].unlink()
                found.append(
                    Path(shutil.make_archive(str(folder / f"matches-{form}"), "zip", place))
                )
        return found

    def batch(self, photos: Path, out: Path, cache: Path, preset: str) -> dict[str, Any]:
        """Match all pairs of a folder."""
        summary = run_batch(
            photos,
            out=out,
            config=preset,
            offline=True,
            cache=cache,
            formats=("parquet",),
            progress=lambda step: self._progress(dataclasses.asdict(step)),
        )
        return summary.to_dict()

    def reconstruct(self, photos: Path, out: Path, cache: Path, preset: str) -> dict[str, Any]:
        """Reconstruct the scene of a folder; return sentences, the page and an archive."""
        found = reconstruct(
            photos,
            out,
            preset=preset,
            offline=True,
            cache=cache,
            progress=lambda step: self._progress(dataclasses.asdict(step)),
        )
        if not found:
            return {"said": str(found), "page": None, "archive": None}
        model = out.parent / "model-files"
        shutil.copytree(out / "sparse", model / "sparse", dirs_exist_ok=True)
        for name in ("transforms.json", "points.ply", "index.html", "pairs.json"):
            if (out / name).is_file():
                shutil.copy(out / name, model / name)
        archive = shutil.make_archive(str(out.parent / "model"), "zip", model)
        page = (out / "index.html").read_text(encoding="utf-8")
        return {"said": str(found), "page": page, "archive": Path(archive)}

    def _matcher(self, preset: str, cache: Path | None = None) -> Matcher:
        """Return the matcher of a preset; one with a cache of a user is not kept."""
        if cache is not None:
            return Matcher(preset, offline=True, cache=cache)
        if preset not in self._matchers:
            self._matchers[preset] = _KeepingMatcher(preset, offline=True)
        return self._matchers[preset]

    def _configured(self, request: PairRequest, **more: Any) -> Matcher:
        matcher = self._matcher(request.preset, request.cache)
        matcher.config = MatcherConfig.of(request.preset, **{**more, **request.changes})
        return matcher

    def _extracted(self, request: PairRequest, matcher: Matcher) -> list[_Photo]:
        """Return the two photographs with features of the preset, computed where they are not."""
        for side, camera in enumerate(request.cameras):
            check_camera(camera, f"camera{side}")

        def read(side: int, path: Path) -> _Photo:
            def load() -> _Photo:
                return _Photo(load_image(path, f"image{side}"), stored_orientation(path), {})

            photo: _Photo = self._photos.get_or((path, path.stat().st_mtime_ns), load)
            return photo

        photos = [read(side, path) for side, path in enumerate(request.photos)]
        lacking = [photo for photo in photos if request.preset not in photo.features]
        if lacking:
            found = matcher.extract([photo.image for photo in lacking])
            for photo, features in zip(lacking, found, strict=True):
                photo.features[request.preset] = features
        return photos

    def _result(self, request: PairRequest) -> tuple[MatchResult, list[str]]:
        """Return the result of a request, and its photographs as the report shows them."""

        def solve() -> tuple[MatchResult, list[str]]:
            clock = Stopwatch()
            matcher = self._configured(request)
            photos = self._extracted(request, matcher)
            clock.lap("features")
            cameras = [
                resolve_camera(camera, path, photo.image.shape[1::-1], f"camera{side}")
                for side, (camera, path, photo) in enumerate(
                    zip(request.cameras, request.photos, photos, strict=True)
                )
            ]
            first, second = (photo.features[request.preset] for photo in photos)
            result = matcher.match_features(
                first, second, *cameras, with_rank_one=request.with_rank_one
            )
            result.images = (photos[0].image, photos[1].image)
            result.names = image_names(*request.photos)
            result.orientations = (photos[0].orientation, photos[1].orientation)
            result.timing = {**clock.seconds, **result.timing, "total": clock.total()}
            shown = self._pictures.get_or(request.photos, lambda: report_photos(result))
            return result, shown

        found: tuple[MatchResult, list[str]] = self._results.get_or(request.key(), solve)
        return found

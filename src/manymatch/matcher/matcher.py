"""End to end: two images in, candidates, pose and 1-to-1 matches out."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from manymatch._validate import refusal
from manymatch.associate.candidates import Association, Candidates, candidates
from manymatch.associate.merge import merge_graphs
from manymatch.estimate.confidence import assess
from manymatch.estimate.relative_pose import RelativePoseEstimate, estimate_relative_pose
from manymatch.features.debias import shortfall
from manymatch.features.device import PRECISIONS
from manymatch.features.extractor import Extractor, Features, extract_all
from manymatch.features.feature_cache import FeatureCache
from manymatch.features.matchers import PairMatcher, matcher_graph
from manymatch.geometry.camera import working_pixel
from manymatch.io.files import as_folder
from manymatch.io.image import load_image, stored_orientation
from manymatch.io.remote import located
from manymatch.matcher.cameras import camera_sentences, check_camera, resolve_camera
from manymatch.matcher.config import PRESETS, SETTINGS, MatcherConfig, SourceConfig
from manymatch.matcher.match_result import MatchResult, RankOneResult
from manymatch.options import OptionKeywords, Options, checked_options

if TYPE_CHECKING:
    from manymatch.graph import AssociationGraph


class Source:
    """A source of candidates: computes features of images and candidates between two of them."""

    def __init__(
        self,
        config: SourceConfig,
        runtime: dict[str, Any],
        networks: dict[object, Any],
        cache: FeatureCache | None,
    ) -> None:
        self.config = config
        self.extractor = Extractor(config.features, cache=cache, networks=networks, **runtime)
        self.matcher: PairMatcher | None = config.load_matcher(**runtime)
        self._turn = threading.Lock()

    def candidates(
        self, features0: Features, features1: Features, association: Association
    ) -> Candidates:
        """Return the candidates that an association keeps."""
        if self.matcher is None:
            fields = {name: v for name, v in association.to_dict().items() if name != "matcher"}
            return candidates(**association_arguments(features0, features1), **fields)
        with self._turn:
            graph = matcher_graph(self.matcher, features0, features1)
        sizes = (features0.size, features1.size, features0.working_size, features1.working_size)
        return association.cut(graph, *sizes)


class Stopwatch:
    """Seconds by stage, in the order of the stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[stage], self._last = now - self._last, now

    def total(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start


class Matcher:
    """Matches pairs of images and finds their relative pose.

    Parameters
    ----------
    preset : str, path or MatcherConfig, optional
        "classic" (SIFT, no torch), "embedded" (general-purpose features whose weights come with a
        package), "dinov3", "dinov2", "vjepa2.1", "siglip2", "superpoint", "open", "fused" and
        "best" (several sources of candidates); a .toml file; or a configuration.
    sources, **settings
        As in `MatcherConfig.of`, which also says what the default is.
    device : str
        "auto", "cuda", "cuda:<n>", "mps" or "cpu".
    offline : bool
        Never download weights.
    cache : path, optional
        Folder in which features are kept and found again.

    Examples
    --------
    >>> matcher = Matcher("classic", k=3)
    >>> result = matcher.match("a.jpg", "b.jpg")                     # doctest: +SKIP
    >>> result.report("pair.html")                                   # doctest: +SKIP
    >>> Matcher(sources=["classic", {"detector": "aliked", "matcher": "lightglue"}])
    Matcher('classic+aliked-lightglue': sift + native, aliked + lightglue, auto)
    """

    def __init__(
        self,
        preset: object = None,
        *,
        sources: Iterable[object] | None = None,
        device: str = "auto",
        offline: bool = False,
        cache: object = None,
        **settings: Any,
    ) -> None:
        self.config = MatcherConfig.of(preset, sources=sources, **settings)
        self.notes = list(self.config.notes)
        configs = self.config.sources
        precisions = {source.features.precision for source in configs} - {PRECISIONS[0]}
        self.notes += [f"Descriptors are computed in {name}." for name in sorted(precisions)]
        runtime: dict[str, Any] = {"device": device, "offline": offline}
        kept = cache if isinstance(cache, FeatureCache | None) else FeatureCache(cache)
        networks: dict[object, Any] = {}
        self.sources = [Source(config, runtime, networks, kept) for config in configs]
        self._remake = functools.partial(Matcher, self.config, **runtime, cache=cache)

    def __reduce__(self) -> tuple[Any, ...]:
        # Networks are loaded again where a copy or another process needs them.
        return self._remake, ()

    def __repr__(self) -> str:
        config = self.config
        k = "" if len(config.sources) > 1 else f"k={config.sources[0].association.k}, "
        return f"Matcher({config.preset!r}: {config.title}, {k}{config.method})"

    @property
    def extractor(self) -> Extractor:
        """The extractor of the first source, usually the only one."""
        return self.sources[0].extractor

    def load(self) -> None:
        """Load all networks, which are otherwise loaded when first used."""
        for source in self.sources:
            source.extractor.load()
            if source.matcher is not None:
                _ = source.matcher.network

    def extract(
        self, images: Sequence[object], *, longest: Sequence[int | None] | None = None
    ) -> list[tuple[Features, ...]]:
        """Compute the features of every source for some images, as `match_features` takes them.

        Sources with equal settings share detections and passes of a network. `longest` is another
        working size for each image, as in `match`.
        """
        return extract_all([source.extractor for source in self.sources], images, longest=longest)

    def candidates(
        self,
        features0: Sequence[Features],
        features1: Sequence[Features],
        associations: Sequence[Association] | None = None,
    ) -> tuple[Candidates, dict[str, dict[str, int]]]:
        """Return the candidates of all sources in one graph, and the counts of each source.

        All arguments have one entry per source; the default associations are the configuration's.
        """
        wanted = self.config.for_method() if associations is None else associations
        each = zip(self.sources, features0, features1, wanted, strict=True)
        parts = [source.candidates(first, second, how) for source, first, second, how in each]
        if len(parts) == 1:
            return parts[0], {}
        names = [source.config.name for source in self.sources]
        counts = {name: part.counts for name, part in zip(names, parts, strict=True)}
        total = {step: sum(own[step] for own in counts.values()) for step in parts[0].counts}
        return Candidates(merge_graphs(parts, names), total), counts

    def match(
        self,
        image0: object,
        image1: object,
        camera0: object = None,
        camera1: object = None,
        *,
        longest0: int | None = None,
        longest1: int | None = None,
        shared_focal: bool | None = None,
        with_rank_one: bool = False,
        options: Options | None = None,
        images_folder: str | os.PathLike[str] | None = None,
        **settings: Unpack[OptionKeywords],
    ) -> MatchResult:
        """Match two images.

        Parameters
        ----------
        image0, image1 : paths, arrays, tensors or PIL images
            As `manymatch.io.load_image` takes them; the EXIF orientation is applied.
        camera0, camera1 : optional
            A `Camera`, a 3x3 matrix, a COLMAP-style dict, a pycolmap.Camera, a text such as
            ``"768"`` (the focal length) or ``"fx,fy,cx,cy"``, a COLMAP model or ``cameras.txt``.
            By default, and with "unknown", the focal length is found together with the pose; by
            default one of EXIF is its prior.
        longest0, longest1 : int, optional
            Another working size (length of the longer edge) for one of the images, 0 for its own
            size, at which small thermal frames do better.
        shared_focal : bool, optional
            Whether both images have the same unknown focal length; by default if they have the
            same size and prior.
        with_rank_one : bool
            Also match the usual way, by the best candidate of each keypoint, to compare.
        options : Options, optional
            Of the estimator for this pair, instead of the configuration's.
        images_folder : path, optional
            The folder that names of images in files for hloc and COLMAP are relative to; by default
            the deepest folder that holds both files.
        **settings
            Fields of `Options` by keyword, such as ``seed=3``, in place of those of `options`.

        Returns
        -------
        MatchResult
            In pixels of the images as given. A pair that cannot be solved raises no error:
            ``result.estimate.success`` is False.
        """
        for name in settings.keys() - OptionKeywords.__annotations__.keys():
            if name in SETTINGS:
                raise ValueError(f"{name} must be given to Matcher, as in Matcher({name}=...)")
        options = checked_options(self.config.options if options is None else options, settings)
        clock = Stopwatch()
        names = image_names(image0, image1, images_folder)
        # Before the images, which take longer to read.
        check_camera(camera0, "camera0")
        check_camera(camera1, "camera1")
        images = (load_image(image0, "image0"), load_image(image1, "image1"))
        cameras = (
            resolve_camera(camera0, _path(image0), images[0].shape[1::-1], "camera0"),
            resolve_camera(camera1, _path(image1), images[1].shape[1::-1], "camera1"),
        )
        clock.lap("load")
        features = self.extract(images, longest=(longest0, longest1))
        clock.lap("features")
        result = self.match_features(
            features[0],
            features[1],
            *cameras,
            shared_focal=shared_focal,
            with_rank_one=with_rank_one,
            options=options,
        )
        result.timing = {**clock.seconds, **result.timing, "total": clock.total()}
        result.images, result.names = images, names
        result.orientations = (stored_orientation(image0), stored_orientation(image1))
        return result

    def match_features(
        self,
        features0: Features | Sequence[Features],
        features1: Features | Sequence[Features],
        camera0: object = None,
        camera1: object = None,
        *,
        shared_focal: bool | None = None,
        with_rank_one: bool = False,
        options: Options | None = None,
    ) -> MatchResult:
        """Match two images by their features, as `extract` returns them; see `match`."""
        config = self.config
        kinds0 = self._checked(features0, "features0")
        kinds1 = self._checked(features1, "features1")
        # Thresholds count pixels at the working size of the first source.
        size0, size1 = kinds0[0].size, kinds1[0].size
        first = resolve_camera(camera0, None, size0, "camera0")
        second = resolve_camera(camera1, None, size1, "camera1")
        chosen = checked_options(config.options if options is None else options)
        cameras = (first.camera, second.camera)
        scale = (kinds0[0].working_scale, kinds1[0].working_scale)
        settings = chosen.with_pixels(working_pixel(*cameras, *scale))

        def estimated(graph: AssociationGraph, method: Any) -> RelativePoseEstimate:
            how: dict[str, Any] = {"shared_focal": shared_focal, "working_scale": scale}
            return estimate_relative_pose(graph, *cameras, method, settings, **how)

        clock = Stopwatch()
        found, by_source = self.candidates(kinds0, kinds1)
        clock.lap("associate")
        estimate = estimated(found.graph, config.method)
        clock.lap("estimate")
        confidence = assess(estimate)
        clock.lap("confidence")
        rank_one = None
        if with_rank_one:
            keep = [source.association.keep for source in config.sources]
            best = [Association(k=1, gms=False, keep=most) for most in keep]
            plain = self.candidates(kinds0, kinds1, best)[0].graph
            rank_one = RankOneResult(plain, estimated(plain, "cm"))
        short = [
            sentence
            for source, one, other in zip(config.sources, kinds0, kinds1, strict=True)
            for sentence in shortfall(min(one.debiased, other.debiased), source.features.debias)
        ]
        return MatchResult(
            graph=found.graph,
            estimate=estimate,
            confidence=confidence,
            counts=found.counts,
            source_counts=by_source,
            camera0=estimate.camera0,
            camera1=estimate.camera1,
            size0=size0,
            size1=size1,
            config=config,
            notes=[*self.notes, *short, *camera_sentences(first, second)],
            camera_origins=(first.origin, second.origin),
            camera_priors=None if all(camera.known_focal for camera in cameras) else cameras,
            shared_focal=shared_focal,
            rank_one=rank_one,
            timing=clock.seconds,
        )

    def _checked(self, features: object, name: str) -> tuple[Features, ...]:
        kinds = (features,) if isinstance(features, Features) else features
        types = [type(kind) for kind in kinds] if isinstance(kinds, tuple | list) else []
        if types != [Features] * len(self.sources):
            several = f"{len(self.sources)} Features, one for each source"
            raise refusal(name, "a Features" if len(self.sources) == 1 else several, features)
        return tuple(kinds)  # type: ignore[arg-type]


def match(
    image0: object,
    image1: object,
    camera0: object = None,
    camera1: object = None,
    *,
    preset: object = None,
    **settings: Any,
) -> MatchResult:
    """Match two images with the features that are installed.

    The arguments are those of `Matcher`, which is faster for more than one pair, as it loads its
    networks once, and of `Matcher.match`: images, cameras, `longest0`, `longest1`, `shared_focal`
    and `with_rank_one`.

    Examples
    --------
    >>> import manymatch
    >>> print(manymatch.match("a.jpg", "b.jpg"))                     # doctest: +SKIP
    >>> manymatch.match("a.jpg", "b.jpg", preset="classic", seed=3)  # doctest: +SKIP
    """
    if isinstance(camera0, str) and camera0 in PRESETS:
        raise ValueError(f"camera0 must be a camera, got {camera0!r}; did you mean preset=?")
    names = ("longest0", "longest1", "shared_focal", "with_rank_one")
    of_pair = {name: settings.pop(name) for name in names if name in settings}
    return Matcher(preset, **settings).match(image0, image1, camera0, camera1, **of_pair)


def association_arguments(features0: Features, features1: Features) -> dict[str, Any]:
    """Return keypoints, descriptors and sizes as arguments of `candidates`."""
    arguments: dict[str, Any] = {}
    several = features0.owners is not None or features1.owners is not None
    for side, features in enumerate((features0, features1)):
        own = {"points": features.points, "desc": features.descriptors}
        own |= {"size": features.size, "working": features.working_size}
        if several:
            own["desc"], own["owners"] = features.all_descriptors()
        arguments |= {f"{name}{side}": value for name, value in own.items()}
    return arguments


def _path(image: object) -> Path | None:
    return located(image) if isinstance(image, str | os.PathLike) else None


def image_names(image0: object, image1: object, images_folder: object = None) -> tuple[str, str]:
    """Return different names for the two images: their paths below a folder of images."""
    # Links are kept, as they are names that the user chose. An address is like a local path here.
    given = (_path(image0), _path(image1))
    paths = [None if path is None else Path(os.path.abspath(path)) for path in given]  # noqa: PTH100
    if images_folder:
        folder = as_folder(images_folder, "images")
        root = Path(os.path.abspath(folder))  # noqa: PTH100
        for side, path in enumerate(paths):
            if path is not None and not path.is_relative_to(root):
                raise ValueError(
                    f"image{side} must be below the folder of images {str(folder)!r}, got "
                    f"{str(given[side])!r}"
                )
    else:
        parents = [path.parent for path in paths if path is not None]
        root = Path(os.path.commonpath(parents)) if parents else Path()
    # Names of files may hold any bytes, texts may not.
    first, second = (
        f"image{side}"
        if path is None
        else path.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()
        for side, path in enumerate(paths)
    )
    return first, second if first != second else f"{second}.1"

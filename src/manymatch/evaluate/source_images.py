"""Images with known pose as a set: features once an image, candidates once a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch import __version__
from manymatch.associate.candidates import candidates
from manymatch.evaluate.posed_graph import PosedGraph
from manymatch.graph import AssociationGraph
from manymatch.matcher.camera_source import resolve_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import association_arguments, working_pixels
from manymatch.runs.batch import batch_header, tiled
from manymatch.runs.views import View, Views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from manymatch.datasets.dataset import Dataset
    from manymatch.features.image_features import Features
    from manymatch.geometry.camera import Camera
    from manymatch.io.pairs import Pair
    from manymatch.matcher.matcher import Matcher


class ImageSource:
    """Raw candidate graphs of a data set, with the features of a matcher.

    Parameters
    ----------
    dataset : Dataset
        Pairs, every one with its true pose.
    matcher : Matcher
        Whose features are associated, by its operator; its caps, filter and estimator are not
        used.
    k : int
        Candidates per keypoint. They are kept in the matcher's cache, if it has one.
    memory_mb : int
        Features that are kept in memory, in MB.
    """

    def __init__(self, dataset: Dataset, matcher: Matcher, k: int = 5, memory_mb: int = 512):
        dataset.require_truth()
        self.name = dataset.set_name
        self.title = dataset.title
        self.representation = matcher.config.preset
        self.notes = dataset.notes
        self._dataset = dataset
        self._matcher = matcher
        self._k = k
        self._views = Views(matcher, memory_mb * 1_000_000)
        device = "auto" if matcher.extractor.device is None else matcher.extractor.device.type
        # Only the features of the configuration decide the graphs.
        config = MatcherConfig(features=matcher.config.features)
        header = batch_header(config, dataset.pairs, device, None, compare=False, matches=False)
        self.identity: dict[str, Any] = {
            "set": self.name,
            "representation": self.representation,
            "features": header["config"]["features"],
            "k": k,
            "operator": matcher.config.association.operator,
            "longest": [dataset.longest0, dataset.longest1],
            **{name: header[name] for name in ("pair_count", "pair_list_hash", "device")},
            "versions": header["versions"],
        }

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> PosedGraph:
        dataset = self._dataset
        pair = dataset.pairs[index]
        if pair.R is None or pair.t is None:
            raise ValueError(f"pair {index} must have a true pose, got none")
        view0 = self._views.get(pair.path0, pair.rot0, dataset.longest0)
        view1 = self._views.get(pair.path1, pair.rot1, dataset.longest1)
        camera0, camera1 = _camera(pair, view0, "0"), _camera(pair, view1, "1")
        features0, features1 = view0.features, view1.features
        return PosedGraph(
            name0=pair.name0,
            name1=pair.name1,
            graph=self._graph(pair, features0, features1),
            camera0=camera0,
            camera1=camera1,
            size0=features0.size,
            size1=features1.size,
            R=pair.R,
            t=pair.t,
            seed_index=int(pair.extra.get("seed_index", index + 1)),
            scene=pair.scene,
            bin=str(pair.extra.get("bin", "")),
            pixels=working_pixels(
                self._matcher.config.features,
                (camera0, features0.size, dataset.longest0),
                (camera1, features1.size, dataset.longest1),
            ),
        )

    def _graph(self, pair: Pair, features0: Features, features1: Features) -> AssociationGraph:
        """Associate, or find the candidates beside the features that they were made of."""
        cache = self._matcher.extractor.cache
        how: dict[str, Any] = {"k": self._k, "operator": self._matcher.config.association.operator}
        key = {
            "kind": "candidates",
            "features": [features0.provenance, features1.provenance],
            "turns": [pair.rot0, pair.rot1],
            "version": __version__,
            **how,
        }
        kept = None if cache is None else cache.read(key)
        if kept is not None:
            edges = (kept["edges"], kept["similarity"], kept["rank"])
            return AssociationGraph(features0.points, features1.points, *edges)
        graph = candidates(
            **association_arguments(features0, features1),
            **how,
            max_edges=None,
            gms=False,
            keep=None,
        ).graph
        if cache is not None and graph.similarity is not None and graph.rank is not None:
            cache.write(
                key, {"edges": graph.edges, "similarity": graph.similarity, "rank": graph.rank}
            )
        return graph

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Put pairs of the same images close to each other, as features are kept for a while."""
        return tiled(indices, self._dataset.pairs)


def _camera(pair: Pair, view: View, image: str) -> Camera:
    """Camera of an image: the pair's own, else from EXIF, else guessed."""
    own = getattr(pair, f"camera{image}")
    if own is None and view.camera is not None:
        return view.camera.camera
    path = getattr(pair, f"path{image}")
    return resolve_camera(own, path, view.features.size, f"camera{image}").camera

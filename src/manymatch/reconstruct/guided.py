"""Second matching, guided by a model: more keypoints, each matched near its epipolar line."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import IndexArray, int_array
from manymatch.associate.neighbours import associate
from manymatch.geometry.pose import RelativePose
from manymatch.reconstruct.pair_graph import PairGraph, Photo, PhotoPair, one_to_one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from manymatch._validate import FloatArray
    from manymatch.features.extractor import Features
    from manymatch.reconstruct.mapping import Model

# Candidates of a keypoint, and how far from the epipolar line one may be, in pixels.
_CANDIDATES, _BAND_PX = 5, 1.0
# The best candidate in the band must be closer than the second, as distances of descriptors.
_RATIO = 0.8
# Each image is matched with the 8 others that share most points with it, if they share 10.
_NEIGHBOURS, _SHARED = 8, 10
# Keypoints closer than this are one, px.
_SAME_PX = 0.5


def neighbours(model: Any) -> list[tuple[str, str]]:
    """List the pairs of images of a model of pycolmap that share most points, by their names."""
    names = {number: image.name for number, image in model.images.items()}
    shared = Counter[tuple[str, str]]()
    for point in model.points3D.values():
        seen = sorted({names[element.image_id] for element in point.track.elements})
        shared.update((one, two) for k, one in enumerate(seen) for two in seen[k + 1 :])
    lists: dict[str, list[tuple[int, str]]] = {}
    for (one, two), number in shared.items():
        if number >= _SHARED:
            lists.setdefault(one, []).append((-number, two))
            lists.setdefault(two, []).append((-number, one))
    chosen = {
        (min(name, other), max(name, other))
        for name, others in lists.items()
        for _, other in sorted(others)[:_NEIGHBOURS]
    }
    return sorted(chosen)


def add_guided(
    graph: PairGraph,
    keep: Sequence[bool],
    model: Model,
    pairs: Sequence[tuple[str, str]],
    features: Mapping[str, Features],
    *,
    growth: float = 1.0,
    workers: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> PairGraph | None:
    """Add keypoints, and matches near the epipolar lines of a model, to the kept pairs of a graph.

    `pairs` are matched, named in the order of the graph; the matches of kept pairs come first. All
    pairs that are returned have the poses of the model. `features` are the further keypoints by
    the name of the image. If there are less than `growth` times the keypoints before, nothing is
    matched and None is returned.
    """
    places = {photo.name: place for place, photo in enumerate(graph.photos)}
    photos, new_places = list(graph.photos), dict[int, IndexArray]()
    for name, own in features.items():
        photo = graph.photos[places[name]]
        points, new_places[places[name]] = united(photo.points, own.points)
        photos[places[name]] = Photo(photo.record, points)
    before, after = (sum(len(own[k].points) for k in new_places) for own in (graph.photos, photos))
    if after < growth * before:
        return None

    def match(both: tuple[int, int]) -> IndexArray:
        one, two = (graph.photos[place] for place in both)
        pose = RelativePose(*model.shown(one, two))
        found = match_in_band(one, two, features[one.name], features[two.name], pose)
        return np.column_stack([new_places[both[k]][found[:, k]] for k in (0, 1)])

    kept = {
        (pair.first, pair.second): pair
        for pair, stays in zip(graph.pairs, keep, strict=True)
        if stays
    }
    wanted = sorted((places[one], places[two]) for one, two in pairs)
    result = dict(kept)
    with concurrent.futures.ThreadPoolExecutor(workers, "manymatch") as threads:
        for number, (both, new) in enumerate(zip(wanted, threads.map(match, wanted), strict=True)):
            old = kept.get(both, PhotoPair(*both, None, new[:0], np.ones(0), 1.0, 0.0))
            matches = np.concatenate([old.matches, new])
            result[both] = dataclasses.replace(old, matches=matches[one_to_one(matches)])
            if progress is not None:
                progress(number + 1, len(wanted))
    posed = (
        dataclasses.replace(
            pair,
            pose=RelativePose(*model.shown(photos[pair.first], photos[pair.second])),
            match_probability=np.ones(len(pair.matches)),
        )
        for _, pair in sorted(result.items())
    )
    return PairGraph(tuple(photos), tuple(posed))


def match_in_band(
    one: Photo, two: Photo, features0: Features, features1: Features, pose: RelativePose
) -> IndexArray:
    """Match the keypoints of two photographs near their epipolar lines, (M, 2), one-to-one.

    Of the candidates within a pixel of the epipolar line and in front of both cameras, a match is
    the best one of both of its keypoints, and clearly better than the second in the band.
    """
    edges, similarity, _ = associate(
        features0.descriptors, features1.descriptors, k=_CANDIDATES, operator="mutual"
    )
    x0, x1 = (
        np.column_stack([photo.camera.unproject(own.points), np.ones(len(own))])[edges[:, side]]
        for side, (photo, own) in enumerate(((one, features0), (two, features1)))
    )
    E, turned = pose.essential(), x0 @ pose.R.T
    lines1, lines0 = x0 @ E.T, x1 @ E
    normal = np.hypot(np.linalg.norm(lines1[:, :2], axis=1), np.linalg.norm(lines0[:, :2], axis=1))
    focal = np.sqrt(one.camera.focal * two.camera.focal)
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.abs((x1 * lines1).sum(axis=1)) / normal * focal
    across, along = np.cross(turned, x1), np.broadcast_to(pose.t, x1.shape)
    # Depths in both cameras have the signs of these products.
    ahead = ((np.cross(x1, along) * across).sum(axis=1) > 0) & (
        (np.cross(turned, along) * across).sum(axis=1) > 0
    )
    inside = (distance < _BAND_PX) & ahead
    edges, gap = edges[inside], 1.0 - similarity[inside].astype(np.float64)
    best = np.ones(len(edges), dtype=bool)
    for side in (0, 1):
        order = np.lexsort((gap, edges[:, side]))
        ends = edges[order, side]
        leads = np.append(True, ends[1:] != ends[:-1]) if len(ends) else np.zeros(0, dtype=bool)
        second_gap = np.full(len(ends), np.inf)
        second_gap[:-1] = np.where(ends[1:] == ends[:-1], gap[order[1:]], np.inf)
        # Half the squared distance of two descriptors of length one is one minus their product.
        best[order] &= leads & (gap[order] < _RATIO**2 * second_gap)
    return int_array(edges[best], "matches", "an (M, 2) array", (None, 2))


def united(old: FloatArray, new: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Append new keypoints to old ones, and return all and the place of each new one among them.

    A keypoint is not appended if there is one within half a pixel.
    """
    cells = np.round(np.concatenate([old, new]) / _SAME_PX).astype(np.int64)
    _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    owner = first[inverse.ravel()][len(old) :]
    own = owner >= len(old)
    added = np.unique(owner[own])
    places = owner.copy()
    places[own] = len(old) + np.searchsorted(added, owner[own])
    return np.concatenate([old, new[added - len(old)]]), places

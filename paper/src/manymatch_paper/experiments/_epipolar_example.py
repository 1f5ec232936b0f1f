"""One keypoint of a made photograph whose false candidate is an inlier of the true pose."""

from __future__ import annotations

import base64
import dataclasses
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch.associate.candidates import candidates
from manymatch.estimate.options import Options
from manymatch.estimate.relative_pose import score_pose
from manymatch.io.image import require_pillow
from manymatch.matcher.matcher import Matcher, association_arguments
from tools.street import RenderedScene, render_scene

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from manymatch._validate import FloatArray

# So near to where the depth says is a true match, and so far is another place, in pixels.
_SAME_PX, _OTHER_PX = 1.5, 40.0
# What is drawn around a point must lie in the image.
_MARGIN_PX = 40
# Depth behind the surface that the other view sees, relative: the point is hidden.
_HIDDEN = 0.02
_QUALITY = 88


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """A keypoint, its match and a false candidate that the true pose accepts.

    Attributes
    ----------
    point0 : (2,) float64
        Keypoint of image 0, in pixels.
    truth : (2,) float64
        Its match: where the depth of image 0 puts it in image 1.
    false : (2,) float64
        Keypoint of image 1, the false candidate.
    line : (3,) float64
        Epipolar line in image 1: ``a x + b y + c`` is the distance in pixels.
    similarity, rank : float and int
        Of the false candidate.
    true_similarity, true_rank : float and int, or None
        Of the candidate at the true place, where a keypoint is there.
    """

    point0: FloatArray
    truth: FloatArray
    false: FloatArray
    line: FloatArray
    similarity: float
    rank: int
    true_similarity: float | None
    true_rank: int | None


def find_example(scene: RenderedScene, threshold_px: float = 1.0) -> Example:
    """Find the most deceptive false inlier among the candidates of SIFT.

    Of all keypoints that have a false candidate within the threshold of the epipolar line, the
    one whose false candidate looks most alike; those that have a true candidate too come first.

    Raises
    ------
    ValueError
        If the scene has none.
    """
    extractor = Matcher("classic").extractor
    features = extractor.extract_many([scene.image0, scene.image1], longest=(0, 0))
    graph = candidates(
        **association_arguments(*features), k=5, max_edges=None, gms=False, keep=None
    ).graph
    options = Options(threshold_px=threshold_px)
    inlier = score_pose(graph, scene.camera0, scene.camera1, scene.pose, options).inliers
    first, second = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    truth = transferred(scene, first)
    lines = epipolar_lines(scene, first)
    off = np.abs((lines[:, :2] * second).sum(axis=1) + lines[:, 2])
    error = np.linalg.norm(second - truth, axis=1)
    with np.errstate(invalid="ignore"):
        is_true, is_other = error < _SAME_PX, error > _OTHER_PX
    is_false = inlier & (off < threshold_px) & is_other
    is_false &= _within(first, scene) & _within(second, scene) & _within(truth, scene)
    similarity, rank = graph.similarity, graph.rank
    if not is_false.any() or similarity is None or rank is None:
        raise ValueError(
            f"scene must have a false candidate near an epipolar line, got seed {scene.seed}, "
            "which has none"
        )
    # Of several true candidates the best.
    own = {int(graph.edges[e, 0]): int(e) for e in np.flatnonzero(is_true)[::-1]}
    e = max(
        np.flatnonzero(is_false).tolist(),
        key=lambda e: (int(graph.edges[e, 0]) in own, float(similarity[e])),
    )
    mate = own.get(int(graph.edges[e, 0]))
    return Example(
        point0=first[e],
        truth=truth[e],
        false=second[e],
        line=lines[e],
        similarity=float(similarity[e]),
        rank=int(rank[e]),
        true_similarity=None if mate is None else float(similarity[mate]),
        true_rank=None if mate is None else int(rank[mate]),
    )


def transferred(scene: RenderedScene, points: FloatArray) -> FloatArray:
    """Where (N, 2) pixels of image 0 are in image 1, by depth; NaN for what is hidden there."""
    z = _depth_at(scene.depth0, points)
    ray = np.column_stack([scene.camera0.unproject(points), np.ones(len(points))])
    moved = (ray * z[:, None]) @ scene.pose.R.T + scene.baseline * scene.pose.t
    # The sky, and what is behind the other camera, have no place there.
    seen = np.isfinite(moved).all(axis=1) & (moved[:, 2] > 0.0)
    result = np.full((len(points), 2), np.nan)
    result[seen] = scene.camera1.project(moved[seen, :2] / moved[seen, 2:])
    surface = _depth_at(scene.depth1, result)
    with np.errstate(invalid="ignore"):
        hidden = ~(moved[:, 2] < surface * (1.0 + _HIDDEN))
    result[hidden] = np.nan
    return result


def epipolar_lines(scene: RenderedScene, points: FloatArray) -> FloatArray:
    """Lines (N, 3) of image 1 on which the matches of (N, 2) pixels of image 0 lie.

    Scaled so that ``a x + b y + c`` is the signed distance of (x, y) in pixels.
    """
    fundamental = (
        np.linalg.inv(scene.camera1.K).T @ scene.pose.essential() @ np.linalg.inv(scene.camera0.K)
    )
    lines = np.column_stack([points, np.ones(len(points))]) @ fundamental.T
    scaled: FloatArray = lines / np.linalg.norm(lines[:, :2], axis=1, keepdims=True)
    return scaled


def made_example(seed: int, size: tuple[int, int], threshold_px: float) -> dict[str, Any]:
    """Make a scene and its example, as JSON types with everything that the figure needs."""
    scene = render_scene(seed, size)
    found = find_example(scene, threshold_px)
    return {
        "seed": seed,
        "size": list(size),
        "threshold_px": threshold_px,
        "images": [_encoded(scene.image0), _encoded(scene.image1)],
        **{field.name: _plain(getattr(found, field.name)) for field in dataclasses.fields(found)},
    }


def decoded(text: str) -> NDArray[np.uint8]:
    """Read an image that `made_example` wrote."""
    image = require_pillow()
    with image.open(io.BytesIO(base64.b64decode(text))) as opened:
        return np.asarray(opened.convert("RGB"))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _encoded(image: NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    require_pillow().fromarray(image).save(buffer, format="JPEG", quality=_QUALITY)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _depth_at(depth: NDArray[np.float32], points: FloatArray) -> FloatArray:
    """Depth at the nearest pixel centres of (N, 2) points; NaN outside and in the sky."""
    height, width = depth.shape
    with np.errstate(invalid="ignore"):
        inside = np.all((points >= -0.5) & (points < (width - 0.5, height - 0.5)), axis=1)
    nearest = np.floor(np.where(inside[:, None], points, 0.0) + 0.5).astype(np.int64)
    z = np.where(inside, depth[nearest[:, 1], nearest[:, 0]], np.nan).astype(np.float64)
    z[~np.isfinite(z)] = np.nan
    return z


def _within(points: FloatArray, scene: RenderedScene) -> NDArray[np.bool_]:
    width, height = scene.size
    far: NDArray[np.bool_] = np.all(
        (points >= _MARGIN_PX) & (points < (width - _MARGIN_PX, height - _MARGIN_PX)), axis=1
    )
    return far

"""Random graphs of the geometric problems, with what tests of all of them ask for."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from manymatch import (
    AbsolutePose,
    AssociationGraph,
    Camera,
    Estimate,
    Options,
    RelativePose,
    estimate_absolute_pose,
    estimate_fundamental,
    estimate_homography,
    estimate_relative_pose,
    estimate_rigid_transform,
    estimate_similarity,
    pose_error_deg,
)
from tests.oracles import absolute_pose, fundamental, homography, refinement, rigid
from tests.oracles.geometry import in_front, sampson_squared

SIZE = np.array([800.0, 600.0])
FOCAL = 700.0
CAMERA = Camera("PINHOLE", 800, 600, [700.0, 690.0, 399.5, 299.5])


def candidates(rng, points0, points1, right, partners):
    """Points with several candidates each; the right one is often not the first.

    Point i belongs to point i for the first `right` points.
    """
    edges, rank = [], []
    for i in range(len(points0)):
        others = [int(j) for j in rng.choice(len(points0), partners, replace=False) if j != i]
        if i < right:
            others.insert(min(int(rng.integers(partners)), len(others)), i)
        edges += [(i, j) for j in others]
        rank += list(range(1, len(others) + 1))
    order = np.argsort(rank, kind="stable")
    ranks = np.array(rank, np.int32)[order]
    return AssociationGraph(points0, points1, np.array(edges)[order], rank=ranks)


def same(first, second):
    """Whether two estimates agree to the bit in everything but the time."""

    def equal(a, b):
        if isinstance(a, np.ndarray):
            return np.array_equal(a, b, equal_nan=True)
        if dataclasses.is_dataclass(a):
            return type(a) is type(b) and all(
                equal(getattr(a, f.name), getattr(b, f.name))
                for f in dataclasses.fields(a)
                if f.name not in ("timing", "options", "_graph", "_pair", "_model")
            )
        if isinstance(a, tuple):
            return len(a) == len(b) and all(map(equal, a, b))
        return bool(a == b) or (a != a and b != b)  # noqa: PLR0124 - NaN

    return equal(first, second)


def random_homography(rng, affine=False):
    """Rotation, scale, shear and some perspective about the middle of the image."""
    angle, scale = rng.uniform(-np.pi, np.pi), np.exp(rng.uniform(-0.7, 0.7))
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    A = np.array([[c, -s], [s, c]]) + rng.uniform(-0.15, 0.15, (2, 2))
    H = np.eye(3)
    H[:2, :2] = A
    H[2, :2] = rng.uniform(-0.3, 0.3, 2) / SIZE
    to_middle, back = np.eye(3), np.eye(3)
    to_middle[:2, 2], back[:2, 2] = -SIZE / 2, SIZE / 2 + rng.uniform(-50, 50, 2)
    H = back @ H @ to_middle
    H /= H[2, 2]
    if affine:
        H[2] = 0.0, 0.0, 1.0
    return H


def mapped(H, points):
    ends = np.column_stack([points, np.ones(len(points))]) @ H.T
    return ends[:, :2] / ends[:, 2:]


def corner_error(H, truth):
    """Largest distance of the corners after the two transfers."""
    corners = np.array([[0, 0], [SIZE[0], 0], SIZE, [0, SIZE[1]]])
    return np.linalg.norm(mapped(H, corners) - mapped(truth, corners), axis=1).max()


def planar_graph(seed, right=70, wrong=30, partners=2, noise=0.3, affine=False):
    rng = np.random.default_rng(seed)
    H = random_homography(rng, affine)
    points0 = rng.uniform(0, SIZE, (right + wrong, 2))
    points1 = mapped(H, points0) + noise * rng.standard_normal((right + wrong, 2))
    points1[right:] = rng.uniform(points1.min(axis=0), points1.max(axis=0), (wrong, 2))
    return candidates(rng, points0, points1, right, partners), H


def transfer_error2(estimate, graph):
    H = estimate.homography
    pairs = zip(*graph.edges.T, strict=True)
    return np.array(
        [homography.transfer_error2(H, graph.points0[i], graph.points1[j]) for i, j in pairs]
    )


def small_pose(rng):
    """Rotation up to some ten degrees and a baseline of about a tenth of the distance."""
    w = rng.normal(0, 0.1, 3)
    angle = np.linalg.norm(w)
    W = np.cross(np.eye(3), w / angle)
    R = np.eye(3) + np.sin(angle) * W + (1 - np.cos(angle)) * W @ W
    return R, rng.normal(0, 0.4, 3)


def project(points):
    """Pixels of points (N, 3) in a camera's frame."""
    return FOCAL * points[:, :2] / points[:, 2:] + SIZE / 2


def signed(F):
    """Norm one, the largest entry positive."""
    return F / (np.sign(F.flat[np.argmax(np.abs(F))]) * np.linalg.norm(F))


def two_views(rng, count, plane=0):
    """Pixels (N, 2) twice and the true F; the first `plane` points lie on one plane."""
    R, t = small_pose(rng)
    pixels = rng.uniform(0.05 * SIZE, 0.95 * SIZE, (count, 2))
    depth = rng.uniform(3, 8, count)
    rays = np.column_stack([(pixels - SIZE / 2) / FOCAL, np.ones(count)])
    depth[:plane] = 5.0 / (rays[:plane] @ [0.3, -0.2, 1.0])
    X = rays * depth[:, None]
    K = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])
    inverse = np.linalg.inv(K)
    F = inverse.T @ np.cross(np.eye(3), t).T @ R @ inverse
    return pixels, project(X @ R.T + t), signed(F)


def epipolar_graph(seed, right=90, wrong=40, partners=2, noise=0.2, plane=0):
    rng = np.random.default_rng(seed)
    points0, points1, F = two_views(rng, right + wrong, plane)
    points1 = points1 + noise * rng.standard_normal(points1.shape)
    points1[right:] = rng.uniform(0, SIZE, (wrong, 2))
    return candidates(rng, points0, points1, right, partners), F


def off_by(F, truth):
    """Root mean square distance of exact correspondences of `truth` from the lines of F, in px."""
    rng = np.random.default_rng(0)
    x0 = rng.uniform(0, SIZE, (400, 2))
    lines = fundamental.homogeneous(x0) @ truth.T
    # A point of each true line, within the image.
    x1 = rng.uniform(0, SIZE, (400, 2))
    away = np.sum(fundamental.homogeneous(x1) * lines, axis=1) / np.sum(lines[:, :2] ** 2, axis=1)
    x1 = x1 - away[:, None] * lines[:, :2]
    inside = np.all((x1 > 0) & (x1 < SIZE), axis=1)
    return np.sqrt(np.mean(fundamental.sampson2(F, x0[inside], x1[inside])))


def sampson2(estimate, graph):
    """Squared residuals (E,), not a number on the side of the epipole that has fewer edges."""
    F = estimate.fundamental
    ends = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    r2 = fundamental.sampson2(F, *ends)
    sides = fundamental.sides(F, fundamental.epipole(F), *ends)
    usual = np.mean(sides[r2 < 1.0]) > 0.5
    return np.where(sides == usual, r2, np.nan)


def posed_graph(seed, right=90, wrong=40, partners=2, noise=0.2):
    rng = np.random.default_rng(seed)
    R, t = Rotation.from_rotvec(rng.normal(0, 0.15, 3)).as_matrix(), rng.normal(0, 1.0, 3)
    t *= 1.5 / np.linalg.norm(t)
    X = rng.uniform([-2.0, -1.5, 4.0], [2.0, 1.5, 9.0], (right + wrong, 3))
    points0, points1 = project(X), project(X @ R.T + t)
    points1 = points1 + noise * rng.standard_normal(points1.shape)
    points1[right:] = rng.uniform(0, SIZE, (wrong, 2))
    return candidates(rng, points0, points1, right, partners), RelativePose(R, t)


def pose_distance(pose, truth):
    """Larger of the errors of rotation and direction of translation, in degrees."""
    return pose_error_deg(pose, truth.R, truth.t)


def pose_sampson2(estimate, graph):
    """Squared residuals (E,) in pixels, not a number behind a camera."""
    R, t = estimate.pose.R, estimate.pose.t
    x0, x1 = (
        camera.unproject(points[ends])
        for camera, points, ends in zip(
            estimate.cameras, (graph.points0, graph.points1), graph.edges.T, strict=True
        )
    )
    pixel = np.mean([1.0 / camera.focal for camera in estimate.cameras])
    return np.array(
        [
            sampson_squared(a, b, R, t) / pixel**2 if in_front(a, b, R, t) else np.nan
            for a, b in zip(x0, x1, strict=True)
        ]
    )


def random_transform(rng, free_scale=False):
    """Any rotation, a translation, and a scale where there is one."""
    scale = np.exp(rng.uniform(-0.7, 0.7)) if free_scale else 1.0
    R = Rotation.from_quat(rng.standard_normal(4)).as_matrix()
    return rigid.matrix(scale * R, rng.uniform(-3, 3, 3))


def cloud_graph(seed, right=60, wrong=40, partners=2, noise=0.01, free_scale=False):
    rng = np.random.default_rng(seed)
    truth = random_transform(rng, free_scale)
    scale = rigid.scale_of(truth)
    points0 = rng.uniform(-1, 1, (right + wrong, 3)) * [1.5, 1.0, 0.6]
    points1 = rigid.mapped(truth, points0)
    points1 += scale * noise * rng.standard_normal(points1.shape)
    points1[right:] = rng.uniform(points1.min(axis=0), points1.max(axis=0), (wrong, 3))
    return candidates(rng, points0, points1, right, partners), truth


def transform_error(transform, truth):
    """Largest distance of the corners of the cloud after the two transforms, at scale one."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    off = rigid.mapped(transform, corners) - rigid.mapped(truth, corners)
    return np.linalg.norm(off, axis=1).max() / rigid.scale_of(truth)


def cloud_error2(estimate, graph):
    """Squared residuals (E,) in the unit of the second cloud."""
    transform = estimate.transform
    ends = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
    return rigid.errors2(transform, *ends) * rigid.scale_of(transform)


def camera_pose(rng):
    """Pose of a camera that looks at the origin from a distance of about 4."""
    R = Rotation.random(random_state=rng).as_matrix()
    return AbsolutePose(R, np.append(rng.uniform(-0.3, 0.3, 2), rng.uniform(3.0, 5.0)))


def query_graph(seed, right=70, wrong=30, partners=3, noise=0.5, camera=CAMERA, plane=False):
    rng = np.random.default_rng(seed)
    pose = camera_pose(rng)
    points = rng.uniform(-1.2, 1.2, (right + wrong, 3))
    if plane:
        points[:, 2] = 0.0
    seen = points @ pose.R.T + pose.t
    pixels = camera.project(seen[:, :2] / seen[:, 2:])
    pixels += noise * rng.standard_normal(pixels.shape)
    pixels[right:] = rng.uniform(0, [800, 600], (wrong, 2))
    return candidates(rng, pixels, points, right, partners), pose


def apart(first, second):
    """Angle in degrees between rotations, and distance of the centres in per cent of 4."""
    angle = Rotation.from_matrix(first.R.T @ second.R).magnitude()
    return max(np.degrees(angle), 25.0 * np.linalg.norm(first.center - second.center))


def reprojection_error2(estimate, graph):
    """Squared residuals (E,) in pixels, not a number behind the camera."""
    pose, camera = estimate.pose, estimate.camera0
    x0 = camera.unproject(graph.points0)
    squares = [
        absolute_pose.reprojection_error2(pose.R, pose.t, x0[i], graph.points1[j])
        for i, j in graph.edges
    ]
    return np.array(squares) * camera.focal**2


@dataclasses.dataclass(frozen=True)
class Case:
    """One problem, as the shared tests see it."""

    problem: str  # its name in an estimate
    call: Callable[..., Estimate]  # what a user calls
    arguments: tuple  # what follows the graph, but for a threshold of clouds
    graph: Callable[..., tuple[AssociationGraph, Any]]  # of a seed, and changes
    options: Options
    model: str  # the attribute of an estimate
    error: Callable[[Any, Any], float]
    error2: Callable[[Estimate, AssociationGraph], np.ndarray]  # squared residuals
    close: float  # largest error of an estimate
    sample_size: int
    dimensions: tuple[int, int]
    optimum: Callable[..., Any]  # least-squares model near the truth, of points and threshold
    inverse: Callable[[Any], Any] | None = None  # model of the swapped sides
    threshold: float = 0.0  # of clouds, at scale one
    slack: float = 0.0  # share of the threshold by which residuals may be judged otherwise

    def estimate(self, graph, method="auto", options=None, truth=None, **more):
        """Call the estimator; the threshold of clouds is at the scale of the truth."""
        arguments = self.arguments
        if self.threshold:
            arguments = (self.limit(truth),)
        return self.call(graph, *arguments, method=method, options=options or self.options, **more)

    def limit(self, truth=None):
        """Return the threshold in the unit of the residuals."""
        if not self.threshold:
            return self.options.threshold_px
        return self.threshold * (1.0 if truth is None else rigid.scale_of(truth))

    def of(self, estimate):
        return getattr(estimate, self.model)


def affine_optimum(_truth, points0, points1, _):
    # The error in image 0 is the error in image 1 through a map that is nearly the same for all.
    rows = np.column_stack([points0, np.ones(len(points0))])
    return np.vstack([np.linalg.lstsq(rows, points1, rcond=None)[0].T, [0.0, 0.0, 1.0]])


def fundamental_optimum(truth, points0, points1, _):
    T = np.diag([1 / 400, 1 / 400, 1.0])
    T[:2, 2] = -SIZE / 800
    into = np.linalg.inv(T)
    start = into.T @ truth @ into
    best = fundamental.refined(start, (points0 - SIZE / 2) / 400, (points1 - SIZE / 2) / 400)
    return signed(T.T @ best @ T)


def relative_optimum(truth, points0, points1, _):
    x0, x1 = PINHOLE.unproject(points0), PINHOLE.unproject(points1)
    return RelativePose(*refinement.cauchy_minimum(x0, x1, np.ones(len(x0)), truth.R, truth.t, 1.0))


def absolute_optimum(truth, points0, points1, _):
    return AbsolutePose(
        *absolute_pose.refined(truth.R, truth.t, CAMERA.unproject(points0), points1)
    )


def cloud_optimum(truth, points0, points1, threshold, free_scale=False):
    """With the loss of the estimator, Cauchy's at a third of the threshold."""
    factor = np.sqrt(rigid.scale_of(truth))
    return rigid.refined(truth, points0, points1, threshold / 3 / factor, free_scale)


PLANAR = Options(threshold_px=2.0, max_iterations=3_000, threads=1)
CLOUDS = Options(max_iterations=3_000, threads=1)
POSED = Options(threshold_px=1.0, max_iterations=10_000, threads=1)
QUERY = Options(threshold_px=3.0, max_iterations=3_000, threads=1)
PINHOLE = Camera("SIMPLE_PINHOLE", 800, 600, [FOCAL, *SIZE / 2])
UNKNOWN = Camera.unknown(800, 600)
CASES = {
    "relative": Case(
        *("relative", estimate_relative_pose, (PINHOLE, PINHOLE), posed_graph, POSED),
        *("pose", pose_distance, pose_sampson2, 2.0, 5, (2, 2)),
        *(relative_optimum, RelativePose.inverse),
    ),
    "relative, unknown focal": Case(
        *("relative", estimate_relative_pose, (UNKNOWN, UNKNOWN), posed_graph, POSED),
        *("pose", pose_distance, pose_sampson2, 8.0, 5, (2, 2)),
        *(None, RelativePose.inverse),
    ),
    "homography": Case(
        *("homography", estimate_homography, (), planar_graph, PLANAR),
        *("homography", corner_error, transfer_error2, 2.0, 4, (2, 2)),
        *(lambda truth, a, b, _: homography.refined(truth, a, b), np.linalg.inv),
    ),
    "affine": Case(
        *("homography", partial(estimate_homography, model="affine"), ()),
        *(partial(planar_graph, affine=True), PLANAR),
        *("homography", corner_error, transfer_error2, 2.0, 3, (2, 2)),
        *(affine_optimum, np.linalg.inv),
    ),
    "fundamental": Case(
        *("fundamental", estimate_fundamental, (), epipolar_graph),
        Options(threshold_px=1.0, max_iterations=30_000, threads=1),
        *("fundamental", off_by, sampson2, 8.0, 7, (2, 2)),  # also far from all matches
        fundamental_optimum,
    ),
    "rigid": Case(
        *("rigid", estimate_rigid_transform, (), cloud_graph, CLOUDS),
        *("transform", transform_error, cloud_error2, 0.03, 3, (3, 3)),
        *(cloud_optimum, np.linalg.inv, 0.06),
    ),
    "similarity": Case(
        *("similarity", estimate_similarity, (), partial(cloud_graph, free_scale=True), CLOUDS),
        *("transform", transform_error, cloud_error2, 0.03, 3, (3, 3)),
        # The clouds are about as large as each other at the true scale.
        *(partial(cloud_optimum, free_scale=True), np.linalg.inv, 0.06, 0.25),
    ),
    "absolute": Case(
        *("absolute", estimate_absolute_pose, (CAMERA,), query_graph, QUERY),
        *("pose", apart, reprojection_error2, 0.5, 3, (2, 3), absolute_optimum),
    ),
    "absolute, unknown focal": Case(
        *("absolute", estimate_absolute_pose, (UNKNOWN,), query_graph, QUERY),
        *("pose", apart, reprojection_error2, 3.0, 3, (2, 3), None),
    ),
}

"""Is the scene one plane, or the motion a rotation? Both leave something about the pose open."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from manymatch import _core

if TYPE_CHECKING:
    from manymatch._validate import FloatArray
    from manymatch.geometry.pose import RelativePose

# A match lies on a plane if the plane puts it within this many thresholds of where it is seen:
# noise of half a threshold in each coordinate of both images stays below it in 98 of 100 cases.
_TOLERANCE = 2.0

# Planes tried, each through three random matches: with half of the matches on the plane, the
# chance to miss it is 2e-4.
_PLANES = 64
_REFITS = 3

_STREAM = 0x706C616E65


@dataclasses.dataclass(frozen=True)
class Planarity:
    """Shares, from 0 to 1, of the matches that a simpler model explains; NaN without matches.

    Attributes
    ----------
    rotation : float
        The rotation alone brings the first point onto the second.
    plane : float
        One plane does, seen by both cameras with the found pose.
    twin : float
        The plane's second pose, different from the found one, explains them too.
    """

    rotation: float
    plane: float
    twin: float


def planarity(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, eps: float, seed: int
) -> Planarity:
    """Test matches for one plane and for pure rotation.

    Parameters
    ----------
    x0, x1 : (M, 2) float64
        Matches on the normalised planes.
    pose : RelativePose
        Found pose, camera 0 to camera 1.
    eps : float
        Inlier threshold on the normalised plane.
    seed : int
        Key of the random planes.
    """
    if len(x0) < 3:
        return Planarity(math.nan, math.nan, math.nan)
    rays = np.column_stack([x0, np.ones(len(x0))])
    turned = rays @ pose.R.T
    tolerance = _TOLERANCE * eps

    def share(plane: FloatArray) -> float:
        """Share of the matches that are seen where a plane puts them."""
        # A plane v . X = 1 gives the ray x the inverse depth v . x, in units of the baseline.
        moved = turned + (rays @ plane)[:, None] * pose.t
        depth = np.where(moved[:, 2] > 0, moved[:, 2], np.nan)
        gap = moved[:, :2] / depth[:, None] - x1
        return float(np.mean(np.sum(gap**2, axis=1) < tolerance**2))

    inverse_depth, speed = _inverse_depths(turned, x1, pose.t)
    plane = _best_plane(rays, inverse_depth, tolerance / np.maximum(speed, 1e-12), seed)
    rotation = share(np.zeros(3))
    flat = max(share(plane), rotation)
    return Planarity(rotation, flat, _twin_share(x0, x1, pose, plane, eps))


def _inverse_depths(
    turned: FloatArray, x1: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Inverse depth (M,) of every match, and how far it moves the point in image 1 per unit."""
    along = x1 * t[2] - t[:2]
    off = x1 * turned[:, 2:] - turned[:, :2]
    speed2 = np.sum(along**2, axis=1)
    rho = -np.sum(along * off, axis=1) / np.maximum(speed2, 1e-12)
    depth = np.abs(turned[:, 2] + rho * t[2])
    return rho, np.sqrt(speed2) / np.maximum(depth, 1e-6)


def _best_plane(
    rays: FloatArray, inverse_depth: FloatArray, tolerance: FloatArray, seed: int
) -> FloatArray:
    """Plane (3,) that most matches lie on, each within its own tolerance, fitted to them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, _STREAM]))
    # Coincident picks give a singular system and drop out.
    three = rng.integers(0, len(rays), (_PLANES, 3))
    systems, depths = rays[three], inverse_depth[three]
    regular = np.abs(np.linalg.det(systems)) > 1e-9
    planes = np.zeros((1, 3))
    if regular.any():
        solved = np.linalg.solve(systems[regular], depths[regular][:, :, None])
        planes = np.concatenate([planes, solved[:, :, 0]])
    inside = np.abs(planes @ rays.T - inverse_depth) < tolerance
    best = int(np.argmax(inside.sum(axis=1)))
    plane, mask = planes[best], inside[best]
    for _ in range(_REFITS):
        weight = 1.0 / tolerance[mask]
        refit = np.linalg.lstsq(
            rays[mask] * weight[:, None], inverse_depth[mask] * weight, rcond=None
        )[0]
        again = np.abs(rays @ refit - inverse_depth) < tolerance
        if again.sum() < mask.sum():
            break
        plane, mask = refit, again
    return np.asarray(plane, dtype=np.float64)


def _twin_share(
    x0: FloatArray, x1: FloatArray, pose: RelativePose, plane: FloatArray, eps: float
) -> float:
    """Share of the matches that the other pose with the same homography explains, refined."""
    twin = planar_twin(pose.R, pose.t, plane, x0)
    if twin is None:
        return 0.0
    candidates = [twin]
    R, t = _core.refine(x0, x1, np.ones(len(x0)), *twin, eps, "truncated", 25)[:2]
    # Matches off the plane can pull the twin back to the found pose, which then explains itself.
    if np.linalg.norm(R - twin[0]) < np.linalg.norm(R - pose.R):
        candidates.append((R, t))
    shares = []
    for R, t in candidates:
        r2, in_front = _core.sampson(x0, x1, R, t)
        shares.append(float(np.mean((r2 < eps**2) & in_front)))
    return max(shares)


def planar_twin(
    R: FloatArray, t: FloatArray, plane: FloatArray, x0: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Find the second pose (R, t) under which a plane looks the same in both images.

    A homography ``R + t plane'`` is that of two poses and planes. The vectors whose length it
    keeps form two planes, and each solution maps one of them rigidly.

    Parameters
    ----------
    R, t : (3, 3) and (3,) float64
        The first pose.
    plane : (3,) float64
        ``plane . X = 1`` for its points X in camera 0, in units of the baseline.
    x0 : (M, 2) float64
        Points on the normalised plane of camera 0 that see the plane; they choose the side.

    Returns
    -------
    (R, t) or None
        None where there is no second one: the camera moved along the plane's normal, or not.
    """
    homography = R + np.outer(t, plane)
    _, values, vt = np.linalg.svd(homography)
    if not values[1] > 1e-9:
        return None
    homography, values = homography / values[1], values / values[1]
    gain, loss = values[0] ** 2 - 1.0, 1.0 - values[2] ** 2
    if gain + loss < 1e-9:
        return None
    first, second, third = vt
    rays = np.column_stack([x0, np.ones(len(x0))])
    found = []
    for sign in (1.0, -1.0):
        kept = (math.sqrt(max(loss, 0)) * first + sign * math.sqrt(max(gain, 0)) * third) / (
            math.sqrt(gain + loss)
        )
        normal = np.cross(second, kept)
        before = np.stack([second, kept, normal], axis=1)
        moved = homography @ before[:, :2]
        after = np.column_stack([moved, np.cross(moved[:, 0], moved[:, 1])])
        rotation = after @ before.T
        step = (homography - rotation) @ normal
        # The plane is in front of camera 0 where its points are.
        if np.median(rays @ normal) < 0:
            step = -step
        found.append((rotation, step))
    rotation, step = max(found, key=lambda solution: float(np.linalg.norm(solution[0] - R)))
    length = float(np.linalg.norm(step))
    if length < 1e-9 or np.linalg.norm(found[0][0] - found[1][0]) < 1e-6:
        return None
    u, _, wt = np.linalg.svd(rotation)
    return np.ascontiguousarray(u @ wt), np.ascontiguousarray(step / length)

"""Cameras: pixels to the normalised plane and back, with the lens distortions of COLMAP."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from manymatch._validate import (
    FloatArray,
    choice,
    float_array,
    integer,
    read_only,
    real,
    refusal,
    suggest,
)
from manymatch.geometry.lenses import MODELS

# Prior of an unknown focal length over the longer edge of the image: median, and standard deviation
# of the logarithm. Phones have 0.67 to 0.78 of the longer edge, lenses of
# 18, 50 and 85 mm (in 35 mm terms) 0.5, 1.4 and 2.4.
_USUAL_FOCAL, _USUAL_SIGMA = 0.85, 0.5
# Largest standard deviation: two of it are a factor of 400.
_LARGEST_SIGMA = 3.0

# COLMAP has the centre of the top-left pixel at (0.5, 0.5), this package at (0, 0).
COLMAP_PIXEL_CENTRE = 0.5

# Round-off in the lower part of a camera matrix, relative to the focal length.
_MATRIX_TOLERANCE = 1e-9
_LARGEST_COEFFICIENT = 1e30
_LARGEST_SCALE = 1e6
_KEYS = ("model", "width", "height", "params", "skew", "focal_sigma")
_ACCEPTED = (
    "a Camera, a 3x3 matrix, the numbers (fx, fy, cx, cy), a dict of these or of model, width, "
    "height, params, or a pycolmap.Camera"
)
_PINHOLE = ("fx", "fy", "cx", "cy")


@dataclasses.dataclass(frozen=True, init=False, repr=False, slots=True)
class Camera:
    """Camera: maps points of the normalised plane z = 1 to pixels.

    The lens distorts a point, then the camera matrix `K` maps it. An unknown focal length
    (`Camera.unknown`) has a prior, whose median is in `K`; the estimators find it with the pose.

    Pixels are (x, y) with the centre of the top-left pixel at (0, 0), OpenCV's convention, and
    cx, cy follow it. COLMAP puts that centre at (0.5, 0.5): `from_colmap` and `to_colmap` shift.

    Parameters
    ----------
    model : str
        COLMAP's name: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, OPENCV_FISHEYE or
        FULL_OPENCV.
    width, height : int or None
        Image size in pixels, both or neither. Estimators warn if keypoints show that the two are
        swapped.
    params : sequence of float
        Parameters in COLMAP's order: f or fx, fy in pixels, cx, cy in pixels, then the
        coefficients of the distortion: k; k1, k2; k1, k2, p1, p2; k1, k2, k3, k4; or k1, k2, p1,
        p2, k3, k4, k5, k6.
    skew : float
        Entry ``K[0, 1]`` in pixels: how far x moves per unit of y on the normalised plane. COLMAP
        has no such parameter.
    focal_sigma : float or None
        Standard deviation of the logarithm of a focal length that is not known, whose prior is
        around that of `params`: 0.05 is about five per cent. None if it is known. Only for models
        without distortion.

    Examples
    --------
    >>> Camera("PINHOLE", 640, 480, [500, 500, 319.5, 239.5]).focal
    500.0
    >>> Camera.unknown(640, 480)
    Camera(SIMPLE_PINHOLE, 640x480, unknown focal length, about 576 px, cx=319.5, cy=239.5)
    """

    model: str
    width: int | None
    height: int | None
    params: tuple[float, ...]
    skew: float
    focal_sigma: float | None

    def __init__(
        self,
        model: str,
        width: int | None,
        height: int | None,
        params: ArrayLike,
        skew: float = 0.0,
        focal_sigma: float | None = None,
    ) -> None:
        if (width is None) != (height is None):
            missing, given = ("width", "height") if width is None else ("height", "width")
            raise ValueError(f"{missing} must be given together with {given}, got None")
        values: dict[str, Any] = {"model": choice(model, "model", MODELS)}
        for name, size in (("width", width), ("height", height)):
            values[name] = None if size is None else integer(size, name, 1)
        values |= {"params": _checked_params(model, params), "skew": real(skew, "skew")}
        if focal_sigma is not None:
            focal_sigma = real(focal_sigma, "focal_sigma", 0.0, _LARGEST_SIGMA)
            if len(values["params"]) > MODELS[model].num_focal + 2:
                raise ValueError(
                    "focal_sigma must be None for a camera with distortion, whose focal length "
                    f"must be known, got {focal_sigma:g} with {model}"
                )
        for name, value in {**values, "focal_sigma": focal_sigma}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def unknown(
        cls, width: int, height: int, focal_px: float | None = None, sigma: float | None = None
    ) -> Camera:
        """Make a camera whose focal length is to be found, together with the pose.

        The principal point is the centre of the image, and there is no distortion. The prior of
        the focal length has the median `focal_px`, in pixels, by default 0.85 times the longer
        edge. `sigma` is the standard deviation of its logarithm, by default 0.5: nine in ten
        cameras have half to twice the median.
        """
        width, height = integer(width, "width", 1), integer(height, "height", 1)
        focal = _USUAL_FOCAL * max(width, height) if focal_px is None else _focal(focal_px)
        sigma = _USUAL_SIGMA if sigma is None else real(sigma, "sigma", 0.0, _LARGEST_SIGMA)
        params = (focal, (width - 1) / 2, (height - 1) / 2)
        return cls("SIMPLE_PINHOLE", width, height, params, focal_sigma=sigma)

    def with_focal(self, focal_px: float, sigma: float | None = None) -> Camera:
        """Return this camera with the focal length `focal_px`, the mean of fx and fy, in pixels.

        It is then known, or with `sigma` the median of a prior as in `unknown`. The ratio of fx to
        fy stays.
        """
        focal = _focal(focal_px)
        ratio = focal / self.focal
        n = MODELS[self.model].num_focal
        focals = (focal,) if self.fx == self.fy else (self.fx * ratio, self.fy * ratio)
        params = (*(focals * n)[:n], *self.params[n:])
        return Camera(self.model, self.width, self.height, params, self.skew * ratio, sigma)

    @classmethod
    def from_matrix(
        cls, K: ArrayLike, width: int | None = None, height: int | None = None
    ) -> Camera:
        """Make a PINHOLE camera of K, ``[[fx, skew, cx], [0, fy, cy], [0, 0, 1]]``, in pixels."""
        return cls("PINHOLE", width, height, *_matrix_params(K, "K", "a 3x3 camera matrix"))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Camera:
        """Make a camera of a dict as `to_dict` returns it; only model and params must be there.

        The numbers are taken as they are; `from_colmap` shifts those of a COLMAP reconstruction.
        """
        if not isinstance(values, Mapping):
            raise refusal("values", "a dict with the keys model, width, height, params", values)
        for key in values:
            if key not in _KEYS:
                raise ValueError(
                    f"values must have the keys {', '.join(_KEYS)}{suggest(key, _KEYS)}, "
                    f"got the key {key!r}"
                )
        for key in ("model", "params"):
            if key not in values:
                raise ValueError(f"values must have the key {key!r}, got {sorted(values)}")
        return cls(**{"width": None, "height": None, **values})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as they are, ready for JSON, without a skew of 0 and focal_sigma None.

        The inverse is `from_dict`.
        """
        values = {**dataclasses.asdict(self), "params": list(self.params)}
        left_out = (("skew", 0.0), ("focal_sigma", None))
        return {name: v for name, v in values.items() if (name, v) not in left_out}

    @classmethod
    def from_colmap(cls, camera: object) -> Camera:
        """Convert a pycolmap.Camera or dict in COLMAP's pixels; a size of 0 becomes None."""
        if isinstance(camera, Mapping):
            return _shift_pixels(cls.from_dict(camera), -COLMAP_PIXEL_CENTRE)
        model = getattr(camera, "model", None)
        model = getattr(model, "name", getattr(camera, "model_name", model))
        params = getattr(camera, "params", None)
        if model is None or params is None:
            raise refusal("camera", "a pycolmap.Camera or a dict", camera)
        size = (getattr(camera, "width", 0) or None, getattr(camera, "height", 0) or None)
        return _shift_pixels(cls(model, *size, params), -COLMAP_PIXEL_CENTRE)

    def to_colmap(self) -> dict[str, Any]:
        """Return model, width, height and params in COLMAP's pixel convention.

        With a known size, ``pycolmap.Camera(**camera.to_colmap())`` is the same camera. An unknown
        focal length becomes the median of its prior. COLMAP has no skew: one above 1e-9 of the
        focal length is a ValueError, a smaller one is dropped.
        """
        if abs(self.skew) > _MATRIX_TOLERANCE * max(self.fx, self.fy):
            raise ValueError(f"camera must have no skew in COLMAP's form, got skew={self.skew:g}")
        values = _shift_pixels(self, COLMAP_PIXEL_CENTRE).to_dict()
        return {name: values[name] for name in ("model", "width", "height", "params")}

    @property
    def known_focal(self) -> bool:
        """Whether the focal length is known; `focal_sigma` describes one that is not."""
        return self.focal_sigma is None

    @property
    def fx(self) -> float:
        """Horizontal focal length in pixels."""
        return self.params[0]

    @property
    def fy(self) -> float:
        """Vertical focal length in pixels."""
        return self.params[MODELS[self.model].num_focal - 1]

    @property
    def cx(self) -> float:
        """Horizontal coordinate of the principal point in pixels."""
        return self.params[MODELS[self.model].num_focal]

    @property
    def cy(self) -> float:
        """Vertical coordinate of the principal point in pixels."""
        return self.params[MODELS[self.model].num_focal + 1]

    @property
    def distortion(self) -> tuple[float, ...]:
        """Coefficients of the distortion, empty for a pinhole camera."""
        return self.params[MODELS[self.model].num_focal + 2 :]

    @property
    def focal(self) -> float:
        """Mean of fx and fy in pixels, which turns pixel thresholds into normalised ones."""
        return 0.5 * self.fx + 0.5 * self.fy

    @property
    def K(self) -> FloatArray:  # noqa: N802
        """Camera matrix (3, 3) in pixels, without the distortion, read-only."""
        top, middle = [self.fx, self.skew, self.cx], [0.0, self.fy, self.cy]
        return read_only(np.array([top, middle, [0.0, 0.0, 1.0]]))

    def project(self, points: ArrayLike) -> FloatArray:
        """Map undistorted points (x/z, y/z) of the normalised plane, (N, 2), to pixels (N, 2)."""
        xn = float_array(points, "points", "an (N, 2) array of numbers", (None, 2), finite=False)
        # Far outside the image the polynomials overflow; infinity or NaN is then the answer.
        with np.errstate(all="ignore"):
            xd = MODELS[self.model].distort(xn, self.distortion)
            px = xd * (self.fx, self.fy) + (self.cx, self.cy)
            if self.skew:
                px[:, 0] += self.skew * xd[:, 1]
            return px

    def unproject(self, points: ArrayLike) -> FloatArray:
        """Map pixels (N, 2) to undistorted points (x/z, y/z) of the normalised plane, (N, 2).

        The result is NaN for pixels that are not finite and where the distortion has no inverse:
        beyond a fold or pole, and from 90 degrees off the axis on for a fisheye.
        """
        px = float_array(points, "points", "an (N, 2) array of pixels", (None, 2), finite=False)
        px[~np.isfinite(px).all(axis=1)] = np.nan
        with np.errstate(all="ignore"):
            xd = px - (self.cx, self.cy)
            if self.skew:
                xd[:, 0] -= self.skew * (xd[:, 1] / self.fy)
            xd /= (self.fx, self.fy)
            return MODELS[self.model].undistort(xd, self.distortion)

    def scaled(self, sx: float, sy: float | None = None) -> Camera:
        """Return the camera of the image resized by sx in x and by sy, by default sx, in y.

        A pixel x goes to ``(x + 0.5) sx - 0.5``. Models with one focal length become PINHOLE or
        OPENCV where the two factors differ; the size is rounded.
        """
        sx = real(sx, "sx", 0.0, _LARGEST_SCALE)
        sy = sx if sy is None else real(sy, "sy", 0.0, _LARGEST_SCALE)
        principal = ((self.cx + 0.5) * sx - 0.5, (self.cy + 0.5) * sy - 0.5)
        model, distortion = self.model, self.distortion
        focal: tuple[float, ...] = (self.fx * sx, self.fy * sy)
        if MODELS[model].num_focal == 1:
            if sx == sy:
                focal = focal[:1]
            elif distortion:
                model, distortion = "OPENCV", (*distortion, 0.0, 0.0, 0.0)[:4]
            else:
                model = "PINHOLE"
        sizes = ((self.width, sx), (self.height, sy))
        width, height = (None if n is None else max(1, round(n * s)) for n, s in sizes)
        params = (*focal, *principal, *distortion)
        return Camera(model, width, height, params, self.skew * sx, self.focal_sigma)

    def turned(self, axes: ArrayLike) -> Camera:
        """Return the camera of the image after quarter turns and mirroring.

        `axes`, (2, 2), maps directions (x, y) in this image to directions in the other one: 0 and
        1 or -1 in every row and column. The camera must have a size, and no skew if x and y swap.
        """
        A = float_array(axes, "axes", "a 2x2 signed permutation", (2, 2))
        if np.abs(A).tolist() not in ([[1, 0], [0, 1]], [[0, 1], [1, 0]]):
            raise refusal("axes", "a 2x2 signed permutation", A.tolist())
        if self.width is None or self.height is None:
            raise ValueError("camera must have a size to be turned, got None")
        swapped, (width, height) = not A[0, 0], (self.width, self.height)
        if self.skew and swapped:
            raise ValueError(f"camera must have no skew to be turned, got skew={self.skew:g}")
        flips = A.sum(axis=0) < 0  # of x and y of this image
        cx = width - 1 - self.cx if flips[0] else self.cx
        cy = height - 1 - self.cy if flips[1] else self.cy
        params, lens = list(self.params), MODELS[self.model]
        n = lens.num_focal
        params[n : n + 2] = (cy, cx) if swapped else (cx, cy)
        if n == 2 and swapped:
            params[:2] = self.fy, self.fx
        if "p1" in lens.fields:
            # The tangential distortion moves x by r^2 q + 2 (q x) x, where q is (p2, p1).
            at = lens.fields.index("p1")
            params[at + 1], params[at] = (A @ (params[at + 1], params[at])).tolist()
        size = (height, width) if swapped else (width, height)
        skew = self.skew * float(A[0, 0] * A[1, 1])
        return Camera(self.model, *size, params, skew, self.focal_sigma)

    def __repr__(self) -> str:
        size = "size unknown" if self.width is None else f"{self.width}x{self.height}"
        fields = MODELS[self.model].fields
        params = [f"{n}={v:.6g}" for n, v in zip(fields, self.params, strict=True)]
        if not self.known_focal:
            n = MODELS[self.model].num_focal
            params[:n] = [f"unknown focal length, about {self.focal:.0f} px"]
        skew = f", skew={self.skew:.6g}" if self.skew else ""
        return f"Camera({self.model}, {size}, {', '.join(params)}{skew})"


def normalised_pixel(camera0: Camera, camera1: Camera) -> float:
    """Size of a pixel on the normalised planes of two cameras: the mean of their 1/f."""
    return 0.5 * (1.0 / camera0.focal + 1.0 / camera1.focal)


def working_pixel(camera0: Camera, camera1: Camera, scale0: ArrayLike, scale1: ArrayLike) -> float:
    """Return the size of a pixel at working size, in pixels of the images as given.

    A scale is the length at working size over that of the image as given, along x and y. The two
    images may be resized differently: a threshold times this factor is the same `normalised_pixel`.
    """
    working = [c.scaled(*np.asarray(s)) for c, s in ((camera0, scale0), (camera1, scale1))]
    return normalised_pixel(*working) / normalised_pixel(camera0, camera1)


def as_camera(value: Any, name: str) -> Camera:
    """Convert what `_ACCEPTED` lists; errors begin with `name`.

    Matrices, numbers and dicts are in the pixel convention of the points they come with. A
    pycolmap.Camera follows COLMAP and is shifted by half a pixel.
    """
    if isinstance(value, Camera):
        return value
    if value is None:
        want = f"{_ACCEPTED}; Camera.unknown(width, height) if the focal length is not known"
        raise ValueError(f"{name} must be {want}, got None")
    try:
        if isinstance(value, Mapping):
            if "fx" in value:
                rest = {key: entry for key, entry in value.items() if key not in _PINHOLE}
                params = [value.get(key) for key in _PINHOLE]
                value = {"model": "PINHOLE", **rest, "params": params}
            return Camera.from_dict(value)
        row = isinstance(value, list | tuple) and not any(map(np.iterable, value))
        if (row or isinstance(value, np.ndarray)) and np.shape(value) == (4,):
            return Camera("PINHOLE", None, None, value)
        if hasattr(value, "params") and (hasattr(value, "model") or hasattr(value, "model_name")):
            return Camera.from_colmap(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a valid camera, but its {error}") from error
    return Camera("PINHOLE", None, None, *_matrix_params(value, name, _ACCEPTED))


def _shift_pixels(camera: Camera, shift: float) -> Camera:
    """Return the camera for pixels that are all moved by `shift` in x and y."""
    n = MODELS[camera.model].num_focal
    principal = (camera.cx + shift, camera.cy + shift)
    return dataclasses.replace(camera, params=(*camera.params[:n], *principal, *camera.distortion))


def _focal(value: object) -> float:
    return real(value, "focal_px", sys.float_info.min, closed=True)


def _checked_params(model: str, params: object) -> tuple[float, ...]:
    fields, focals = MODELS[model].fields, MODELS[model].num_focal
    want = f"the {len(fields)} finite numbers {', '.join(fields)} of {model}"
    values = float_array(params, "params", want, (len(fields),)).tolist()
    for k, (field, value) in enumerate(zip(fields, values, strict=True)):
        # A focal length that is not a normal number has no finite inverse.
        if k < focals and value < sys.float_info.min:
            raise ValueError(f"params must have a positive focal length {field}, got {value}")
        if k >= focals + 2 and abs(value) > _LARGEST_COEFFICIENT:
            limit = f"of size up to {_LARGEST_COEFFICIENT:g}"
            raise ValueError(f"params must have a distortion {field} {limit}, got {value}")
    return tuple(values)


def _matrix_params(K: object, name: str, want: str) -> tuple[list[float], float]:
    """Check a camera matrix and return fx, fy, cx, cy and the skew."""
    (fx, skew, cx), (lower, fy, cy), last = float_array(K, name, want, (3, 3)).tolist()
    if min(fx, fy) < sys.float_info.min:
        raise ValueError(
            f"{name} must have positive focal lengths on its diagonal, got {fx} and {fy}"
        )
    if max(abs(last[0]), abs(last[1]), abs(last[2] - 1.0)) > _MATRIX_TOLERANCE:
        raise ValueError(f"{name} must have the last row [0, 0, 1], got {last}")
    if abs(lower) > _MATRIX_TOLERANCE * max(fx, fy):
        raise ValueError(f"{name} must be upper triangular, got {lower} in row 1, column 0")
    return [fx, fy, cx, cy], skew

"""Cameras: pixels to the normalised plane and back, with the lens distortions of COLMAP."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import (
    BoolArray,
    FloatArray,
    choice,
    float_array,
    integer,
    read_only,
    real,
    refusal,
    suggest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    #: A function of radii (N,) that returns its values and slopes, both (N,).
    Excess = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

# Prior of a focal length of which nothing is known, over the longer edge of the image: log-normal
# with this median and this standard deviation of the logarithm. Main cameras of phones, 24 to 28 mm
# in 35 mm terms, have 0.67 to 0.78 of the longer edge, a standard lens of 50 mm 1.4, a short tele
# lens of 85 mm 2.4, a wide angle of 18 mm 0.5. Most photographs are taken with phones: the middle
# is near 0.9, and nine in ten are between 0.40 and 2.0.
_USUAL_FOCAL = 0.9
_USUAL_SIGMA = 0.5
# Two of these standard deviations are a factor of 400; more says nothing about a camera.
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

_EPS = float(np.finfo(np.float64).eps)
# Iterations of the solvers: along a radius, in the plane, and steps from the centre outwards.
_RADIUS_ITERATIONS, _PLANE_ITERATIONS, _CONTINUATION_STEPS = 100, 60, 32
# Enough factors of two to go from any number to any other.
_BRACKET_STEPS = 2200
# Radii up to here have finite squares; larger ones have no answer.
_LARGEST_RADIUS = 1e150
# Largest error of an answer relative to the distorted radius; close to a pole no digits are left.
_RADIAL_TOLERANCE = 1e-11


@dataclasses.dataclass(frozen=True, init=False, repr=False, slots=True)
class Camera:
    """Camera: maps points of the normalised plane z = 1 to pixels.

    A point is first distorted by the lens, then mapped by the camera matrix `K`. The focal length
    may be unknown (`Camera.unknown`); then it has a prior, `K` is that of the prior's median, and
    the estimators find it together with the pose.

    Pixels are (x, y) with the centre of the top-left pixel at (0, 0), OpenCV's convention, and
    cx, cy follow it. COLMAP puts that centre at (0.5, 0.5): `from_colmap` and `to_colmap` are the
    only places that shift between the two.

    Parameters
    ----------
    model : str
        COLMAP's name: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, OPENCV_FISHEYE or
        FULL_OPENCV.
    width, height : int or None
        Image size in pixels, both or neither.
    params : sequence of float
        Parameters in COLMAP's order: f or fx, fy in pixels, cx, cy in pixels, then the
        coefficients of the distortion: k; k1, k2; k1, k2, p1, p2; k1, k2, k3, k4; or k1, k2, p1,
        p2, k3, k4, k5, k6.
    skew : float
        Entry ``K[0, 1]`` in pixels: how far x moves per unit of y on the normalised plane. COLMAP
        has no such parameter.
    focal_sigma : float or None
        Standard deviation of the logarithm of a focal length that is not known, whose prior is
        log-normal around that of `params`: 0.05 is about five per cent. None if it is known. Only
        for models without distortion.

    Raises
    ------
    ValueError
        If the model is unknown, the number of parameters is another, a focal length is not
        positive, anything is not finite, or a camera with distortion has a `focal_sigma`.

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
        object.__setattr__(self, "model", choice(model, "model", MODELS))
        object.__setattr__(self, "width", None if width is None else integer(width, "width", 1))
        object.__setattr__(self, "height", None if height is None else integer(height, "height", 1))
        object.__setattr__(self, "params", _checked_params(self.model, params))
        object.__setattr__(self, "skew", real(skew, "skew"))
        if focal_sigma is not None:
            focal_sigma = real(focal_sigma, "focal_sigma", 0.0, _LARGEST_SIGMA)
            if self.distortion:
                raise ValueError(
                    "focal_sigma must be None for a camera with distortion, whose focal length "
                    f"must be known, got {focal_sigma:g} with {self.model}"
                )
        object.__setattr__(self, "focal_sigma", focal_sigma)

    @classmethod
    def unknown(
        cls,
        width: int,
        height: int,
        focal_px: float | None = None,
        sigma: float | None = None,
    ) -> Camera:
        """Make a camera whose focal length is to be found, together with the pose.

        The principal point is the centre of the image, and there is no distortion. The prior of
        the focal length is log-normal.

        Parameters
        ----------
        width, height : int
            Image size in pixels.
        focal_px : float, optional
            Median of the prior in pixels; by default 0.9 times the longer edge, the middle of the
            usual fields of view.
        sigma : float, optional
            Standard deviation of the logarithm of the focal length, by default 0.5: nine in ten
            cameras have 0.44 to 2.3 times the median. For a focal length that is roughly known,
            such as one from EXIF, 0.05 is about five per cent.
        """
        width, height = integer(width, "width", 1), integer(height, "height", 1)
        focal = _USUAL_FOCAL * max(width, height)
        if focal_px is not None:
            focal = real(focal_px, "focal_px", sys.float_info.min, closed=True)
        sigma = _USUAL_SIGMA if sigma is None else real(sigma, "sigma", 0.0, _LARGEST_SIGMA)
        params = (focal, (width - 1) / 2, (height - 1) / 2)
        return cls("SIMPLE_PINHOLE", width, height, params, focal_sigma=sigma)

    def with_focal(self, focal_px: float, sigma: float | None = None) -> Camera:
        """Return this camera with the focal length `focal_px`, the mean of fx and fy, in pixels.

        It is then known, or with `sigma` the median of a prior with this standard deviation of the
        logarithm. The ratio of fx to fy stays.
        """
        focal = real(focal_px, "focal_px", sys.float_info.min, closed=True)
        ratio = focal / self.focal
        n = MODELS[self.model].num_focal
        focals = (focal,) if self.fx == self.fy else (self.fx * ratio, self.fy * ratio)
        params = (*(focals * n)[:n], *self.params[n:])
        return Camera(self.model, self.width, self.height, params, self.skew * ratio, sigma)

    @classmethod
    def from_matrix(
        cls, K: ArrayLike, width: int | None = None, height: int | None = None
    ) -> Camera:
        """Make a PINHOLE camera of a camera matrix and the image size in pixels.

        K is ``[[fx, skew, cx], [0, fy, cy], [0, 0, 1]]`` in pixels, the centre of the top-left
        pixel at (0, 0).
        """
        params, skew = _matrix_params(K, "K", "a 3x3 camera matrix")
        return cls("PINHOLE", width, height, params, skew)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Camera:
        """Make a camera of a dict as `to_dict` returns it; only model and params must be there.

        The names are COLMAP's, the numbers are taken as they are: cx and cy in the pixel
        convention of the points they are used with, as with `to_dict`. For a dict that was read
        from a COLMAP reconstruction use `from_colmap`, which shifts them.
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
        """Return the fields as they are, ready for JSON.

        params is a list; skew is left out if it is 0, focal_sigma if the focal length is known.
        """
        values = {**dataclasses.asdict(self), "params": list(self.params)}
        if not self.skew:
            del values["skew"]
        if self.focal_sigma is None:
            del values["focal_sigma"]
        return values

    @classmethod
    def from_colmap(cls, camera: object) -> Camera:
        """Convert a pycolmap.Camera or dict in COLMAP's pixels: the top-left centre is (0.5, 0.5).

        A size of 0, which is how COLMAP says "unknown", becomes None.
        """
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

        With a known size, ``pycolmap.Camera(**camera.to_colmap())`` is the same camera. COLMAP has
        no prior of a focal length; one that is unknown becomes the median of its prior.

        Raises
        ------
        ValueError
            If the camera has a skew, which COLMAP cannot express. One that is round-off, below
            1e-9 of the focal length, is dropped.
        """
        if abs(self.skew) > _MATRIX_TOLERANCE * max(self.fx, self.fy):
            raise ValueError(f"camera must have no skew in COLMAP's form, got skew={self.skew:g}")
        values = _shift_pixels(self, COLMAP_PIXEL_CENTRE).to_dict()
        values.pop("skew", None)
        values.pop("focal_sigma", None)
        return values

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
        """Map undistorted points (x/z, y/z) of the normalised plane, (N, 2), to pixels (N, 2).

        NaN gives NaN.
        """
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

        The result is NaN for pixels that are not finite and where the distortion cannot be
        inverted: beyond the radius at which the image folds over or the distortion has a pole, and
        from 90 degrees off the axis on for a fisheye.
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
        """Return the camera of the image resized by sx (and sy, if another) in x and y.

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
        width = None if self.width is None else max(1, round(self.width * sx))
        height = None if self.height is None else max(1, round(self.height * sy))
        params = (*focal, *principal, *distortion)
        return Camera(model, width, height, params, self.skew * sx, self.focal_sigma)

    def turned(self, axes: ArrayLike) -> Camera:
        """Return the camera of the image after quarter turns and mirroring.

        Parameters
        ----------
        axes : (2, 2) array_like
            Maps directions (x, y) in this image to directions in the other one: 0 and 1 or -1 in
            every row and column.

        Raises
        ------
        ValueError
            If the camera has no size, or a skew that would stand below the diagonal.
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
        params = list(self.params)
        n = MODELS[self.model].num_focal
        params[n : n + 2] = (cy, cx) if swapped else (cx, cy)
        if n == 2 and swapped:
            params[:2] = self.fy, self.fx
        if "p1" in MODELS[self.model].fields:
            # The tangential distortion moves x by r^2 q + 2 (q x) x, where q is (p2, p1).
            at = MODELS[self.model].fields.index("p1")
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
    """Size of a pixel on the normalised planes of two cameras: the mean of their 1/f.

    It carries a threshold in pixels to the normalised planes, one number for both images.
    """
    return 0.5 * (1.0 / camera0.focal + 1.0 / camera1.focal)


def working_pixel(camera0: Camera, camera1: Camera, scale0: ArrayLike, scale1: ArrayLike) -> float:
    """Return how many pixels of the images as given one pixel at working size is.

    A threshold in pixels becomes an angle by the mean of 1/f. Times this factor that angle is what
    it is at working size, also where the two images are resized differently. A scale is the length
    at working size over that of the image as given, along x and y.
    """
    working = [c.scaled(*np.asarray(s)) for c, s in ((camera0, scale0), (camera1, scale1))]
    return normalised_pixel(*working) / normalised_pixel(camera0, camera1)


def as_camera(value: object, name: str) -> Camera:
    """Convert a Camera, (3, 3) matrix, dict or pycolmap.Camera; errors begin with `name`.

    A dict has the keys of `Camera.to_dict`, or fx, fy, cx, cy and maybe width and height; four
    numbers are fx, fy, cx, cy. All of these are in the pixel convention of the points they come
    with, without any shift. A pycolmap.Camera follows COLMAP and is shifted by half a pixel.
    """
    if isinstance(value, Camera):
        return value
    colmap = hasattr(value, "params") and (hasattr(value, "model") or hasattr(value, "model_name"))
    try:
        if isinstance(value, Mapping):
            return Camera.from_dict(_by_model(value))
        if isinstance(value, list | tuple | np.ndarray) and _is_row_of_four(value):
            return Camera.from_dict({"model": "PINHOLE", "params": value})
        if colmap:
            return Camera.from_colmap(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a valid camera, but its {error}") from error
    params, skew = _matrix_params(value, name, _ACCEPTED)
    return Camera("PINHOLE", None, None, params, skew)


def _is_row_of_four(value: Sequence[Any] | np.ndarray) -> bool:
    if isinstance(value, np.ndarray):
        return value.shape == (4,)
    return len(value) == 4 and not any(map(np.iterable, value))


def _by_model(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn a dict with fx, fy, cx and cy into that of the model PINHOLE."""
    if "fx" not in values:
        return values
    rest = {key: value for key, value in values.items() if key not in _PINHOLE}
    return {"model": "PINHOLE", **rest, "params": [values.get(key) for key in _PINHOLE]}


def _shift_pixels(camera: Camera, shift: float) -> Camera:
    """Return the camera for pixels that are all moved by `shift` in x and y."""
    n = MODELS[camera.model].num_focal
    principal = (camera.cx + shift, camera.cy + shift)
    params = (*camera.params[:n], *principal, *camera.distortion)
    return Camera(
        camera.model, camera.width, camera.height, params, camera.skew, camera.focal_sigma
    )


def _checked_params(model: str, params: object) -> tuple[float, ...]:
    """Check the parameters of a known model."""
    fields = MODELS[model].fields
    want = f"the {len(fields)} finite numbers {', '.join(fields)} of {model}"
    values = float_array(params, "params", want, (len(fields),)).tolist()
    num_focal = MODELS[model].num_focal
    for field, value in zip(fields[:num_focal], values, strict=False):
        # A focal length that is not a normal number has no finite inverse.
        if value < sys.float_info.min:
            raise ValueError(f"params must have a positive focal length {field}, got {value}")
    for field, value in zip(fields[num_focal + 2 :], values[num_focal + 2 :], strict=True):
        if abs(value) > _LARGEST_COEFFICIENT:
            raise ValueError(
                f"params must have a distortion {field} of size up to {_LARGEST_COEFFICIENT:g}, "
                f"got {value}"
            )
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


@dataclasses.dataclass(frozen=True)
class _Lens:
    """Model of a lens: this one without distortion, the others derived from it.

    `distort` maps undistorted points (N, 2) of the normalised plane to distorted ones with the
    coefficients k, `undistort` maps them back and returns NaN where there is no inverse. `fields`
    are the names of the parameters in COLMAP's order: f or fx and fy, then cx and cy, then k.
    """

    fields: tuple[str, ...]

    @property
    def num_focal(self) -> int:
        return 1 if self.fields[0] == "f" else 2

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:  # noqa: ARG002
        return xn.copy()

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:  # noqa: ARG002
        return xd.copy()


class _RadialLens(_Lens):
    """Polynomial radial distortion, ``xd = x (1 + k1 r^2 + k2 r^4)`` with ``r = |x|``."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        s = np.sum(xn * xn, axis=1, keepdims=True)
        return xn * _even(s, k)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        rd = _norm(xd)
        limit = _first_critical_radius(k)
        # Without a fold the factor 1 + k1 s + k2 s^2 is at least 4/9, and at least 4/9 of every
        # term of it that is positive; each gives an upper bound on the radius.
        upper = 2.25 * rd
        for power, coefficient in enumerate(k, start=1):
            if coefficient > 0.0 and math.isinf(limit):
                bound = (2.25 * rd / coefficient) ** (1.0 / (2 * power + 1))
                upper = np.minimum(upper, 1.001 * bound)
        r = _invert_odd(rd, k, limit, np.minimum(upper, limit))
        return xd * _ratio(r, rd)


class _OpenCvLens(_Lens):
    """Radial and tangential distortion of OpenCV, k1, k2, p1, p2 and perhaps k3, k4, k5, k6.

    The radial factor is ``N / D = (1 + k1 s + k2 s^2 + k3 s^3) / (1 + k4 s + k5 s^2 + k6 s^3)``
    with ``s = |x|^2``. From the first zero of D on there is no inverse.
    """

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        p1, p2 = k[2], k[3]
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial, _ = self._radial(s, k)
        return np.stack(
            [
                x * radial + 2.0 * p1 * x * y + p2 * (s + 2.0 * x * x),
                y * radial + 2.0 * p2 * x * y + p1 * (s + 2.0 * y * y),
            ],
            axis=1,
        )

    def jacobian(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        """Return the derivative (N, 2, 2) of `distort` at xn (N, 2)."""
        p1, p2 = k[2], k[3]
        x, y = xn[:, 0], xn[:, 1]
        s = x * x + y * y
        radial, slope = self._radial(s, k)
        mixed = slope * x * y + 2.0 * p1 * x + 2.0 * p2 * y
        return np.stack(
            [
                np.stack([radial + slope * x * x + 2.0 * p1 * y + 6.0 * p2 * x, mixed], axis=1),
                np.stack([mixed, radial + slope * y * y + 2.0 * p2 * x + 6.0 * p1 * y], axis=1),
            ],
            axis=1,
        )

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        start = self._undistort_radial(xd, k)
        if k[2] == 0.0 and k[3] == 0.0:
            return start
        start = np.where(np.isfinite(start), start, xd)
        result, good = self._solve(xd, start, k)
        if not good.all():
            # From far away Newton's method may land beyond the fold or nowhere. Following the
            # solution outwards from the centre stays on the near side, at more cost.
            rest = ~good & np.isfinite(xd).all(axis=1)
            x = np.zeros_like(xd[rest])
            for step in range(1, _CONTINUATION_STEPS):
                x, _ = self._newton(xd[rest] * (step / _CONTINUATION_STEPS), x, k, iterations=6)
            result[rest], good[rest] = self._solve(xd[rest], x, k)
        result[~good] = np.nan
        return result

    def _radial(self, s: FloatArray, k: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return the radial factor at squared radii s and twice its derivative by s."""
        N, D = _fraction(k)
        bottom = _even(s, D[1:])
        factor = _even(s, N[1:]) / bottom
        return factor, 2.0 * (_slope(s, N) - factor * _slope(s, D)) / bottom

    def _undistort_radial(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        """Invert the radial part alone, NaN from the fold or the pole on."""
        if len(k) == 4:
            return _RadialLens(()).undistort(xd, k[:2])
        N, D = _fraction(k)
        length = _norm(xd)
        y = np.where(np.isfinite(length), length, 0.0)
        fold = _positive_roots(_growth(N, D))
        limit = min([self._pole(k), *np.sqrt(fold)])

        def excess(r: FloatArray) -> tuple[FloatArray, FloatArray]:
            # D times (distorted radius - y): of the same sign before the pole, finite at it.
            s = r * r
            top, bottom = _even(s, N[1:]), _even(s, D[1:])
            slope = top + 2.0 * s * _slope(s, N) - 2.0 * y * r * _slope(s, D)
            return r * top - y * bottom, slope

        low, high = _bracket(excess, y, limit)
        found = np.isfinite(length) & (excess(high)[0] >= 0.0)
        r = _solve_growing(excess, high, low, high)
        factor, _ = self._radial(r * r, k)
        found &= np.abs(r * factor - y) <= _RADIAL_TOLERANCE * y
        return xd * _ratio(np.where(found, r, np.nan), length)

    def _least_radial(self, radius: float, k: Sequence[float]) -> float:
        """Return the least eigenvalue of the radial part's derivative up to a radius."""
        if radius >= self._pole(k):
            return -math.inf
        steep = [r for r in self._steep_radii(k) if r < radius]
        s = np.square([0.0, *steep, radius])
        factor, slope = self._radial(s, k)
        return float(np.min([factor, factor + s * slope]))

    def _pole(self, k: Sequence[float]) -> float:
        """Return the first radius at which the distortion is infinite."""
        return math.sqrt(min(_positive_roots(_fraction(k)[1]), default=math.inf))

    def _steep_radii(self, k: Sequence[float]) -> Sequence[float]:
        """Return the radii at which an eigenvalue of the radial part's derivative is extreme.

        The eigenvalues are ``N / D`` and ``G / D^2``, where G is `_growth`.
        """
        N, D = _fraction(k)
        G = _growth(N, D)
        of_factor = np.convolve(_by_log(N), D) - np.convolve(N, _by_log(D))
        of_growth = np.convolve(_by_log(G), D) - 2.0 * np.convolve(G, _by_log(D))
        roots = np.concatenate([_positive_roots(of_factor), _positive_roots(of_growth)])
        return [float(r) for r in np.sqrt(roots)]

    def _solve(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float]
    ) -> tuple[FloatArray, BoolArray]:
        """Solve ``distort(x) = xd`` and return which solutions are exact and before the fold."""
        x, step = self._newton(xd, start, k, iterations=_PLANE_ITERATIONS)
        residual = _norm(self.distort(x, k) - xd)
        good = (_norm(step) <= 1e-13 * _norm(x)) | (residual <= 4.0 * _EPS * _norm(xd))
        return x, good & self._before_fold(x, k)

    def _before_fold(self, x: FloatArray, k: Sequence[float]) -> BoolArray:
        """Return which points (N, 2) can be reached from the centre without crossing the fold.

        The derivative is symmetric, so the map is one-to-one on every convex set on which the
        derivative is positive definite. Its eigenvalues are those of the radial part, plus at
        least ``-6 |p| r`` from the tangential part.
        """
        radius = float(np.fmax.reduce(_norm(x), initial=0.0))
        tangential = 6.0 * math.hypot(k[2], k[3]) * radius
        before = _norm(x) < self._pole(k)
        if self._least_radial(radius, k) > tangential:
            return before
        samples = [fraction * x for fraction in np.linspace(0.0, 1.0, 33)[1:]]
        samples += [x * np.fmin(1.0, r / _norm(x))[:, None] for r in self._steep_radii(k)]
        for sample in samples:
            J = self.jacobian(sample, k)
            before &= J[:, 0, 0] * J[:, 1, 1] > J[:, 0, 1] * J[:, 1, 0]
            before &= J[:, 0, 0] + J[:, 1, 1] > 0.0
        return before

    def _newton(
        self, xd: FloatArray, start: FloatArray, k: Sequence[float], *, iterations: int
    ) -> tuple[FloatArray, FloatArray]:
        """Run Newton's method with step control, return the points and their last full steps."""
        x = start
        pole = self._pole(k)
        error = self.distort(x, k) - xd
        damping = np.ones(len(x))
        step = np.zeros_like(x)
        for _ in range(iterations):
            J = self.jacobian(x, k)
            a, b, c, d = J[:, 0, 0], J[:, 0, 1], J[:, 1, 0], J[:, 1, 1]
            det = a * d - b * c
            step = np.stack(
                [
                    (d * error[:, 0] - b * error[:, 1]) / det,
                    (a * error[:, 1] - c * error[:, 0]) / det,
                ],
                axis=1,
            )
            candidate = x - damping[:, None] * step
            candidate_error = self.distort(candidate, k) - xd
            better = (_norm(candidate_error) < _norm(error)) & (_norm(candidate) < pole)
            x = np.where(better[:, None], candidate, x)
            error = np.where(better[:, None], candidate_error, error)
            damping = np.where(better, np.minimum(1.0, 2.0 * damping), 0.25 * damping)
            exact = _norm(error) <= 2.0 * _EPS * _norm(xd)
            # Either the residual is round-off, or no step in this direction can improve it.
            if np.all(exact | (_norm(step) <= _EPS * _norm(x)) | ~(damping >= 1e-6)):
                break
        return x, step


class _FisheyeLens(_Lens):
    """Equidistant fisheye of OpenCV, ``|xd| = a (1 + k1 a^2 + ... + k4 a^8)``, a = atan|x|."""

    def distort(self, xn: FloatArray, k: Sequence[float]) -> FloatArray:
        r = _norm(xn)
        angle = np.arctan(r)
        return xn * _ratio(angle * _even(angle * angle, k), r)

    def undistort(self, xd: FloatArray, k: Sequence[float]) -> FloatArray:
        rd = _norm(xd)
        limit = min(_first_critical_radius(k), 0.5 * math.pi)
        angle = _invert_odd(rd, k, limit, np.full_like(rd, limit))
        return xd * _ratio(np.tan(angle), rd)


def _norm(x: FloatArray) -> FloatArray:
    """Return the lengths (N,) of the rows of x (N, 2)."""
    return np.hypot(x[:, 0], x[:, 1])


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide two radii that go to zero together, as a column (N, 1) that is 1 at zero."""
    ratio = np.ones_like(numerator)
    np.divide(numerator, denominator, out=ratio, where=denominator != 0.0)
    return ratio[:, None]


def _fraction(k: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coefficients (4,) of numerator and denominator by powers of s, of k1, k2, p1, p2, k3, ..."""
    k3, k4, k5, k6 = k[4:] or (0.0,) * 4
    return (1.0, k[0], k[1], k3), (1.0, k4, k5, k6)


def _by_log(c: Sequence[float] | FloatArray) -> FloatArray:
    """Coefficients of ``s dc/ds``."""
    return np.asarray(np.arange(len(c)) * np.asarray(c), dtype=np.float64)


def _growth(N: Sequence[float], D: Sequence[float]) -> FloatArray:
    """Coefficients (7,) of ``D^2 d(r N / D) / dr`` by powers of ``s = r^2``."""
    change = np.convolve(_by_log(N), D) - np.convolve(N, _by_log(D))
    return np.asarray(np.convolve(N, D) + 2.0 * change, dtype=np.float64)


def _slope(s: FloatArray, c: Sequence[float]) -> FloatArray:
    """Evaluate the derivative ``c1 + 2 c2 s + 3 c3 s^2`` of a cubic polynomial."""
    return c[1] + s * (2.0 * c[2] + s * (3.0 * c[3]))


def _even(s: FloatArray, k: Sequence[float]) -> FloatArray:
    """Evaluate ``1 + k1 s + k2 s^2 + ...``."""
    value = np.zeros_like(s)
    for coefficient in reversed(k):
        value = (value + coefficient) * s
    return 1.0 + value


def _slope_coefficients(k: Sequence[float]) -> tuple[float, ...]:
    """Coefficients of the derivative ``1 + 3 k1 s + 5 k2 s^2 + ...`` of the odd polynomial."""
    return tuple((2 * power + 1) * c for power, c in enumerate(k, start=1))


def _first_critical_radius(k: Sequence[float]) -> float:
    """Return the smallest r > 0 at which ``r (1 + k1 r^2 + ...)`` stops growing, or infinity."""
    return math.sqrt(min(_positive_roots([1.0, *_slope_coefficients(k)]), default=math.inf))


def _positive_roots(c: ArrayLike) -> FloatArray:
    """Return the s > 0 at which ``c0 + c1 s + c2 s^2 + ...`` is zero.

    The roots are sought in ``w = 1 / s``, for which the polynomial of a distortion has leading
    coefficient 1 whatever its k are, zero included.
    """
    c = np.array(c, dtype=np.float64)
    # Quotients of the rest stay finite.
    c[np.abs(c) < 1e-200 * np.max(np.abs(c))] = 0.0
    w = np.roots(c)
    # A double root, where the slope only touches zero, splits into a pair by round-off.
    real = w.real[(np.abs(w.imag) <= 1e-7 * np.abs(w)) & (w.real > _LARGEST_RADIUS**-2)]
    return np.asarray(1.0 / real, dtype=np.float64)


def _invert_odd(y: FloatArray, k: Sequence[float], limit: float, upper: FloatArray) -> FloatArray:
    """Solve ``r (1 + k1 r^2 + k2 r^4 + ...) = y`` for r in [0, limit), NaN where there is none."""
    slope = _slope_coefficients(k)
    reach = _LARGEST_RADIUS
    if limit < math.inf:
        reach = limit * float(_even(np.array(limit * limit), k))
    inside = y < reach
    target = np.where(inside, y, 0.0)

    def excess(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        s = r * r
        return r * _even(s, k) - target, _even(s, slope)

    high = np.where(inside, upper, 0.0)
    r = _solve_growing(excess, np.minimum(target, high), np.zeros_like(y), high)
    return np.where(inside & np.isfinite(y), r, np.nan)


def _bracket(excess: Excess, y: FloatArray, limit: float) -> tuple[FloatArray, FloatArray]:
    """Find radii low and high around the root of `excess`, at most `limit`, by factors of two."""
    high = np.minimum(y, limit)
    for _ in range(_BRACKET_STEPS):
        short = (excess(high)[0] < 0.0) & (high < min(limit, _LARGEST_RADIUS))
        if not short.any():
            break
        high = np.where(short, np.minimum(2.0 * high, limit), high)
    low = high
    for _ in range(_BRACKET_STEPS):
        far = excess(low)[0] > 0.0
        if not far.any():
            break
        low = np.where(far, 0.5 * low, low)
    return low, np.minimum(high, np.where(low < high, 2.0 * low, high))


def _solve_growing(
    excess: Excess, start: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Find the zeros of a function that returns its values and slopes and grows at them.

    Newton's method inside a shrinking bracket [low, high], with bisection where Newton leaves it
    or is slow.
    """
    r = start
    previous = high - low
    done = high == 0.0
    for _ in range(_RADIUS_ITERATIONS):
        value, slope = excess(r)
        low = np.where(value <= 0.0, r, low)
        high = np.where(value >= 0.0, r, high)
        step = value / slope
        newton = r - step
        use = (newton >= low) & (newton <= high) & (np.abs(step) <= 0.5 * previous)
        following = np.where(use, newton, 0.5 * (low + high))
        previous = np.abs(following - r)
        r = np.where(done, r, following)
        done |= previous <= 2.0 * _EPS * r
        if done.all():
            break
    return r


MODELS: dict[str, _Lens] = {
    "SIMPLE_PINHOLE": _Lens(("f", "cx", "cy")),
    "PINHOLE": _Lens(("fx", "fy", "cx", "cy")),
    "SIMPLE_RADIAL": _RadialLens(("f", "cx", "cy", "k")),
    "RADIAL": _RadialLens(("f", "cx", "cy", "k1", "k2")),
    "OPENCV": _OpenCvLens(("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")),
    "OPENCV_FISHEYE": _FisheyeLens(("fx", "fy", "cx", "cy", "k1", "k2", "k3", "k4")),
    "FULL_OPENCV": _OpenCvLens(
        ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
    ),
}

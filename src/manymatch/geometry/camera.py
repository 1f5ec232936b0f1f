"""Cameras: pixels to the normalised plane and back."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import (
    FloatArray,
    float_array,
    integer,
    read_only,
    real,
    refusal,
    suggest,
)
from manymatch.geometry.camera_models import MODELS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# COLMAP has the centre of the top-left pixel at (0.5, 0.5), this package at (0, 0).
COLMAP_PIXEL_CENTRE = 0.5

_MATRIX_TOLERANCE = 1e-9
_LARGEST_COEFFICIENT = 1e30
_LARGEST_SCALE = 1e6
_KEYS = ("model", "width", "height", "params")
_ACCEPTED = "a Camera, a 3x3 matrix, a dict of model, width, height, params or a pycolmap.Camera"


@dataclasses.dataclass(frozen=True, init=False, repr=False, slots=True)
class Camera:
    """Calibrated camera: pixels = intrinsics of distorted points of the normalised plane z = 1.

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

    Raises
    ------
    ValueError
        If the model is unknown, the number of parameters is another, a focal length is not
        positive, or anything is not finite.

    Examples
    --------
    >>> Camera("PINHOLE", 640, 480, [500, 500, 319.5, 239.5]).focal
    500.0
    """

    model: str
    width: int | None
    height: int | None
    params: tuple[float, ...]

    def __init__(
        self, model: str, width: int | None, height: int | None, params: ArrayLike
    ) -> None:
        if (width is None) != (height is None):
            missing, given = ("width", "height") if width is None else ("height", "width")
            raise ValueError(f"{missing} must be given together with {given}, got None")
        object.__setattr__(self, "model", _checked_model(model))
        object.__setattr__(self, "width", None if width is None else integer(width, "width", 1))
        object.__setattr__(self, "height", None if height is None else integer(height, "height", 1))
        object.__setattr__(self, "params", _checked_params(self.model, params))

    @classmethod
    def from_matrix(
        cls, K: ArrayLike, width: int | None = None, height: int | None = None
    ) -> Camera:
        """Make a PINHOLE camera of a calibration matrix.

        Parameters
        ----------
        K : (3, 3) array_like
            ``[[fx, 0, cx], [0, fy, cy], [0, 0, 1]]`` in pixels, the centre of the top-left pixel
            at (0, 0), without skew.
        width, height : int, optional
            Image size in pixels.
        """
        return cls("PINHOLE", width, height, _matrix_params(K, "K"))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Camera:
        """Make a camera of a dict with the keys model, params and, if known, width and height.

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
        return cls(values["model"], values.get("width"), values.get("height"), values["params"])

    def to_dict(self) -> dict[str, Any]:
        """Return model, width, height and params (a list) as they are, ready for JSON."""
        size = {"width": self.width, "height": self.height}
        return {"model": self.model, **size, "params": list(self.params)}

    @classmethod
    def from_colmap(cls, camera: object) -> Camera:
        """Convert a camera whose pixels follow COLMAP: the top-left centre is (0.5, 0.5).

        Parameters
        ----------
        camera : pycolmap.Camera or dict
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

        With a known size, ``pycolmap.Camera(**camera.to_colmap())`` is the same camera.
        """
        return _shift_pixels(self, COLMAP_PIXEL_CENTRE).to_dict()

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
        """Calibration matrix (3, 3) in pixels, without the distortion, read-only."""
        K = np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])
        return read_only(K)

    def project(self, points: ArrayLike) -> FloatArray:
        """Map points of the normalised plane to pixels.

        Parameters
        ----------
        points : (N, 2) array_like
            Undistorted points (x/z, y/z); NaN gives NaN.

        Returns
        -------
        (N, 2) float64 ndarray
            Pixels.
        """
        xn = float_array(points, "points", "an (N, 2) array of numbers", (None, 2), finite=False)
        # Far outside the image the polynomials overflow; infinity or NaN is then the answer.
        with np.errstate(all="ignore"):
            xd = MODELS[self.model].distort(xn, self.distortion)
            return xd * (self.fx, self.fy) + (self.cx, self.cy)

    def unproject(self, points: ArrayLike) -> FloatArray:
        """Map pixels to undistorted points of the normalised plane.

        Parameters
        ----------
        points : (N, 2) array_like
            Pixels; what is not finite gives NaN.

        Returns
        -------
        (N, 2) float64 ndarray
            Points (x/z, y/z), NaN where the distortion cannot be inverted: beyond the radius at
            which the image folds over or the distortion has a pole, and from 90 degrees off the
            axis on for a fisheye.
        """
        px = float_array(points, "points", "an (N, 2) array of pixels", (None, 2), finite=False)
        px[~np.isfinite(px).all(axis=1)] = np.nan
        with np.errstate(all="ignore"):
            xd = (px - (self.cx, self.cy)) / (self.fx, self.fy)
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
        return Camera(model, width, height, (*focal, *principal, *distortion))

    def __repr__(self) -> str:
        size = "size unknown" if self.width is None else f"{self.width}x{self.height}"
        fields = MODELS[self.model].fields
        params = ", ".join(f"{n}={v:.6g}" for n, v in zip(fields, self.params, strict=True))
        return f"Camera({self.model}, {size}, {params})"


def as_camera(value: object, name: str) -> Camera:
    """Convert any accepted camera argument.

    Parameters
    ----------
    value : Camera, (3, 3) array_like, dict or pycolmap.Camera
        A matrix and a dict are in the pixel convention of the points they come with, without any
        shift. A pycolmap.Camera follows COLMAP and is shifted by half a pixel.
    name : str
        The argument's name, with which every error begins.
    """
    if isinstance(value, Camera):
        return value
    colmap = hasattr(value, "params") and (hasattr(value, "model") or hasattr(value, "model_name"))
    try:
        if isinstance(value, Mapping):
            return Camera.from_dict(value)
        if colmap:
            return Camera.from_colmap(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a valid camera, but its {error}") from error
    return Camera("PINHOLE", None, None, _matrix_params(value, name, _ACCEPTED))


def _shift_pixels(camera: Camera, shift: float) -> Camera:
    """Return the camera for pixels that are all moved by `shift` in x and y."""
    n = MODELS[camera.model].num_focal
    principal = (camera.cx + shift, camera.cy + shift)
    params = (*camera.params[:n], *principal, *camera.distortion)
    return Camera(camera.model, camera.width, camera.height, params)


def _checked_model(model: object) -> str:
    """Check the name of a model."""
    if not isinstance(model, str) or model not in MODELS:
        raise refusal("model", f"one of {', '.join(MODELS)}{suggest(model, MODELS)}", model)
    return model


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


def _matrix_params(K: object, name: str, want: str = "a 3x3 calibration matrix") -> list[float]:
    """Check a calibration matrix and return fx, fy, cx, cy."""
    matrix = float_array(K, name, want, (3, 3))
    fx, fy = float(matrix[0, 0]), float(matrix[1, 1])
    if min(fx, fy) < sys.float_info.min:
        raise ValueError(
            f"{name} must have positive focal lengths on its diagonal, got {fx} and {fy}"
        )
    if np.max(np.abs(matrix[2] - (0.0, 0.0, 1.0))) > _MATRIX_TOLERANCE:
        raise ValueError(f"{name} must have the last row [0, 0, 1], got {matrix[2].tolist()}")
    for row, column in ((0, 1), (1, 0)):
        if abs(matrix[row, column]) > _MATRIX_TOLERANCE * max(fx, fy):
            raise ValueError(
                f"{name} must have no skew, got {matrix[row, column]} in row {row}, column {column}"
            )
    return [fx, fy, float(matrix[0, 2]), float(matrix[1, 2])]

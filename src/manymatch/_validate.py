"""Checks that turn arguments into arrays and numbers of one known type.

Every function takes the argument's name and raises `ValueError` with one sentence that names the
argument, what is wanted and what was given.
"""

from __future__ import annotations

import importlib
import math
import numbers
import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Shape: TypeAlias = tuple[int | None, ...]

INT32_MAX = 2**31 - 1

#: Methods of the estimator; association takes them too, since each needs its own graph.
Method: TypeAlias = Literal["auto", "hcm-mcm", "hcm", "mcm", "cm"]
METHODS: tuple[str, ...] = get_args(Method)


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 match", "2,048 matches"."""
    noun = singular if number == 1 else plural or f"{singular}s"
    return f"{number:,} {noun}"


def describe(value: object) -> str:
    """Say in a few words what a value is, for the "got ..." part of an error."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return describe(value.item())
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of length {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"a value of type {type(value).__name__}"


def refusal(name: str, want: str, value: object) -> ValueError:
    """Make the error "<name> must be <want>, got <value>"."""
    return ValueError(f"{name} must be {want}, got {describe(value)}")


def suggest(name: object, known: Iterable[str]) -> str:
    """Return ", did you mean 'x'" if a known name is close to `name`, else nothing."""
    import difflib  # needed for errors only

    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f", did you mean {close[0]!r}" if close else ""


def choice(value: object, name: str, known: Iterable[str]) -> str:
    """Check that a value is one of a few names."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        want = f"one of {', '.join(map(repr, names))}"
        raise ValueError(f"{name} must be {want}, got {describe(value)}{suggest(value, names)}")
    return value


def checked_method(method: object) -> Method:
    """Check the name of a method."""
    return choice(method, "method", METHODS)  # type: ignore[return-value]


def flag(value: object, name: str) -> bool:
    """Check a yes or no."""
    if not isinstance(value, bool | np.bool_):
        raise refusal(name, "True or False", value)
    return bool(value)


def _to_array(value: object, name: str, want: str) -> NDArray[Any]:
    """Convert to an array of any dtype, refusing ragged and masked input.

    A list of `cv2.KeyPoint` becomes their pixels.
    """
    if isinstance(value, list | tuple) and value and hasattr(value[0], "pt"):
        value = [getattr(point, "pt", point) for point in value]
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} must be {want}, got a masked array with masked values")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name} must be {want}, got {describe(value)} ({error})") from error


def _with_shape(array: NDArray[Any], name: str, want: str, shape: Shape) -> NDArray[Any]:
    """Check the shape, where None matches any length and an empty list any empty array."""
    if array.shape == (0,) and shape[0] in (None, 0):
        return array.reshape(tuple(n or 0 for n in shape))
    fits = array.ndim == len(shape) and all(
        n is None or n == m for n, m in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise refusal(name, want, array)
    return array


def number_array(value: object, name: str, want: str, shape: Shape) -> NDArray[Any]:
    """Convert to an array of integers or floats of a shape."""
    array = _with_shape(_to_array(value, name, want), name, want, shape)
    if array.dtype.kind not in "fiu":
        raise refusal(name, want, array)
    return array


def _raise_first(array: NDArray[Any], bad: BoolArray, name: str, want: str) -> None:
    """Raise for the first row in which `bad` holds anywhere, showing the row; else return."""
    if not bad.any():
        return
    rows = bad.any(axis=tuple(range(1, bad.ndim))) if bad.ndim > 1 else bad
    row = int(np.argmax(rows))
    raise ValueError(f"{name} must hold {want}, got {array[row].tolist()} in row {row}")


def float_array(
    value: object, name: str, want: str, shape: Shape, *, finite: bool = True
) -> FloatArray:
    """Copy anything NumPy reads as integers or floats to a C-contiguous float64 array.

    `name` and `want` are the argument's name and what it should be, for the error sentence. In
    `shape` None stands for a free length. NaN and infinity are refused if `finite`.
    """
    array = number_array(value, name, want, shape)
    with np.errstate(over="ignore"):
        result = np.array(array, dtype=np.float64, order="C")
    if finite:
        _raise_first(result, ~np.isfinite(result), name, "finite numbers")
    return result


def int_array(value: object, name: str, want: str, shape: Shape) -> IndexArray:
    """Copy to a C-contiguous int64 array; floats are taken if all of them are whole numbers."""
    array = number_array(value, name, want, shape)
    if array.dtype.kind == "f":
        # NaN fails the comparison with floor, infinity the one of size; float16 overflows in it.
        with np.errstate(over="ignore"):
            whole = (np.floor(array) == array) & (np.abs(array) < 2.0**63)
        _raise_first(array, ~whole, name, "whole numbers")
    elif array.dtype == np.uint64:
        _raise_first(array, array > np.uint64(2**63 - 1), name, "numbers below 2**63")
    return np.array(array, dtype=np.int64, order="C")


def bool_array(value: object, name: str, want: str, shape: Shape) -> BoolArray:
    """Copy to a boolean array; numbers are refused, since an index list is easily meant."""
    array = _with_shape(_to_array(value, name, want), name, want, shape)
    if array.dtype != np.bool_ and array.size:
        raise refusal(name, want, array)
    return np.array(array, dtype=np.bool_, order="C")


def within(array: NDArray[Any], low: float, high: float, name: str, want: str) -> None:
    """Check that every entry is in [low, high]; the error shows the first row that is not."""
    _raise_first(array, ~((array >= low) & (array <= high)), name, want)


def notice_swapped(
    points: FloatArray, width: float | None, height: float | None, name: str
) -> None:
    """Warn if keypoints lie outside an image of (width, height) but inside (height, width)."""
    if width is None or height is None:
        return
    x, y = points.max(axis=0, initial=0.0).tolist()
    # Keypoints may lie a pixel outside.
    if (x > width + 0.5 or y > height + 0.5) and x < height + 0.5 and y < width + 0.5:
        warnings.warn(
            f"{name} must have width and height in this order, got {width:g} x {height:g} for "
            f"keypoints up to ({x:g}, {y:g}): the two seem to be swapped",
            stacklevel=3,
        )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Forbid writing to an array that this package owns, and return it."""
    array.flags.writeable = False
    return array


def integer(value: object, name: str, low: int, high: int | None = None) -> int:
    """Return a Python int in [low, high]; booleans and floats are refused."""
    want = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, bool | np.bool_):
        raise refusal(name, want, value)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise refusal(name, want, value) from None
    if number < low or (high is not None and number > high):
        raise refusal(name, want, number)
    return number


def real(
    value: object,
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    closed: bool = False,
) -> float:
    """Return a finite Python float in (low, high), or in [low, high] if `closed`."""
    if math.isinf(low) and math.isinf(high):
        want = "a finite number"
    elif math.isinf(high):
        want = f"a finite number {'of at least' if closed else 'above'} {low:g}"
    else:
        want = f"a number in {'[' if closed else '('}{low:g}, {high:g}{']' if closed else ')'}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise refusal(name, want, value)
    try:
        number = float(value)
    except OverflowError:
        raise refusal(name, want, value) from None
    inside = low <= number <= high if closed else low < number < high
    if not (math.isfinite(number) and inside):
        raise refusal(name, want, number)
    return number


def require(module: str, what: str, extra: str, otherwise: Callable[[], str] = str) -> Any:
    """Import a package, or say in one sentence what needs it and how to get it.

    `what` is the subject of the sentence, `extra` the extra of this package that brings the
    module, and `otherwise` makes the end of the sentence: what one can do without it.
    """
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # The package is there, but one of its own dependencies is missing.
        if error.name is not None and error.name.partition(".")[0] != top:
            raise
        name = "Pillow" if top == "PIL" else top
        raise ModuleNotFoundError(
            f'{what} needs {name}: pip install "manymatch[{extra}]"{otherwise()}', name=top
        ) from error

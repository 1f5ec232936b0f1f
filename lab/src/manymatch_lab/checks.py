"""Checks of arguments: errors name the argument, say what is wanted and what was given."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Shape: TypeAlias = tuple[int | None, ...]


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 pair", "2,048 pairs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def refusal(name: str, want: str, value: object) -> ValueError:
    """Make the error "<name> must be <want>, got <value>"."""
    if isinstance(value, np.ndarray) and value.ndim:
        given = f"an array of shape {value.shape} and dtype {value.dtype}"
    elif isinstance(value, list | tuple):
        given = f"a {type(value).__name__} of length {len(value)}"
    else:
        given = repr(value.item() if isinstance(value, np.ndarray) else value)
        given = given if len(given) <= 60 else f"a value of type {type(value).__name__}"
    return ValueError(f"{name} must be {want}, got {given}")


def suggest(name: object, known: Iterable[str]) -> str:
    """Return ", did you mean 'x'" if a known name is close to `name`, else nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f", did you mean {close[0]!r}" if close else ""


def choice(value: object, name: str, known: Iterable[str]) -> str:
    """Check that a value is one of a few names."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        error = refusal(name, f"one of {', '.join(map(repr, names))}", value)
        raise ValueError(f"{error}{suggest(value, names)}")
    return value


def integer(value: object, name: str, low: int, high: int | None = None) -> int:
    """Return a Python int in [low, high]; booleans and floats are refused."""
    want = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise refusal(name, want, value) from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise refusal(name, want, value)
    return number


def real(
    value: object, name: str, low: float, high: float = math.inf, *, closed: bool = False
) -> float:
    """Return a finite Python float in (low, high), or in [low, high] if `closed`."""
    if math.isinf(high):
        want = f"a finite number {'of at least' if closed else 'above'} {low:g}"
    else:
        want = f"a number in {'[' if closed else '('}{low:g}, {high:g}{']' if closed else ')'}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise refusal(name, want, value)
    number = float(value)
    if not math.isfinite(number) or not (low <= number <= high if closed else low < number < high):
        raise refusal(name, want, value)
    return number


def _array(value: object, name: str, want: str, shape: Shape, kinds: str) -> NDArray[Any]:
    """Copy anything that NumPy reads as an array of one of the kinds and of a shape."""
    try:
        array = np.array(value, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise refusal(name, want, value) from error
    if array.shape == (0,) and shape[0] is None:
        return array.reshape([n or 0 for n in shape])
    fits = array.ndim == len(shape) and all(
        n is None or n == m for n, m in zip(shape, array.shape, strict=True)
    )
    if not fits or (array.dtype.kind not in kinds and array.size):
        raise refusal(name, want, array)
    return array


def float_array(
    value: object, name: str, want: str, shape: Shape, *, finite: bool = True
) -> FloatArray:
    """Copy numbers to a float64 array of a shape, in which None stands for any length."""
    result: FloatArray = _array(value, name, want, shape, "fiu").astype(np.float64)
    if finite and not np.isfinite(result).all():
        raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    return result


def int_array(value: object, name: str, want: str, shape: Shape) -> IndexArray:
    """Copy whole numbers to an int64 array of a shape."""
    return _array(value, name, want, shape, "iu").astype(np.int64)


def bool_array(value: object, name: str, want: str, shape: Shape) -> BoolArray:
    """Copy booleans to an array of a shape; numbers are refused."""
    return _array(value, name, want, shape, "b").astype(np.bool_)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Forbid writing to an array, and return it."""
    array.flags.writeable = False
    return array

"""What the machine and the installation have: cores, and packages that only some parts need."""

from __future__ import annotations

import importlib
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_OPENCV_NO_MEMORY = -4
_current = threading.local()


def usable_cores() -> int:
    """Return the number of cores that this thread may use: all of the process, or its share."""
    several = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if several else os.cpu_count() or 1
    return max(1, cores // getattr(_current, "workers", 1))


def share_cores(workers: int) -> None:
    """Leave this thread one of so many parts of the cores, as the others compute as well."""
    _current.workers = workers


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is a lack of memory, for which OpenCV and torch have their own."""
    kind = type(error)
    if kind is SystemError and error.__cause__ is not None:
        # Of a function in C that does not see the lack and returns a result.
        return out_of_memory(error.__cause__)
    opencv = kind.__module__ == "cv2" and getattr(error, "code", None) == _OPENCV_NO_MEMORY
    return isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError" or opencv


def require(module: str, what: str, extra: str, otherwise: Callable[[], str] = str) -> Any:
    """Import a package, or say in one sentence what needs it and how to get it.

    `what` is the subject of the sentence, `extra` the extra of this package that brings the
    module, and `otherwise` makes the end of the sentence: what one can do without it.
    """
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Something that an installed package lacks is another matter.
        if error.name is not None and error.name.partition(".")[0] != top:
            raise
        name = "Pillow" if top == "PIL" else top
        raise ModuleNotFoundError(
            f'{what} needs {name}: pip install "manymatch[{extra}]"{otherwise()}', name=top
        ) from error

"""Optional packages of the detectors."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, detector: str) -> Any:
    """Import a module, or say which command installs what the detector needs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the detector {detector!r} needs {module.split('.')[0]}, which is not installed: "
            'pip install "manymatch[features]"'
        ) from error

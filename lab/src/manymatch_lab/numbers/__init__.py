"""The numbers of the paper, to stand beside ours."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def paper_numbers(name: str) -> dict[str, Any]:
    """Return what the paper reports, by the name of its file in this folder."""
    path = resources.files(__name__) / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))

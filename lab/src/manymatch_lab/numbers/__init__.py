"""The numbers of the paper, to stand beside ours."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from manymatch_lab.checks import suggest


def paper_names() -> list[str]:
    """Names of the figures and tables whose numbers are here."""
    folder = resources.files("manymatch_lab") / "numbers"
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


@cache
def paper_numbers(name: str) -> dict[str, Any]:
    """Return what the paper reports, by the name of its file in ``numbers``."""
    known = paper_names()
    if name not in known:
        raise ValueError(
            f"name must be one of {', '.join(known)}, got {name!r}{suggest(name, known)}"
        )
    path = resources.files("manymatch_lab") / "numbers" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))

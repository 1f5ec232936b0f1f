"""Packages that only some parts need, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, what: str, extra: str, otherwise: str = "") -> Any:
    """Import a package, or say in one sentence what needs it and how to get it.

    Parameters
    ----------
    module : str
        What to import.
    what : str
        What needs it, the subject of the sentence.
    extra : str
        Extra of this package that brings it.
    otherwise : str
        What one can do without it.
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
            f'{what} needs {name}: pip install "manymatch[{extra}]"{otherwise}', name=top
        ) from error

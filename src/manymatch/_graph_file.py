"""The .npz file of an association graph: written whole or not at all, read with suspicion."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch import _files
from manymatch._validate import integer, refusal

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = "manymatch.AssociationGraph"
VERSION = 1
REQUIRED = ("points0", "points1", "edges", "num_duplicates")
OPTIONAL = ("similarity", "rank")
_WANT = "a graph file written by AssociationGraph.save"


def unreadable(path: object, reason: str) -> ValueError:
    """Make the one error that every unusable file gives."""
    return _files.unreadable(path, _WANT, reason)


def write(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields that are not None, under the given name and only when complete."""
    content: dict[str, Any] = {
        name: np.asarray(value)
        for name, value in {"format": FORMAT, "version": VERSION, **fields}.items()
        if value is not None
    }
    _files.write_whole(path, lambda f: np.savez_compressed(f, allow_pickle=False, **content))


def read(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read the fields of a graph file; their content is still to be checked.

    Raises
    ------
    ValueError
        If the file does not exist, is damaged, is something else or lacks a field.
    """
    source = _files.as_path(path)
    try:
        return _read_fields(source)
    except FileNotFoundError as error:
        raise unreadable(source, "there is no such file") from error
    except _files.DAMAGE as error:
        raise unreadable(source, str(error) or type(error).__name__) from error


def _read_fields(source: Path) -> dict[str, NDArray[Any]]:
    """Read the fields; whatever is wrong with the file raises one of `_files.DAMAGE`."""
    # From memory, so that no file stays open behind an archive that cannot be read.
    data = source.read_bytes()
    if not data.startswith(b"PK"):
        raise ValueError("it is no .npz file")
    with np.load(BytesIO(data), allow_pickle=False) as content:
        if "format" not in content or content["format"].tolist() != FORMAT:
            raise ValueError("it is an .npz file of something else")
        if "version" not in content:
            raise ValueError("it lacks the field 'version'")
        version = integer(content["version"].tolist(), "version", 1)
        if version > VERSION:
            raise ValueError(f"it has version {version}, and up to {VERSION} can be read")
        for name in REQUIRED:
            if name not in content:
                raise ValueError(f"it lacks the field {name!r}")
        fields = {name: content[name] for name in (*REQUIRED, *OPTIONAL) if name in content}
    for name, field in fields.items():
        # A member of the archive that is no array comes back as bytes.
        if not isinstance(field, np.ndarray):
            raise refusal(name, "an array", field)
    return fields

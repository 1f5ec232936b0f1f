"""Features on disk, found again only by everything that went into them.

A cache is a folder with one HDF5 file per entry, named by the hash of its key. An entry is written
under another name and renamed when complete, so several processes may share a folder without locks
and a killed one leaves nothing half-written. What was damaged afterwards is noticed by a checksum,
and computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path, write_whole
from manymatch._optional import require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

# Raised when the meaning of an entry changes; entries of other formats are never read.
FORMAT = 1


class FeatureCache:
    """A folder of arrays by key.

    Parameters
    ----------
    folder : path
        Made when the first entry is written.
    """

    def __init__(self, folder: object) -> None:
        self.folder = as_path(folder, "cache")
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"cache must be a folder, got the file {str(self.folder)!r}")

    def __repr__(self) -> str:
        return f"FeatureCache({str(self.folder)!r}, {len(self)} entries)"

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("??/*.h5"))

    def path(self, key: Mapping[str, Any]) -> Path:
        """Name of the file of an entry, there or not."""
        name = hashlib.sha256(_text(key).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.h5"

    def read(self, key: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of an entry; None when it is missing, damaged or of another key."""
        h5py = _h5py()
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            with h5py.File(io.BytesIO(path.read_bytes()), "r") as file:
                attributes = dict(file.attrs)
                arrays = {name: np.asarray(dataset[()]) for name, dataset in file.items()}
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            # What h5py raises for a damaged file.
            return None
        same = attributes.get("key") == _text(key)
        return arrays if same and attributes.get("checksum") == _checksum(arrays) else None

    def write(self, key: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write an entry, in place of one that is there."""
        h5py = _h5py()
        memory = io.BytesIO()
        with h5py.File(memory, "w") as file:
            file.attrs["key"] = _text(key)
            file.attrs["checksum"] = _checksum(arrays)
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(memory.getbuffer()))


def content_hash(array: NDArray[Any]) -> str:
    """Hash an array by its values, shape and type."""
    whole = np.ascontiguousarray(array)
    digest = hashlib.sha256(f"{whole.shape} {whole.dtype.str} ".encode())
    digest.update(whole.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    parts = [f"{name} {content_hash(np.asarray(arrays[name]))}" for name in sorted(arrays)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps({"format": FORMAT, **key}, sort_keys=True, allow_nan=False)


def _h5py() -> Any:
    return require("h5py", "a feature cache", "images")

"""A folder in which features are kept: one file per image and settings.

A file is named by the hash of its key, which is everything that went into it. It is written under
another name and renamed when complete (a put at an address), so several processes may share a
folder without locks. A damaged file is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manymatch.io.files import (
    as_path,
    make_folder,
    npz_names,
    read_bytes,
    read_npz,
    write_whole,
)

# Raised when the meaning of an entry changes; others are never read.
_FORMAT = 2


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
        #: False after an entry could not be written.
        self.writable = True

    def path(self, key: Mapping[str, Any]) -> Path:
        """Name of the file of an entry, there or not."""
        name = hashlib.sha256(_text(key).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.npz"

    def read(self, key: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of an entry; None when it is missing, damaged or of another key."""
        try:
            path, want = self.path(key), "an entry of the cache"
            data = read_bytes(path, want)
            arrays = read_npz(data, path, want, npz_names(data, path, want))
            return arrays if str(arrays.pop("key")) == _text(key) else None
        except (OSError, ValueError, KeyError):
            return None

    def write(self, key: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write an entry, in place of one that is there.

        A folder that cannot be written to is warned of once, and serves as it is from then on.
        """
        if not self.writable:
            return
        memory, path = io.BytesIO(), self.path(key)
        np.savez(memory, allow_pickle=False, **{**arrays, "key": np.array(_text(key))})
        try:
            make_folder(path.parent)
            write_whole(path, lambda file: file.write(memory.getbuffer()))
        except OSError as error:
            self.writable = False
            reason = error.strerror or str(error)
            warnings.warn(
                f"the cache {str(self.folder)!r} cannot be written to ({reason}); features that it "
                "lacks are not kept",
                stacklevel=2,
            )


def content_hash(array: NDArray[Any]) -> str:
    """Hash an array by its values, shape and type."""
    whole = np.ascontiguousarray(array)
    digest = hashlib.sha256(f"{whole.shape} {whole.dtype.str} ".encode())
    digest.update(whole.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps({"format": _FORMAT, **key}, sort_keys=True, allow_nan=False)

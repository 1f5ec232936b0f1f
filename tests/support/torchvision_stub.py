"""Lets timm be imported where no torchvision fits the installed torch.

timm imports torchvision for its data pipeline, none of which an adapter uses. While `timm` is
imported, every module and name of torchvision is an empty stand-in; afterwards they are gone, so
that other libraries do not take them for the real thing.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


class _Name(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        del path, target
        if fullname.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def import_timm() -> Any:
    """Import timm, with the real torchvision if that works."""
    try:
        return importlib.import_module("timm")
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
            del sys.modules[name]
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]

"""Python in a process in which some packages seem not to be installed."""

import subprocess
import sys

_WITHOUT = """
import importlib.abc, importlib.util, sys
GONE = set({gone!r})
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
        return None
sys.meta_path.insert(0, Block())
real = importlib.util.find_spec
importlib.util.find_spec = lambda n, p=None: None if n.partition(".")[0] in GONE else real(n, p)
"""


def run_without(gone, code, *arguments, cwd=None):
    """Run code, with warnings as errors."""
    script = _WITHOUT.format(gone=tuple(gone)) + code
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)  # noqa: S603

"""The oldest versions of libraries that are promised give the numbers of the installed ones."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.features import oldest_versions  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.nightly
#: Those that a folder on the path can replace; torch is too large and too entangled for that.
REPLACED = ("transformers", "huggingface-hub", "safetensors")


def lower_bounds():
    """Oldest versions by name, as the package declares them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["optional-dependencies"]["features"]
    found = dict(re.findall(r"([\w-]+)>=([\d.]+)", " ".join(declared)))
    return {name: found[name] for name in REPLACED}


@pytest.fixture(scope="module")
def overlay():
    """A folder with the oldest versions; made once, below build/."""
    wanted = [f"{name}=={version}" for name, version in lower_bounds().items()]
    # The compiled parts of torch fit the NumPy that is here.
    wanted.append(f"numpy=={np.__version__}")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256(" ".join([python, *wanted]).encode()).hexdigest()[:12]
    folder = ROOT / "build" / f"oldest-{key}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}-{os.getpid()}")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        done = subprocess.run(  # noqa: S603
            [*command, "--target", str(unfinished), *wanted],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(unfinished, ignore_errors=True)
            pytest.skip(f"pip cannot get {' '.join(wanted)} here")
        unfinished.rename(folder)
    return folder


def test_the_oldest_transformers_gives_the_same_numbers(overlay, tmp_path):
    oldest_versions.write(tmp_path)
    output = tmp_path / "oldest.npz"
    path = os.pathsep.join([str(overlay), str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "tests.features.oldest_versions", str(tmp_path), str(output)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = oldest_versions.maps(tmp_path)
    with np.load(output) as got:
        version = lower_bounds()["transformers"]
        assert str(got["version"]).startswith(f"{version}.") or str(got["version"]) == version
        assert set(got.files) == {"version", *expected}
        for name, values in expected.items():
            np.testing.assert_allclose(got[name], values, atol=2e-5, rtol=2e-5, err_msg=name)


def test_the_installed_versions_are_within_the_bounds():
    from importlib.metadata import version

    for name, oldest in lower_bounds().items():
        installed = [int(part) for part in re.findall(r"\d+", version(name))]
        assert installed >= [int(part) for part in oldest.split(".")], name

"""requirements.lock: everything that the make targets install, by version and hash."""

import importlib.util
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("lock", ROOT / "tools" / "lock.py")
lock = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lock)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_group_of_the_makefile_is_locked():
    called = set(re.findall(r"\(call locked,(\w+)\)|tools/lock\.py (\w+) >", MAKEFILE))
    made = {"made", "imports", "package", "torch"}  # more than a group each
    stamps = set(re.findall(r"\$\(VENV\)/\.(\w+)", MAKEFILE)) - made
    named = {name for pair in called for name in pair if name} | stamps
    assert {
        "package",
        "lab",
        "test",
        "lint",
        "bench",
        "build",
        "fuzz",
        "wheel",
        "cpu",
        "cuda",
    } <= named
    assert named - {"cpu", "cuda"} <= set(lock.requirements())
    # Nothing is resolved when a target runs.
    for line in re.findall(r"^\t.*(?:\$\(PIP\)|\$\(INSTALL\)).*", MAKEFILE, re.MULTILINE):
        assert re.search(r"--require-hashes --requirement|--no-build-isolation \.|dist/\*", line)
    assert "--no-deps" in re.search(r"^INSTALL := .*", MAKEFILE, re.MULTILINE)[0]


@pytest.mark.parametrize("group", lock.requirements())
def test_every_requirement_is_there_in_its_version(group):
    found = {}
    for entry, groups in lock.blocks():
        if group in groups or "cuda" in groups:  # torch, which all of them share
            pinned = Requirement(entry.split(" \\")[0].split(" ;")[0])
            found.setdefault(lock.name_of(pinned.name), []).append(pinned.specifier)
    for text in lock.requirements()[group]:
        wanted = Requirement(text)
        versions = [str(s).removeprefix("==") for s in found[lock.name_of(wanted.name)]]
        assert all(wanted.specifier.contains(version, prereleases=True) for version in versions)


def test_every_version_is_exact_and_has_hashes():
    text = lock.LOCK.read_text(encoding="utf-8")
    entries = list(lock.blocks())
    assert len(entries) == len(re.findall(r"^\w", text, re.MULTILINE)) > 100
    for entry, groups in entries:
        first, *hashes = entry.split(" \\\n    ")
        assert re.match(r"[a-z\d][a-z\d-]*(\[[\w,-]+\])?==[\w.+]+( ; .*)?$", first), first
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[\da-f]{64}", line) for line in hashes)
        assert groups
    assert any(entry.startswith("torch==2.13.0 ") for entry, _ in entries)
    # Where the files come from is the user's to choose.
    assert not re.search(r"://|--(extra-)?index|find-links|\bfile:", text)


def test_packages_of_weights_have_hashes_of_their_own():
    names = re.findall(
        r"^([\w.-]+)==[\w.]+ \\\n    --hash=sha256:[\da-f]{64}$", lock.weights(), re.MULTILINE
    )
    assert len(names) == 4
    assert not set(names) & {lock.name_of(entry) for entry, _ in lock.blocks()}

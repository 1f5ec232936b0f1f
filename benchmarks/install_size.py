"""Size of what ``pip install ".[viz,images]"`` brings, by package.

    python benchmarks/install_size.py [--extras viz images]

Looks at the packages of the environment in which it runs, follows the requirements of manymatch
with the extras, and adds up the files that each package installed. A requirement that is not
installed is named at the end. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[\w.-]+")


def requirements(extras: list[str]) -> list[str]:
    """Names that the package and some of its extras need; extras of its own are followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            if inner := re.fullmatch(r"manymatch\[(.*)\]", requirement):
                names += requirements(inner[1].split(","))
            else:
                names.append(requirement)
    return names


def needed_by(found: Distribution) -> list[str]:
    """List what a package needs, without its extras and other platforms."""
    others = ("extra ==", 'sys_platform == "win32"', 'platform_system == "Windows"', "< '3", '< "3')
    return [text for text in found.requires or [] if not any(part in text for part in others)]


def size_mb(found: Distribution) -> float:
    """Megabytes of the files of a package, links counted once."""
    places = {Path(str(file.locate())).resolve() for file in found.files or []}
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--extras", nargs="*", default=["viz", "images"])
    waiting = requirements(parser.parse_args().extras)
    sizes: dict[str, float] = {}
    missing = set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", NAME.match(waiting.pop())[0]).lower()
        if name in sizes or name in missing:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        sizes[name] = size_mb(found)
        waiting += needed_by(found)
    print("| package | MB |\n|---|--:|")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"| {name} | {size:.1f} |")
    print(f"| **together** | **{sum(sizes.values()):.1f}** |")
    if missing:
        print(f"\nNot installed here: {', '.join(sorted(missing))}.")


if __name__ == "__main__":
    main()

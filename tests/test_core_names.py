"""Names of the core: a type of one problem must not have the name of another's."""

import re
from collections import defaultdict
from pathlib import Path

HEADERS = Path(__file__).parents[1] / "cpp" / "include"


def test_types_of_the_core_have_one_definition():
    """Two types of one name in a namespace are taken for one by the linker, silently."""
    places = defaultdict(set)
    for path in sorted(HEADERS.rglob("*.h")):
        unnamed = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line == "namespace {":
                unnamed = True
            elif line == "}  // namespace":
                unnamed = False
            found = re.match(r"(?:struct|class|enum class|enum) (\w+)[^;]*$", line)
            if found and not unnamed:
                places[found[1]].add(str(path))
    assert len(places) > 50
    assert {name: files for name, files in places.items() if len(files) > 1} == {}

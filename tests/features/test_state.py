"""Loading weights: nothing unsafe, nothing missing silently, damage told in one sentence."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from manymatch.features.weights import (  # noqa: E402
    WeightsError,
    load_state,
    load_strictly,
    random_weights,
)
from tests.support import tiny_networks as tiny  # noqa: E402
from tests.support.tiny_networks import one_sentence, same  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save("dinov3", tmp_path_factory.mktemp("saved"))


def load(source, family="dinov3"):
    return tiny.backbone(family, source)


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
        self.refused(path, "it is damaged")
        with pytest.raises(WeightsError):
            load(path)

    @pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.99])
    def test_truncated_pth(self, saved, tmp_path, keep):
        path = tmp_path / "x.pth"
        torch.save(load_state(saved), path)
        data = path.read_bytes()
        path.write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
        self.refused(path, "it is damaged")

    def test_nothing_is_unpickled(self, tmp_path):
        path = tmp_path / "evil.pth"
        for write in (lambda: torch.save({"a": Evil()}, path), lambda: self.dump(path)):
            write()
            self.refused(path, "which are not unpickled")
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
            ({3: torch.zeros(1)}, "its entry 3 is no tensor"),
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

    def test_folders(self, tmp_path):
        self.refused(tmp_path, "no complete weights")
        torch.save({"a": torch.ones(1)}, tmp_path / "a.pth")
        assert list(load_state(tmp_path)) == ["a"]
        torch.save({"b": torch.ones(1)}, tmp_path / "b.pth")
        self.refused(tmp_path, "it holds 2 files")


class TestWrongNetwork:
    def altered(self, saved, tmp_path, change):
        state = load_state(saved)
        change(state)
        path = tmp_path / "altered.pth"
        torch.save(state, path)
        with pytest.raises(WeightsError) as error:
            load(path)
        return one_sentence(error)

    def test_missing_unexpected_and_misshapen_keys(self, saved, tmp_path):
        text = self.altered(saved, tmp_path, lambda s: s.pop("norm.weight"))
        assert "weights must be those of 'dinov3'" in text
        assert "1 missing of " in text
        assert "(first 'norm.weight')" in text
        text = self.altered(saved, tmp_path, lambda s: s.update(other=torch.ones(1)))
        assert "1 unexpected (first 'other')" in text
        text = self.altered(saved, tmp_path, lambda s: s.update({"norm.bias": torch.ones(3)}))
        assert "1 of another shape (first 'norm.bias')" in text

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

"""Dense pairs: choices, bins, journals of curves, means, and the places of patches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from manymatch.io.pairs import Pair
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.dense_pairs import (
    Choice,
    DepthSets,
    PatchExtractor,
    PatchSettings,
    angle_deg,
    by_bin,
    parsed_choice,
)
from manymatch_lab.measures.recall import RecallCurve
from tests.support.synthetic_planes import synthetic_planes

NAN = float("nan")
RANDOM = PatchSettings(longest=0, weights="random")


def a_pair(name: str, degrees: float, scene: str) -> Pair:
    a = np.deg2rad(degrees)
    R = [[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]
    return Pair(name, f"{name}'", Path(name), Path(name), R=R, t=[1, 0, 0], scene=scene)


def a_set(*degrees: float) -> Dataset:
    pairs = tuple(a_pair(f"p{i}", angle, "cup") for i, angle in enumerate(degrees))
    return Dataset("synthetic", "Synthetic", pairs)


def a_curve(edges: list[float], *recall: list[float]) -> RecallCurve:
    return RecallCurve(np.array(edges), np.array(recall))


def test_choices_are_read_also_with_colons_in_the_name() -> None:
    assert parsed_choice("dinov3-vitl16") == Choice("dinov3-vitl16")
    assert parsed_choice("a:16-18") == Choice("a", (16, 17, 18))
    assert parsed_choice("a:3,1:0,20") == Choice("a", (1, 3), (0, 20))
    assert parsed_choice("timm:vit_small:2:0") == Choice("timm:vit_small", (2,), (0,))


def test_angles_are_those_of_the_set_or_of_the_true_rotation() -> None:
    assert angle_deg(a_pair("p", 33.0, "")) == pytest.approx(33.0)
    own = Pair("a", "b", Path("a"), Path("b"), extra={"angle_deg": 71.5})
    assert angle_deg(own) == 71.5
    with pytest.raises(ValueError, match="true pose"):
        angle_deg(Pair("a", "b", Path("a"), Path("b")))


def a_record(scene: str, angle: float, edges: list[float], *recall: list[float | None]) -> dict:
    curve = {"key": [3, 0], "edges": edges, "recall": recall}
    return {"scene": scene, "angle_deg": angle, "curves": [curve]}


def test_means_by_bin_weigh_objects_by_hand() -> None:
    found = [
        a_record("cup", 10.0, [10, 20], [0.2, 0.4], [0.0, None]),
        a_record("cup", 20.0, [30, 40], [0.4, 0.8], [0.5, None]),
        a_record("shoe", 39.9, [50, 60], [0.9, 1.0], [0.75, None]),
        a_record("shoe", 80.0, [9, 9], [0.1, 0.1], [0.1, 0.1]),
        a_record("shoe", 120.0, [9, 9], [0.1, 0.1], [0.1, 0.1]),
    ]
    means = by_bin(found, [0, 40, 80, 120])
    first, last = means["curves"]
    assert first["edges"] == [(20 + 50) / 2, (30 + 60) / 2]
    assert first["recall_by_tau"][0] == pytest.approx([(0.3 + 0.9) / 2, (0.6 + 1.0) / 2])
    assert first["recall_by_tau"][1] == [pytest.approx((0.25 + 0.75) / 2), None]
    # The mean of the thresholds exists where all of them do.
    assert first["recall"] == [pytest.approx((0.6 + 0.5) / 2), None]
    # Bins hold their lower bound only.
    assert (last["bin"], means["left_out"]) == (2, 1)
    assert [(b["pairs"], b["objects"]) for b in means["bins"]] == [(3, 2), (0, 0), (1, 1)]


class Extractor:
    """Gives the number of a pair as what was extracted of it; those of `broken` fail."""

    backbone = SimpleNamespace(name="stub")

    def __init__(self) -> None:
        self.asked, self.broken, self.notes = [], ["p1", "p2"], {}
        self.other_weights = []

    def header(self) -> dict:
        return {}

    def patches(self, _dataset: Dataset, pair: Pair, _taus: object):
        self.asked.append(pair.name0)
        if pair.name0 in self.broken:
            raise RuntimeError("no such layer")
        yield (int(pair.name0[1:]),)


def test_a_run_goes_on_and_refuses_another_configuration(tmp_path: Path) -> None:
    source, shown = Extractor(), []

    def measure(dataset: Dataset, k: int = 1, limit: int | None = None) -> dict:
        sets = DepthSets(
            [dataset], tmp_path, limit=limit, progress=lambda p: shown.append(p.finished)
        )
        return sets.measure(
            "test",
            dataset,
            source,
            lambda number: [((1, 0), a_curve([number], [0.5], [NAN]))],
            k=k,
            taus_cm=(1.0, 2.0),
            bins=(0, 1.5, 2.5, 3.5),
        )

    with pytest.raises(RuntimeError, match="no such layer"):
        measure(a_set(1, 2, 3))
    source.broken.clear()
    shown.clear()
    found = measure(a_set(1, 2, 3))
    assert source.asked.count("p0") == 1
    assert (shown[0], shown[-1]) == (1, 3)
    assert [curve["edges"] for curve in found["curves"]] == [[0], [1], [2]]
    assert found["curves"][0]["recall_by_tau"] == [[0.5], [None]]
    before = len(source.asked)
    assert measure(a_set(1, 2, 3), limit=2)["pairs"] == 2
    with pytest.raises(ValueError, match="k was 1 and is 2 now"):
        measure(a_set(1, 2, 3), k=2)
    with pytest.raises(ValueError, match="a different pair list"):
        measure(a_set(1, 2, 4))
    assert len(source.asked) == before


def test_patches_are_where_the_depth_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    dataset = synthetic_planes(tmp_path)
    source = PatchExtractor(Choice("efficientnet-lite0", (10,)), RANDOM)
    ((layer, rank, truth, desc0, desc1),) = source.patches(dataset, dataset.pairs[0], (1.0,))
    assert (layer, rank, len(desc0), len(desc1)) == (10, 0, 80, 80)
    assert np.isfinite(truth.points0).all()
    # Partners are one cell apart along x: all but one column have one, and nothing else is near.
    eligible = truth.eligible(0)[0].reshape(8, 10)
    assert eligible[:, 1:].all()
    assert not eligible[:, 0].any()
    np.testing.assert_allclose(truth.points0[1], truth.points1[0], atol=1e-9)


def test_quarter_turns_leave_the_patches_in_place(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    dataset = synthetic_planes(tmp_path)
    source = PatchExtractor(Choice("efficientnet-lite0", (10,)), RANDOM)
    turned = dataclasses.replace(dataset.pairs[0], rot1=1)
    ((*_, straight, _, _),) = source.patches(dataset, dataset.pairs[0], (1.0,))
    ((*_, truth, _, _),) = source.patches(dataset, turned, (20.0,))
    # Cells are not quite in the middle of their stride, so a turn moves them by a few pixels.
    assert truth.eligible(1).mean() > 0.8
    assert len(truth.points1) == len(straight.points1)


def test_partly_padded_patches_are_left_out_but_seen_by_the_probe(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tiny = pytest.importorskip("tests.support.tiny_networks")
    from manymatch.features.registry import _backbones, register_backbone

    register_backbone("tiny", replace=True)(lambda **_: tiny.backbone("dinov3"))
    try:
        choice = Choice("tiny", None, (0, 2))
        source = PatchExtractor(choice, PatchSettings(longest=150, probe="noise"))
    finally:
        _backbones.pop("tiny")
    dataset = synthetic_planes(tmp_path)
    (raw, corrected) = source.patches(dataset, dataset.pairs[0], (1.0,))
    # 150 x 120 pixels: 9 x 7 complete patches of 16, padded to 10 x 8.
    assert [len(one[3]) for one in (raw, corrected)] == [63, 63]
    (maps,) = {tuple(key) for key in source._bases}
    assert maps == (((160, 128), (7, 9)),)
    (basis,) = source._bases[maps].values()
    assert len(basis.singular_values) == min(80, tiny.DIM)
    header = source.header()
    assert (header["precision"], header["resize"], header["probe"]) == ("float32", "paper", "noise")
    with pytest.raises(ValueError, match="precision must be one of"):
        PatchExtractor(
            Choice("efficientnet-lite0"), PatchSettings(weights="random", precision="half")
        )

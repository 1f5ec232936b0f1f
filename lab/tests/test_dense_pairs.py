"""Dense pairs: choices, bins, journals of curves, means, and the places of patches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from manymatch.io.pairs import Pair
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.dense_pairs import (
    Choice,
    PairCurves,
    PatchExtractor,
    PatchSettings,
    angle_deg,
    bin_of,
    by_bin,
    pair_curves,
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


def test_bins_hold_their_lower_bound_only() -> None:
    bounds = [0.0, 40.0, 80.0]
    assert [bin_of(angle, bounds) for angle in (0, 39.9, 40, 79.9, 80)] == [0, 0, 1, 1, None]
    assert angle_deg(a_pair("p", 33.0, "")) == pytest.approx(33.0)
    own = Pair("a", "b", Path("a"), Path("b"), extra={"angle_deg": 71.5})
    assert angle_deg(own) == 71.5
    with pytest.raises(ValueError, match="true pose"):
        angle_deg(Pair("a", "b", Path("a"), Path("b")))


def test_means_by_bin_weigh_objects_by_hand() -> None:
    key = (3, 0)
    found = [
        PairCurves("cup", 10.0, {key: a_curve([10, 20], [0.2, 0.4], [0.0, NAN])}),
        PairCurves("cup", 20.0, {key: a_curve([30, 40], [0.4, 0.8], [0.5, NAN])}),
        PairCurves("shoe", 30.0, {key: a_curve([50, 60], [0.9, 1.0], [0.75, NAN])}),
        PairCurves("shoe", 90.0, {key: a_curve([9, 9], [0.1, 0.1], [0.1, 0.1])}),
        PairCurves("shoe", 130.0, {key: a_curve([9, 9], [0.1, 0.1], [0.1, 0.1])}),
    ]
    means = by_bin(found, [0, 40, 80, 120])
    first, last = means["curves"]
    assert first["edges"] == [(20 + 50) / 2, (30 + 60) / 2]
    assert first["recall_by_tau"][0] == pytest.approx([(0.3 + 0.9) / 2, (0.6 + 1.0) / 2])
    assert first["recall_by_tau"][1] == [pytest.approx((0.25 + 0.75) / 2), None]
    # The mean of the thresholds exists where all of them do.
    assert first["recall"] == [pytest.approx((0.6 + 0.5) / 2), None]
    assert (last["bin"], means["left_out"]) == (2, 1)
    assert [(b["pairs"], b["objects"]) for b in means["bins"]] == [(3, 2), (0, 0), (1, 1)]


def test_a_run_goes_on_and_refuses_another_configuration(tmp_path: Path) -> None:
    dataset, asked, broken = a_set(1, 2, 3), [], ["p1", "p2"]

    def curves_of(pair: Pair):
        asked.append(pair.name0)
        if pair.name0 in broken:
            raise RuntimeError("out of memory")
        yield (1, 0), a_curve([int(pair.name0[1:])], [0.5], [NAN])

    with pytest.raises(RuntimeError, match="out of memory"):
        pair_curves(dataset, tmp_path, {"k": 1}, curves_of)
    broken.clear()
    shown = []
    found = pair_curves(
        dataset, tmp_path, {"k": 1}, curves_of, progress=lambda p: shown.append(p.finished)
    )
    assert asked.count("p0") == 1
    assert (shown[0], shown[-1]) == (1, 3)
    assert [pair.curves[1, 0].edges.tolist() for pair in found] == [[0], [1], [2]]
    before = len(asked)
    assert np.isnan(found[0].curves[1, 0].recall[1, 0])
    assert len(pair_curves(dataset, tmp_path, {"k": 1}, curves_of, limit=2)) == 2
    with pytest.raises(ValueError, match="k was 1 and is 2 now"):
        pair_curves(dataset, tmp_path, {"k": 2}, curves_of)
    with pytest.raises(ValueError, match="a different pair list"):
        pair_curves(a_set(1, 2, 4), tmp_path, {"k": 1}, curves_of)
    assert len(asked) == before


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

"""The diagnosis of representations: backbones, summary, a small run."""

from __future__ import annotations

import pytest

from manymatch_lab.dense_pairs import Choice, DepthSets, PatchSettings, with_depth
from manymatch_lab.engine import load_report, report_of
from manymatch_lab.experiments import diagnose
from manymatch_lab.experiments.diagnose import PAPER, chosen_backbones
from tests.support.synthetic_planes import synthetic_planes


def test_defaults_are_the_papers() -> None:
    assert chosen_backbones((), None, None) == list(PAPER)
    assert PAPER[0].layers == tuple(range(16, 25))
    assert PAPER[0].ranks == (0, 100, 200, 300, 400, 500, 600)
    (own,) = chosen_backbones(["dinov3-vitl16"], None, (0, 50))
    assert own == Choice("dinov3-vitl16", PAPER[0].layers, (0, 50))
    assert chosen_backbones(["x:1-2:0"], (5,), (7,)) == [Choice("x", (1, 2), (0,))]
    with pytest.raises(ValueError, match="backbone must be given"):
        chosen_backbones((), (3,), None)


def entries(curves: dict[tuple[int, int, int], tuple[list[float], list[float]]]) -> list[dict]:
    return [
        {"layer": layer, "rank": rank, "bin": place, "edges": edges, "recall": recall}
        | {"recall_by_tau": [recall]}
        for (layer, rank, place), (edges, recall) in curves.items()
    ]


# Two layers, two ranks, one bin and a second one in which nothing is known.
HAND = {
    (1, 0, 0): ([10.0, 20.0, 40.0], [0.30, 0.40, 0.45]),
    (2, 0, 0): ([15.0, 30.0, 60.0], [0.20, 0.50, 0.70]),
    (1, 7, 0): ([10.0, 20.0, 40.0], [0.40, 0.50, 0.55]),
    (2, 7, 0): ([15.0, 30.0, 60.0], [0.05, 0.35, 0.55]),
    (1, 0, 1): ([1.0, 2.0, 3.0], [None, None, None]),
}


def test_summary_by_hand() -> None:
    summary = diagnose._summary(entries(HAND), (0, 7), None)
    regret = {(r["layer"], r["rank"]): r["regret"] for r in summary["regrets"]}
    assert regret[1, 0] == pytest.approx((0 + 0 + 0.05) / 3)
    assert regret[2, 0] == pytest.approx((0.10 + 0 + 0) / 3)
    assert regret[1, 7] == pytest.approx(0.0)
    assert regret[2, 7] == pytest.approx((0.35 + 0.15 + 0) / 3)
    (gap,) = summary["gaps"]
    # Rank 7 is 0.10 above at layer 1 and 0.15 below at layer 2, at every budget.
    assert gap["ranks"] == [0, 7]
    assert gap["absolute"] == pytest.approx(0.125)
    assert gap["signed"] == pytest.approx(-0.025)
    assert gap["curves"] == 2
    # No gain over rank 0: stay there, where layer 1 has the lower regret.
    assert (summary["rank"], summary["layer"]) == (0, 1)
    assert diagnose._summary(entries(HAND), (0, 7), 7)["layer"] == 1
    with pytest.raises(ValueError, match=r"rank must be one that is tested \(0, 7\), got 3"):
        diagnose._summary(entries(HAND), (0, 7), 3)


def test_the_rank_that_gains_most_is_shown_unless_the_papers_is_there() -> None:
    base = ([1.0, 2.0], [0.1, 0.2])
    curves = {
        (1, 0, 0): base,
        (1, 5, 0): ([1.0, 2.0], [0.2, 0.3]),
        (1, 9, 0): ([1.0, 2.0], [0.3, 0.4]),
        (1, 200, 0): base,
    }
    assert diagnose._summary(entries(curves), (0, 5, 9), None)["rank"] == 9
    assert diagnose._summary(entries(curves), (0, 5, 9, 200), None)["rank"] == 200


def test_a_run_on_images_from_end_to_end(tmp_path) -> None:
    pytest.importorskip("torch")
    dataset = with_depth(synthetic_planes(tmp_path, 2))
    settings = {
        "backbone": ["efficientnet-lite0:4,10:0,3,60"],
        "k": 3,
        "bins": (0.0, 40.0, 80.0),
        "tau": (1.0, 20.0),
        "settings": PatchSettings(longest=0, weights="random"),
    }
    sets = DepthSets([dataset], tmp_path / "out")
    data = diagnose.run(sets, **settings)
    (run,) = data["runs"]
    assert data["differs_from_paper"][1] == "k 3 instead of 8"
    # Layer 4 has 40 channels: no room for rank 60.
    keys = {(c["layer"], c["rank"]) for c in run["curves"]}
    assert keys == {(4, 0), (4, 3), (10, 0), (10, 3), (10, 60)}
    assert any("room for ranks below 40" in note for note in run["notes"])
    assert [(b["pairs"], b["objects"]) for b in run["bins"]] == [(1, 1), (1, 1)]
    for curve in run["curves"]:
        assert curve["recall"] == sorted(curve["recall"])
        assert 0.0 <= curve["recall"][0] <= curve["recall"][-1] <= 1.0
        # Patches of stride 8 and 16 on 160 x 128 pixels; mutual keeps at most K a patch.
        patches = 20 * 16 if curve["layer"] == 4 else 10 * 8
        assert all(n <= patches * k for k, n in enumerate(curve["edges"], 1))
        if curve["rank"] == 0:
            # The shift is a whole number of cells: even a random network sees the same there.
            assert curve["recall"][-1] > 0.5
    assert diagnose.run(sets, **settings) == data
    report_of("diagnose", data).write(tmp_path / "report")
    again = load_report(tmp_path / "report" / "diagnose.json")
    assert again.markdown() == (tmp_path / "report" / "diagnose.md").read_text()
    with pytest.raises(ValueError, match="k was 3 and is 2 now"):
        diagnose.run(sets, **{**settings, "k": 2})


def test_differences_from_the_paper() -> None:
    papers = [{"set": "navi-wild-diagnostic", "pairs": 1_500}]
    usual = (diagnose.PAPER_BINS, (1.0, 2.0, 5.0), PatchSettings())
    assert diagnose.dense_differences(papers, *usual) == []
    other = [{**papers[0], "paper_list": False, "differences": ["debias 9 removed 2 directions."]}]
    assert diagnose.dense_differences(other, *usual) == [
        "another list of pairs of navi-wild-diagnostic than the paper's",
        "debias 9 removed 2 directions",
    ]
    assert diagnose.dense_differences(papers, *usual[:2], PatchSettings(device="cpu")) == []
    other = [{"set": "street", "pairs": 6}, {"set": "navi-wild-diagnostic", "pairs": 20}]
    assert diagnose.dense_differences(
        other, (0.0, 20.0), (10.0,), PatchSettings(longest=512, weights="random")
    ) == [
        "bins 0/20 instead of 0/40/80/120",
        "tau 10 instead of 1/2/5",
        "longest 512 instead of 1,024",
        "random weights",
        "sets navi-wild-diagnostic/street instead of navi-wild-diagnostic",
        "pairs of navi-wild-diagnostic 20 instead of 1,500",
    ]

"""The diagnosis of representations: backbones, summary, tables, figures, a small run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from manymatch_paper.dense_pairs import Choice, DepthSets, PatchSettings, with_depth
from manymatch_paper.engine import load_report, report_of
from manymatch_paper.experiments import diagnose
from manymatch_paper.experiments.diagnose import PAPER, chosen_backbones
from tests.support.synthetic_planes import synthetic_planes

if TYPE_CHECKING:
    from pathlib import Path


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


def example_data(set_name: str = "synthetic", backbone: str = "tiny", scale: int = 1) -> dict:
    """Data of a run with two layers, three ranks and three bins, one of them empty."""
    ks = np.arange(1, 9)
    curves = {
        (layer, 100 * s, place): (
            (100.0 * ks * scale).tolist(),
            (
                0.1 * layer / 20 + (0.05 * s if s < 2 else 0.05) + (0.08 - 0.02 * place) * ks
            ).tolist(),
        )
        for layer in (19, 24)
        for s in (0, 1, 2)
        for place in (0, 1)
    }
    found = entries(curves)
    bins = [
        {"name": name, "pairs": n, "objects": 1, "without_partners": [0, 0, n]}
        for name, n in (("[0°, 40°)", 2), ("[40°, 80°)", 1), ("[80°, 120°)", 0))
    ]
    run = {
        "set": set_name,
        "title": "Synthetic",
        "backbone": backbone,
        "layers": [19, 24],
        "num_layers": 24,
        "strides": [16, 16],
        "ranks": [0, 100, 200],
        "longest": 1024,
        "pairs": 3,
        "bins": bins,
        "left_out": 2,
        "curves": found,
        "notes": ["A note."],
        "summary": diagnose._summary(found, (0, 100, 200), None),
    }
    return {"k": 8, "taus_cm": [1, 2, 5], "bounds_deg": [0, 40, 80, 120], "runs": [run]}


def test_figures_and_files_come_from_the_json_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = example_data()
    data["runs"].append(example_data(backbone="other", scale=2)["runs"][0])
    paths = report_of("diagnose", data).write(tmp_path)
    assert {path.suffix for path in paths} == {".json", ".md", ".tex", ".pdf", ".png"}
    again = load_report(tmp_path / "diagnose.json")
    figure = again.figures["layer_selection"](json.loads(json.dumps(data)))
    drawn = [axis for axis in figure.axes if axis.lines]
    assert len(drawn) == 2
    # Two layers in two bins each; the arrow's label is the gain from K = 1 to K = 5.
    assert [len(axis.lines) for axis in drawn] == [4, 4]
    assert "+32.0 pp" in [text.get_text() for text in drawn[0].texts]
    sweep = again.figures["rank_sweep"](data)
    panels = [axis for part in sweep.subfigs for axis in part.axes if axis.lines]
    assert [len(axis.lines) for axis in panels] == [6] * 4
    assert again.markdown() == (tmp_path / "diagnose.md").read_text()


def test_a_run_on_images_from_end_to_end(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="k was 3 and is 2 now"):
        diagnose.run(sets, **{**settings, "k": 2})

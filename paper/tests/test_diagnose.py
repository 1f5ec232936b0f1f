"""The diagnosis of representations: choices, journals, means, summary, tables and figures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from manymatch import datasets
from manymatch.datasets.dataset import Dataset
from manymatch.io.pairs import Pair
from manymatch_paper.cli.experiment_diagnose import PAPER, _choices
from manymatch_paper.experiments import diagnose
from manymatch_paper.experiments._dense_pairs import (
    Choice,
    PatchSource,
    angle_deg,
    bin_of,
    numbers,
    parsed_choice,
    with_depth,
)
from manymatch_paper.experiments._pair_curves import PairCurves, by_bin, folder_name, pair_curves
from manymatch_paper.experiments.registry import load_report, report_of
from manymatch_paper.measures.recall import RecallCurve
from tests.support.synthetic_planes import made_planes

NAN = float("nan")


def a_pair(name: str, degrees: float, scene: str) -> Pair:
    a = np.deg2rad(degrees)
    R = [[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]
    return Pair(name, f"{name}'", Path(name), Path(name), R=R, t=[1, 0, 0], scene=scene)


def a_set(*degrees: float) -> Dataset:
    pairs = tuple(a_pair(f"p{i}", angle, "cup") for i, angle in enumerate(degrees))
    return Dataset("made-up", "Made up", pairs)


def a_curve(edges: list[float], *recall: list[float]) -> RecallCurve:
    return RecallCurve(np.array(edges), np.array(recall))


def test_choices_are_read_also_with_colons_in_the_name() -> None:
    assert parsed_choice("dinov3-vitl16") == Choice("dinov3-vitl16")
    assert parsed_choice("a:16-18") == Choice("a", (16, 17, 18))
    assert parsed_choice("a:3,1:0,20") == Choice("a", (1, 3), (0, 20))
    assert parsed_choice("timm:vit_small:2:0") == Choice("timm:vit_small", (2,), (0,))
    assert numbers("5,1-3,2", "layers") == (1, 2, 3, 5)
    for bad in ("1-", "x", "1,,2", "-3"):
        with pytest.raises(ValueError, match="layers must be whole numbers or ranges"):
            numbers(bad, "layers")
    with pytest.raises(ValueError, match="must hold at least one number"):
        numbers("3-2", "layers")


def test_defaults_are_the_papers() -> None:
    assert _choices(None, None, None) == list(PAPER)
    assert PAPER[0].layers == tuple(range(16, 25))
    assert PAPER[0].ranks == (0, 100, 200, 300, 400, 500, 600)
    (own,) = _choices(["dinov3-vitl16"], None, "0,50")
    assert own == Choice("dinov3-vitl16", PAPER[0].layers, (0, 50))
    assert _choices(["x:1-2:0"], "5", "7") == [Choice("x", (1, 2), (0,))]
    with pytest.raises(ValueError, match="--backbone must be given"):
        _choices(None, "3", None)


def test_bins_hold_their_lower_bound_only() -> None:
    bounds = [0.0, 40.0, 80.0]
    assert [bin_of(angle, bounds) for angle in (0, 39.9, 40, 79.9, 80)] == [0, 0, 1, 1, None]
    assert angle_deg(a_pair("p", 33.0, "")) == pytest.approx(33.0)
    own = Pair("a", "b", Path("a"), Path("b"), extra={"angle_deg": 71.5})
    assert angle_deg(own) == 71.5
    with pytest.raises(ValueError, match="true pose"):
        angle_deg(Pair("a", "b", Path("a"), Path("b")))


def test_sets_without_depth_are_refused() -> None:
    with pytest.raises(ValueError, match="must have depth, got 'Made up'"):
        with_depth(a_set(1.0))


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
    dataset, asked = a_set(1, 2, 3), []

    def curves_of(pair: Pair):
        asked.append(pair.name0)
        if pair.name0 == "p1" and len(asked) == 2:
            raise KeyboardInterrupt
        yield (1, 0), a_curve([len(asked)], [0.5], [NAN])

    with pytest.raises(KeyboardInterrupt):
        pair_curves(dataset, tmp_path, {"k": 1}, curves_of)
    shown = []
    found = pair_curves(
        dataset, tmp_path, {"k": 1}, curves_of, progress=lambda *numbers: shown.append(numbers)
    )
    assert asked == ["p0", "p1", "p1", "p2"]
    assert [pair.curves[1, 0].edges.tolist() for pair in found] == [[1], [3], [4]]
    assert np.isnan(found[0].curves[1, 0].recall[1, 0])
    assert shown == [(1, 3), (2, 3), (3, 3)]
    assert len(pair_curves(dataset, tmp_path, {"k": 1}, curves_of, limit=2)) == 2
    with pytest.raises(ValueError, match="k was 1 and is 2 now"):
        pair_curves(dataset, tmp_path, {"k": 2}, curves_of)
    with pytest.raises(ValueError, match="the pairs was another one"):
        pair_curves(a_set(1, 2, 4), tmp_path, {"k": 1}, curves_of)
    assert len(asked) == 4
    assert folder_name("hf:a/b c") == "hf-a-b-c"


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


def made_data(set_name: str = "made-up", backbone: str = "tiny", scale: int = 1) -> dict:
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
        "title": "Made up",
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


def test_tables_show_our_numbers_and_the_papers() -> None:
    recall, gain, regret, gap = diagnose.tables(made_data())
    # Layer 24 is selected and final; at K = 1 in the first bin 0.12 + 0.05 + 0.08.
    assert recall.rows[0] == ["layer 24, [0°, 40°)", *recall.rows[0][1:]]
    assert recall.rows[0][1] == "25.0 (100)"
    assert len(recall.rows) == 2
    assert gain.rows[0][1:] == ["+32.0", "+24.0"]
    assert "+44.5 in [0°, 40°), +41.0 in [40°, 80°), +32.0 in [80°, 120°)" in gain.notes[0]
    texts = [[getattr(cell, "text", cell) for cell in row] for row in regret.rows]
    assert texts == [
        ["layer 19 (stride 16)", "2.50", "2.50", "2.50"],
        ["layer 24 (stride 16)", "0.00", "0.00", "0.00"],
    ]
    assert [cell.bold for cell in regret.rows[1][1:]] == [True] * 3
    assert "0.42 for layer 19 and 3.50 for layer 24" in regret.notes[1]
    assert gap.rows[0] == ["s = 0 → 100", "5.00", "+5.00", "4"]
    assert gap.rows[1] == ["s = 100 → 200", "0.00", "+0.00", "4"]
    assert [cell.text for cell in gap.rows[2]][2] == "+6.52"
    assert [cell.text for cell in gap.rows[3]][1] == "0.18 to 0.42"
    notes = " ".join(diagnose.notes(made_data()))
    assert (
        "[0°, 40°) 2 pairs of 1 object, [40°, 80°) 1 pair of 1 object; 2 pairs in no bin" in notes
    )
    assert "2 at 5 cm" in notes
    assert "A note." in notes


def test_the_papers_own_set_has_its_rows() -> None:
    _, _, regret, _ = diagnose.tables(made_data("navi-wild-diagnostic", "dinov3-vitl16"))
    last = [[cell.text for cell in row] for row in regret.rows[2:]]
    assert last == [["paper, layer 19", "", "", "0.42"], ["paper, layer 24", "", "", "3.50"]]


def test_figures_and_files_come_from_the_json_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = made_data()
    data["runs"].append(made_data(backbone="other", scale=2)["runs"][0])
    paths = report_of("diagnose", data).write(tmp_path)
    assert {path.suffix for path in paths} == {".json", ".md", ".tex", ".pdf", ".png"}
    again = load_report(tmp_path / "diagnose.json")
    figure = again.figures["layer_selection"](json.loads(json.dumps(data)))
    drawn = [axis for axis in figure.axes if axis.lines]
    assert len(drawn) == 2
    # Two layers in two bins each; the arrow's label is the gain from K = 1 to K = 5.
    assert [len(axis.lines) for axis in drawn] == [4, 4]
    assert "+32.0 pp" in [text.get_text() for text in drawn[0].texts]
    labels = [text.get_text() for text in drawn[0].get_legend().get_texts()]
    assert labels[:2] == ["layer 19", "layer 24 (selected, final)"]
    sweep = again.figures["rank_sweep"](data)
    panels = [axis for part in sweep.subfigs for axis in part.axes if axis.lines]
    assert [len(axis.lines) for axis in panels] == [6] * 4
    assert again.markdown() == (tmp_path / "diagnose.md").read_text()


def test_a_run_on_images_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    dataset = with_depth(made_planes(tmp_path, 2))
    source = PatchSource(
        Choice("efficientnet-lite0", (4, 10), (0, 3, 60)), longest=0, weights="random"
    )
    settings = {"k": 3, "bins": [0, 40, 80], "taus_cm": (1.0, 20.0)}
    data = diagnose.run([dataset], [source], tmp_path / "out", **settings)
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
    fresh = PatchSource(
        Choice("efficientnet-lite0", (4, 10), (0, 3, 60)), longest=0, weights="random"
    )
    again = diagnose.run([dataset], [fresh], tmp_path / "out", **settings)
    assert again == data
    with pytest.raises(ValueError, match="k was 3 and is 2 now"):
        diagnose.run([dataset], [source], tmp_path / "out", **{**settings, "k": 2})


def test_patches_are_where_the_depth_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    dataset = made_planes(tmp_path)
    source = PatchSource(Choice("efficientnet-lite0", (10,)), longest=0, weights="random")
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
    dataset = made_planes(tmp_path)
    source = PatchSource(Choice("efficientnet-lite0", (10,)), longest=0, weights="random")
    turned = dataclasses.replace(dataset.pairs[0], rot1=1)
    ((*_, straight, _, _),) = source.patches(dataset, dataset.pairs[0], (1.0,))
    ((*_, truth, _, _),) = source.patches(dataset, turned, (20.0,))
    # Cells are not quite in the middle of their stride, so a turn moves them by a few pixels.
    assert truth.eligible(1).mean() > 0.8
    assert len(truth.points1) == len(straight.points1)


def test_rendered_streets_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tools.street.__main__ import write_data_set

    write_data_set(tmp_path / "street", 1, (160, 120))
    dataset = datasets.load("folder", tmp_path / "street")
    source = PatchSource(Choice("efficientnet-lite0", (10,)), longest=160, weights="random")
    data = diagnose.run([dataset], [source], tmp_path, k=3, bins=[0, 90], taus_cm=(200.0,))
    (curve,) = data["runs"][0]["curves"]
    assert 0.0 < curve["recall"][0] <= curve["recall"][-1] <= 1.0
    assert 0 < curve["edges"][0] <= 80


def test_command_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from manymatch_paper.cli.experiment_diagnose import diagnose as command

    app = typer.Typer()
    app.command()(command)
    runner = CliRunner()
    out = ["--out", str(tmp_path / "out")]
    result = runner.invoke(app, ["made-street", "--offline", *out])
    assert result.exit_code == 2
    assert "dinov3" in result.output
    assert len(result.output.strip().splitlines()) == 1
    result = runner.invoke(app, ["made-street", "--bins", "a,b", *out])
    assert result.exit_code == 2
    assert "--bins must be numbers separated by commas" in result.output

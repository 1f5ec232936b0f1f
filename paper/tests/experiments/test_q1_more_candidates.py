"""Q1: nested graphs with fixed proposals, and the probe of the true pose."""

import dataclasses

import numpy as np
import pytest

from manymatch import Options, estimate_relative_pose, score_pose
from manymatch_paper.engine import render
from manymatch_paper.experiments import q1_more_candidates as q1
from manymatch_paper.numbers import paper_numbers
from manymatch_paper.pose_runs import PoseSets
from manymatch_paper.style import styled
from tests.support.synthetic_runs import SmallSource
from tests.support.synthetic_spreads import as_json, flat, made_result, settings, spread, texts


def made_set(name, gains, inclusion):
    """A set with AUC 50 at K = 1 and the given (seed, threshold) gains at K = 2 and 3."""
    deltas = [[[0.0] * 3] * 2, *gains]
    aucs = [[[50.0 + x for x in seed] for seed in delta] for delta in deltas]
    return {
        "name": name,
        "title": name.upper(),
        "pairs": 4,
        "median_edges": [100.0, 950.5, 12_340.0],
        "auc": [spread(auc) for auc in aucs],
        "delta": [spread(delta) for delta in deltas],
        "inclusion": inclusion,
    }


@pytest.fixture
def data():
    up = [[[1.0, 2.0, 3.0], [2.0, 2.0, 3.0]], [[3.0, 4.0, 5.0], [4.0, 4.0, 5.0]]]
    down = [[[1.0, 1.0, 1.0], [2.0, 1.0, 1.0]], [[-3.0, -1.0, -2.0], [-1.0, -1.0, -2.0]]]
    sets = [
        made_set("scannet1500", up, [10.0, 20.0, 30.0]),
        made_set("mine", down, [40.0, 30.0, 20.0]),
    ]
    run = {
        "representation": "effnet",
        "sets": sets,
        "macro_auc": [flat(50.0), flat(51.0), flat(52.0)],
        "macro_delta": [flat(0.0), flat(1.0), flat(2.0)],
        "macro_inclusion": [25.0, 25.0, 25.0],
    }
    missing = [{"set": "lost", "why": "lost must be a folder, got nothing"}]
    ks = {"ks": [1, 2, 3], "iterations": 500}
    return as_json({"settings": settings(**ks), "runs": [run], "missing": missing})


def test_auc_table(data):
    rows = texts(q1.tables(data)[0])
    assert rows[0] == ["SCANNET1500", "1", "100", "50.0", "50.0", "50.0", "", "", ""]
    assert rows[1][:3] == ["", "2", "950"]
    # Seeds 51 and 52 at 5 degrees: mean 51.5, sample deviation 0.7071.
    assert rows[1][3] == "51.5 ± 0.7"
    assert rows[2][6:] == ["+3.50 [3.00, 4.00]", "+4.00 [4.00, 4.00]", "+5.00 [5.00, 5.00]"]
    assert rows[5][6] == "-2.00 [-3.00, -1.00]"
    assert rows[8] == ["", "3", "", "52.0", "52.0", "52.0", *["+2.00 [2.00, 2.00]"] * 3]
    assert rows[9][0] == "paper, DINOv3, six datasets"
    assert rows[10][3:7] == ["14.63", "27.52", "42.07", "+2.99 [2.69, 3.23]"]
    assert rows[11][:2] == ["lost", "not run"]


def test_gain_table_has_both_ranges(data):
    rows = texts(q1.tables(data)[1])
    assert rows[0][:4] == ["SCANNET1500", "4", "+3.50 [3.00, 4.00]", "[-1.00, 1.00]"]
    assert rows[2][:4] == ["Macro average", "8", "+2.00 [2.00, 2.00]", "[1.00, 3.00]"]


def test_inclusion_table_has_the_paper_below_its_sets(data):
    table = q1.tables(data)[2]
    assert texts(table) == [
        ["SCANNET1500", "10.00", "20.00", "30.00"],
        ["paper, DINOv3", "1.60", "3.61", "5.43"],
        ["MINE", "40.00", "30.00", "20.00"],
        ["Macro average", "25.00", "25.00", "25.00"],
        ["paper, DINOv3, six datasets", "11.23", "14.30", "15.67"],
        ["lost", "not run", "", ""],
    ]


def test_measured_from_runs():
    # 180 and 0 degrees: AUC 0 and 100; a probe that is missing counts as outside.
    first = made_result([[180.0, 180.0], [180.0, 180.0]], [10, 30], enters=[[1, 0], [1, None]])
    second = made_result([[0.0, 180.0], [0.0, 0.0]], [40, 80], enters=[[1, 1], [1, 0]])
    found = q1._measured([first, second])
    assert found["median_edges"] == [20.0, 60.0]
    assert found["inclusion"] == [50.0, 75.0]
    assert found["auc"][0]["mean"] == [0.0] * 3
    # Half of the errors below each threshold: the curve is at one half, then at one.
    assert found["delta"][1]["min"] == pytest.approx([50.0] * 3)
    assert found["delta"][1]["max"] == pytest.approx([100.0] * 3)
    macro = q1._macro([[first, second], [first, first]])
    assert macro["macro_inclusion"] == [50.0, 62.5]
    assert macro["macro_delta"][1]["mean"] == pytest.approx([37.5] * 3)
    assert macro["macro_delta"][1]["sd"] == pytest.approx([625**0.5 / 2**0.5] * 3)


def test_figure_shows_means_ranges_and_sizes(data):
    with styled():
        figure = q1.FIGURES["q1_k_sweep"](data)
        axes = figure.axes
        assert [axis.get_title(loc="left") for axis in axes] == ["SCANNET1500 (4)", "MINE (4)"]
        lines = [line for line in axes[0].lines if len(line.get_xdata()) == 3]
        assert [list(line.get_ydata()) for line in lines] == [
            [0.0, 1.5, 3.5],
            [0.0, 2.0, 4.0],
            [0.0, 3.0, 5.0],
        ]
        band = axes[0].collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == 4.0
    images = render(q1.FIGURES["q1_k_sweep"], data)
    assert images["pdf"].startswith(b"%PDF")
    assert images["png"].startswith(b"\x89PNG")


class WrongTruth(SmallSource):
    """Scenes whose alleged pose is turned, the later ones by more, so that some cannot enter."""

    def __getitem__(self, index):
        posed = super().__getitem__(index)
        angle = np.radians(0.4 * index)
        turn = np.array(
            [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
        )
        return dataclasses.replace(posed, R=turn @ posed.R)


def test_probe_against_a_slow_twin(tmp_path):
    source = WrongTruth(3)
    data = q1.run(PoseSets([source], tmp_path), k=2, seeds=2, iterations=300)
    inside = []
    for k in (1, 2):
        entered = 0
        for index in range(3):
            posed = source[index]
            keep = posed.graph.rank <= k
            graph = posed.graph.filter(keep)
            for repetition in range(2):
                options = Options(
                    min_iterations=300, max_iterations=300, seed=index + 1 + repetition
                )
                estimate = estimate_relative_pose(
                    graph,
                    posed.camera0,
                    posed.camera1,
                    "hcm-mcm",
                    options,
                    proposals=graph.rank == 1,
                )
                assert estimate.iterations == 300
                truth = score_pose(graph, posed.camera0, posed.camera1, posed.pose, options)
                entered += estimate.pooled < 100 or truth.hcm > estimate.worst_pooled
        inside.append(100.0 * entered / 6)
    assert data["runs"][0]["sets"][0]["inclusion"] == pytest.approx(inside)
    assert 0.0 < inside[1] < 100.0


def test_paper_numbers_agree_with_its_text():
    inclusion = paper_numbers("q1_inclusion")
    assert len(inclusion["sets"]) == 6
    for i, macro in enumerate(inclusion["macro"]):
        average = sum(values[i] for values in inclusion["sets"].values()) / 6
        assert macro == pytest.approx(average, abs=0.0101)
    # The text of Section 5 rounds to one digit.
    assert [round(inclusion["macro"][i], 1) for i in (0, 4)] == [11.2, 15.7]
    assert inclusion["sets"]["megadepth1500"] == pytest.approx(
        [55.1, 55.9, 52.1, 47.4, 42.5], abs=0.051
    )
    auc = paper_numbers("q1_auc")
    for before, after, (low, high) in zip(*auc["macro"], auc["macro_range"], strict=True):
        assert low <= after - before <= high

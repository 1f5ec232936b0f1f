"""Q2: four estimators on the same graphs, their differences and their times."""

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.options import Options
from manymatch_lab.experiments import q2_scores as q2
from manymatch_lab.experiments.q2_scores import complementarity, mean_times
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.pose_runs import PoseSets
from tests.support.synthetic_runs import SmallGraphs
from tests.support.synthetic_spreads import spread, synthetic_result

NAMES = ("cm", "hcm", "mcm", "hcm-mcm")


def test_complementarity_by_hand():
    aucs = ([50, 60, 70], [40, 50, 60], [45, 55, 65], [51, 59, 66])
    auc = {name: spread([values]) for name, values in zip(NAMES, aucs, strict=True)}
    assert complementarity({"auc": auc}) == pytest.approx([6.0, 4.0, 1.0])


def small_run(tmp_path):
    sets = PoseSets([SmallGraphs(3)], tmp_path, workers=1)
    options = Options(min_iterations=50, max_iterations=100)
    return q2.run(sets, seeds=2, gms=False, timed_pairs=2, options=options)


def test_table_has_the_form_of_the_paper_and_the_time_of_complete_evaluations(tmp_path):
    data = small_run(tmp_path)
    auc, _, runtime = q2.tables(data)
    (title,) = [entry["title"] for entry in data["runs"][0]["sets"]]
    assert auc.header == ["Configuration", title, "Average"]
    rows = [[cell.text for cell in row] for row in auc.cells()]
    assert [row[0] for row in rows] == [
        label for name in q2.TITLES.values() for label in (name, "  paper")
    ]
    means = data["runs"][0]["sets"][0]["auc"]["hcm-mcm"]["mean"]
    assert rows[6][1] == " / ".join(f"{value:.1f}" for value in means)
    known = paper_numbers("q2_auc")["auc"]["hcm-mcm"].values()
    assert rows[7][2].startswith(f"{np.mean([values[0] for values in known]):.1f} / ")
    for text, form in ((auc.markdown(), "**"), (auc.latex(), r"\textbf"), (auc.html(), "<b>")):
        assert form in text
    us = data["runs"][0]["sets"][0]["us"]
    cells = [cell.text for cell in runtime.cells()[0]]
    assert cells[2:4] == [f"{us['complete hcm']:.2f}", f"{us['complete mcm']:.2f}"]
    assert cells[5] == f"{us['hcm']:.2f} / {us['mcm']:.2f}"


def test_measured_from_runs():
    # With one pair, an error of 0 is an AUC of 100 and one of 180 an AUC of 0.
    wrong = synthetic_result(
        [[180.0], [180.0]], [7], seconds=[[1.0], [None]], iterations=[[5], [5]]
    )
    right = synthetic_result([[0.0], [180.0]], [9], seconds=[[1.0], [3.0]], iterations=[[1], [3]])
    results = {"cm": wrong, "hcm": wrong, "mcm": right, "hcm-mcm": right}
    found = q2._measured(results)
    assert found["median_edges"] == 9.0
    assert found["auc"]["mcm"]["mean"] == pytest.approx([50.0] * 3)
    assert found["delta"]["cm"]["sd"] == pytest.approx([5000**0.5] * 3)
    assert found["delta"]["mcm"]["max"] == [0.0] * 3
    assert found["over_cm"]["hcm"]["mean"] == [0.0] * 3
    assert found["seconds"] == {"cm": 1.0, "hcm": 1.0, "mcm": 2.0, "hcm-mcm": 2.0}
    macro = q2._macro([(None, results), (None, dict.fromkeys(NAMES, wrong))])
    assert macro["macro_delta"]["hcm"]["mean"] == pytest.approx([25.0] * 3)


def test_times_are_measured_once(tmp_path, monkeypatch):
    source, seen, options = SmallGraphs(5), Association.uncapped(3), Options()
    times = mean_times(source, seen, options, 5, 3, tmp_path)
    assert times["pairs"] == 3
    assert times["hcm"] > 0
    assert times["mcm"] > 0
    # First, middle and last pair.
    assert source.asked == [0, 2, 4]
    monkeypatch.setattr(q2, "scorer_times", lambda *_: {"hcm": 1e-6, "mcm": 2e-6})
    assert mean_times(source, seen, options, 5, 3, tmp_path) == times
    other = mean_times(source, Association.uncapped(2), options, 5, 3, tmp_path)
    assert other == pytest.approx({"hcm": 1.0, "mcm": 2.0, "pairs": 3})


def test_nothing_is_timed_without_pairs_or_enough_edges(tmp_path):
    source = SmallGraphs(2)
    assert mean_times(source, Association.paper(), Options(), 2, 0, tmp_path) is None
    # Four edges are no sample.
    assert mean_times(source, Association(gms=True, keep=4), Options(), 2, 2, tmp_path) is None
    assert mean_times(source, Association(gms=True, keep=4), Options(), 2, 2, tmp_path) is None

"""Sensitivity: sweeps of q and delta."""

import inspect

import pytest

from manymatch.options import Options
from manymatch_lab.experiments import sensitivity
from manymatch_lab.numbers import paper_numbers
from tests.support.synthetic_spreads import as_json, settings, synthetic_result, texts

SIGNATURE = inspect.signature(sensitivity.run).parameters
QS, DELTAS = SIGNATURE["qs"].default, SIGNATURE["deltas"].default
GRID = [(0.1, 0.01), (0.3, 0.01), (0.9, 0.01), (0.3, 0.001), (0.3, 0.1)]


@pytest.fixture
def data():
    sets = [
        {
            "name": "one",
            "title": "one",
            "pairs": 3,
            "mcm": [10.0, 20.0, 30.0],
            "hcm": [[5.0, 6.0, 7.0], [6.0, 8.0, 7.0], [9.0, 7.0, 7.0], [1.0] * 3, [2.0] * 3],
            "hcm-mcm": [
                [10.0, 20.5, 30.0],
                [10.5, 20.0, 30.0],
                [11.0, 19.5, 30.0],
                [10.0, 20.0, 29.75],
                [12.5, 20.0, 31.0],
            ],
        }
    ]
    run = {"representation": "sift", "sets": sets, "macro": sets[0]}
    grid = [{"q": q, "delta": delta} for q, delta in GRID]
    more = {"grid": grid, "default": {"q": 0.3, "delta": 0.01}}
    return as_json({"settings": settings(1, **more), "runs": [run], "missing": []})


def test_every_setting_is_run_once():
    grid = sensitivity._settings(QS, DELTAS, Options())
    assert len(grid) == len(set(grid)) == paper_numbers("sensitivity")["settings"]
    assert grid.count((0.3, 0.01)) == 1
    assert [q for q, delta in grid if delta == 0.01] == [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9]
    swept = sorted(delta for q, delta in grid if q == 0.3)
    assert swept == [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]
    # A default that was not asked for is there all the same.
    assert (0.3, 0.01) in sensitivity._settings((0.5,), (0.1,), Options())


def test_variation_by_hand(data):
    table = sensitivity.tables(data)[0]
    rows = texts(table)
    # q: the first three settings; delta: the second, fourth and fifth.
    assert rows[0] == ["one", "HCM", "4.00", "2.00", "0.00", "5.00", "7.00", "6.00"]
    assert rows[1] == ["", "HCM→MCM", "1.00", "1.00", "0.00", "2.50", "0.00", "1.25"]
    assert rows[2][2:] == ["at most 0.76", "", "", "at most 0.83", "", ""]
    assert "1.00 points over q and 2.50 over δ (paper: 0.76 and 0.83)" in table.notes[0]


def test_cells_that_match_or_exceed_mcm(data):
    # Below MCM: 19.5 against 20 and 29.75 against 30; equal counts as matching.
    sentence = sensitivity.tables(data)[0].notes[1]
    assert "matches or exceeds MCM in 13 of 15 cells" in sentence
    assert "paper: 211 of 216" in sentence
    assert "largest deficit is 0.50 points (paper: 0.21)" in sentence


def test_measured_from_runs():
    wrong, right = synthetic_result([[180.0, 180.0]]), synthetic_result([[0.0, 0.0]])
    names = [
        sensitivity._name(estimator, q, delta)
        for estimator in ("hcm", "hcm-mcm")
        for q, delta in GRID
    ]
    first = {"mcm": right, **dict.fromkeys(names, wrong), "hcm_q0.9_delta0.01": right}
    second = {"mcm": wrong, **dict.fromkeys(names, wrong)}
    found = sensitivity._measured([first, second], GRID)
    assert found["mcm"] == pytest.approx([50.0] * 3)
    assert found["hcm"][2] == pytest.approx([50.0] * 3)
    assert found["hcm"][0] == [0.0] * 3
    assert len(found["hcm-mcm"]) == len(GRID)

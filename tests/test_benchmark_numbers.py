"""What the benchmarks compute from their measurements."""

import functools
import importlib

import numpy as np
import pytest

from benchmarks.speed import adaptive, callgrind, compare, kernels, match, scaling
from manymatch.evaluate import pose_auc


def test_what_got_slower_is_said_by_name():
    before = {"a": 100.0, "b": 100.0, "c": 100.0, "gone": 1.0}
    now = {"c": 97.0, "a": 103.0, "b": 101.5, "new": 5.0}
    rows = compare.verdicts(before, now, 0.02)
    assert [(name, word) for name, *_, word in rows] == [
        ("a", "slower"),
        ("b", "same"),
        ("c", "faster"),
    ]
    assert rows[0][1:3] == (100.0, 103.0)


def test_a_line_has_exponent_one_only_through_the_origin():
    edges = np.array([1000.0, 2000.0, 5000.0, 10000.0])
    through = scaling.fits(edges, 0.03 * edges)
    assert through["exponent"] == pytest.approx(1.0)
    assert through["largest_deviation_from_line"] < 1e-9
    offset = scaling.fits(edges, 40.0 + 0.03 * edges)
    assert offset["milliseconds_at_0"] == pytest.approx(40.0)
    assert offset["milliseconds_per_1000"] == pytest.approx(30.0)
    assert offset["exponent"] < 0.95
    square = scaling.fits(edges, 1e-6 * edges**2)
    assert square["exponent"] == pytest.approx(2.0)
    assert square["largest_deviation_from_line"] > 0.2


def test_adaptive_summary_takes_medians_and_auc():
    errors = [0.1, 2.0, 30.0]
    runs = {"0.2": {"x": {"milliseconds": [3.0, 1.0, 9.0], "error_deg": errors}}}
    (record,) = adaptive.summarise(runs)
    (row,) = record["by_ratio"]
    assert record["name"] == "x"
    assert (row["ratio"], row["milliseconds"], row["error_deg"]) == (0.2, 3.0, 2.0)
    assert row["auc5"] == pytest.approx(pose_auc(errors, (5,))[0])


def test_ratios_divide_by_the_right_kernel():
    best = {
        kernels.HCM.format("typical"): 1.0,
        kernels.PLAIN_HCM.format("typical"): 8.0,
        kernels.HCM.format("good"): 2.0,
        kernels.PLAIN_HCM.format("good"): 10.0,
        kernels.FIVE_POINT: 1.0,
        kernels.POSELIB: 10.0,
        kernels.POSELIB_CALL: 2.0,
    }
    assert list(kernels.ratios(best).values()) == [0.125, 0.2, 0.1, 0.125]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("vfmadd231pd %ymm1,%ymm2,%ymm3", 8),
        ("vfnmadd213ps 0x40(%rax),%zmm2,%zmm3", 32),
        ("vmulpd %ymm1,%ymm2,%ymm3", 4),
        ("vmaxps %ymm0,%ymm4,%ymm0", 8),
        ("mulpd  %xmm1,%xmm2", 2),
        ("vdivsd %xmm1,%xmm2,%xmm3", 1),
        ("vaddss %xmm1,%xmm2,%xmm3", 1),
        ("vmovapd %ymm1,%ymm2", 0),
        ("add    $0x8,%rax", 0),
        ("vaddsubpd %ymm1,%ymm2,%ymm3", 0),
    ],
)
def test_operations_of_an_instruction(line, count):
    assert callgrind.operations(line) == count


def test_a_phase_of_match_is_counted_without_those_inside_it(monkeypatch):
    wall, cpu = iter(range(0, 100, 10)), iter(range(10))
    monkeypatch.setattr(match.time, "perf_counter", lambda: next(wall))
    monkeypatch.setattr(match.time, "process_time", lambda: next(cpu))
    clock = match.Clock()
    with clock.phase("all"):
        with clock.phase("part"):
            pass
        with clock.phase("part"), clock.phase("inner"):
            pass
    assert clock.times == {"part": (30, 3), "inner": (10, 1), "all": (30, 3)}
    shown = match.table({"cold": {"all": (0.03, 0.003), "total": (1.0, 2.0)}, "cached": {}})
    assert shown.splitlines()[2:] == ["| all | 30 / 3 | – |", "| total | 1000 / 2000 | – |"]


def test_the_phases_of_match_are_functions_that_exist():
    for module, name, _ in match.FUNCTIONS:
        owner = importlib.import_module(f"manymatch.{module}")
        assert callable(functools.reduce(getattr, name.split("."), owner))

"""What the benchmarks compute from their measurements."""

import functools
import importlib

import numpy as np
import pytest

from benchmarks.accuracy import exactness, fit_constants, focal_samples, never_worse
from benchmarks.speed import adaptive, callgrind, compare, kernels, match, scaling
from manymatch import pose_auc, pose_error_deg
from manymatch.estimate.uncertainty import rotation
from manymatch.geometry.pose import RelativePose


def test_what_got_slower_is_said_by_name():
    before = {"a": 100.0, "b": 100.0, "c": 100.0, "gone": 1.0}
    now = {"c": 97.0, "a": 103.0, "b": 101.5, "new": 5.0}
    rows = compare.verdicts(before, now, 0.02)
    assert [row[0] + row[-1] for row in rows] == ["aslower", "bsame", "cfaster"]
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
    monkeypatch.setattr(match.time, "thread_time", lambda: next(cpu))
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


def judged(errors, others):
    """The cells that say whether a set holds, and the ratio of medians."""
    errors = {name: np.tile(values, (2, 1)) for name, values in {**others, "auto": errors}.items()}
    row = exactness.judgement_row("set", errors, "auto")
    header = exactness.judgement_table({"r": {"s": errors}}, "auto").header
    assert len(row) == len(header)
    return row[header.index("within 0.5")], row[header.index("ratio")], row[2]


def test_auto_is_judged_against_the_best_of_the_others_at_each_angle():
    exact, robust = [0.1, 0.2, 40.0, 40.0], [0.4, 0.5, 0.6, 2.0]
    others = {"PoseLib 1 px": np.array(exact), "two-stage": np.array(robust)}
    within, ratio, best = judged(np.array(robust), others)
    assert (within, ratio) == ("yes", "(1.00)")  # PoseLib does not solve the set
    assert best.startswith("two-stage")
    assert judged(np.array(exact), others)[0] == "no"
    solved = {"PoseLib 1 px": np.array([0.1, 0.2, 0.2, 0.3]), "two-stage": np.array(robust)}
    assert judged(np.array([0.1, 0.2, 0.2, 0.3]), solved)[:2] == ("yes", "1.00 yes")
    assert judged(np.array([0.11, 0.22, 0.22, 0.3]), solved)[:2] == ("yes", "1.10 no")


def test_the_best_threshold_of_a_representation_is_bold():
    near, far = np.full((5, 4), 0.5), np.full((5, 4), 8.0)
    found = {"sift": {"a": {"auto 1 px": near, "auto 2 px": far}}}
    table = exactness.threshold_table(found, ["auto 1 px", "auto 2 px"])
    (line,) = [row for row in table.rows if row[0] == "sift, AUC@5°"]
    assert [(cell.text, cell.bold) for cell in line[1:]] == [
        (f"{pose_auc([0.5] * 4, (5,))[0]:.1f}", True),
        ("0.0", False),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_six_points_tell_pose_and_shared_focal_length(seed):
    rng = np.random.default_rng(seed)
    focal = np.exp(rng.normal(0.0, 0.4))
    pose = RelativePose(rotation(rng.normal(0.0, 0.2, 3)), rng.normal(size=3))
    points = rng.uniform((-1.0, -1.0, 3.0), (1.0, 1.0, 6.0), (6, 3))
    moved = points @ pose.R.T + pose.t
    x0, x1 = (focal * side[:, :2] / side[:, 2:] for side in (points, moved))
    found = [
        (f, focal_samples.pose_of(np.diag([f, f, 1.0]) @ F @ np.diag([f, f, 1.0]), x0 / f, x1 / f))
        for f, F in focal_samples.six_point(x0, x1)
    ]
    f, nearest = min(found, key=lambda one: abs(one[0] - focal))
    assert f == pytest.approx(focal, rel=1e-6)
    assert pose_error_deg(nearest, pose.R, pose.t) < 1e-4


def test_luck_in_the_choice_of_the_best_line_is_not_counted():
    limits, lines = (5, 10, 20), np.random.default_rng(0).uniform(0, 20, (9, 2, 100))
    scores = np.array([np.mean(pose_auc(e.ravel(), limits)) for e in lines])
    seen, unseen = [], []
    for i, own in enumerate(lines):  # all are equally good
        others = np.delete(lines, i, axis=0)
        seen.append(scores[i] - np.delete(scores, i).max())
        mean, low, high = never_worse.on_other_pairs(own, others, limits)
        assert (low < mean).all()
        assert (mean < high).all()
        unseen.append(mean.mean())
    assert np.mean(seen) < -2.5
    assert np.mean(unseen) > -1.0
    # A line that is better on every pair is found, and is better on the other half too.
    better = np.maximum(lines[0] - 2.0, 0.0)
    assert (never_worse.on_other_pairs(lines[0], [*lines[1:], better], limits)[2] < 0).all()
    assert np.isnan(never_worse.on_other_pairs(lines[0][:, :1], [better[:, :1]], limits)).all()


def test_the_constant_of_a_model_counts_all_estimates_alike():
    rng = np.random.default_rng(3)
    names = np.repeat(["large", "small", "other"], (300, 30, 90))
    x = rng.normal(size=(len(names), 2))
    # Models of the small set are right far more often than their numbers say.
    odds = x @ (2.0, 1.0) + 3.0 * (names == "small")
    true = (rng.random(len(names)) < 1.0 / (1.0 + np.exp(-odds))).astype(float)
    alike = np.ones(len(names))
    by_set = np.array([1.0 / np.sum(names == name) for name in names])
    known = by_set, alike, alike, alike > 0, alike < 0
    columns = fit_constants.Columns(names, x, true, *known, growing=True)
    theta = columns.fit(alike > 0)
    said = columns.probability(theta)
    # Of the right ones as much is missing as the wrong ones have too much, in the mean.
    assert np.mean(1.0 - said[true == 1]) == pytest.approx(np.mean(said[true == 0]), abs=1e-6)
    slopes = fit_constants.fit_growing(x, true, fit_constants.halved(by_set, true), alike)
    np.testing.assert_array_equal(theta[1:], slopes[1:])
    assert abs(theta[0] - slopes[0]) > 0.1
    # What a set says itself is not in its probabilities.
    own = names == "small"
    turned = np.where(own, 1.0 - true, true)
    other = fit_constants.Columns(names, x, turned, *known, growing=True)
    np.testing.assert_array_equal(columns.left_out()[own], other.left_out()[own])


def test_estimates_of_several_problems_are_kept_together(tmp_path):
    rows = [
        {
            "problem": name,
            "features": np.arange(float(width)),
            "matches": np.ones((size, 2)),
            "true": np.ones(size, dtype=bool),
        }
        for name, width, size in (("homography", 3, 4), ("rigid", 5, 0), ("relative", 4, 2))
    ]
    fit_constants.save(tmp_path / "rows.npz", rows)
    again = fit_constants.load(tmp_path / "rows.npz")
    for before, after in zip(rows, again, strict=True):
        assert before["problem"] == after["problem"]
        np.testing.assert_array_equal(before["features"], after["features"])
        assert len(before["true"]) == len(after["true"])

"""Options: defaults, types, ranges, unknown names."""

import dataclasses
import json
import pickle
from collections.abc import Iterable
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manymatch
from manymatch import AssociationGraph
from manymatch._validate import METHODS
from manymatch.options import AUTO_PARTS, OptionChanges, OptionKeywords, Options
from tests.oracles.problems import random_problem

DEFAULTS = Options().to_dict()
INTEGERS = ("min_iterations", "max_iterations", "pool_size", "seed", "threads")
REALS = tuple(name for name in DEFAULTS if name not in (*INTEGERS, "disable"))
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", [*INTEGERS, *REALS])
@pytest.mark.parametrize(
    "value", [None, "1", True, np.True_, 1j, [1], (1, 2), {}, np.array([1, 2]), object()]
)
def test_wrong_type_names_the_field(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        Options(**{name: value})


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [1.0, 1.5, np.float64(2.0), NAN])
def test_integer_field_refuses_floats(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be an integer"):
        Options(**{name: value})


OUT_OF_RANGE = {
    "threshold_px": [0, 5e-324, 9e-10, 1.1e9, -1.0, NAN, INF, -INF, 10**400],
    "min_iterations": [0, -1, 100_001, 2**31],
    "max_iterations": [0, -1, 2**31, 2**40],
    "confidence": [0, 1, 1.5, -0.1, NAN, INF],
    "safety": [0, -3.0, NAN, INF],
    "pool_size": [0, -1, 2**31],
    "q": [0, 5e-324, 1e-12, 1, -0.3, 2, NAN],
    "delta": [0.0, 1e-300, 1e-12, 1.0, -0.01, NAN],
    "guidance": [-0.001, 1.001, NAN, INF],
    "seed": [-1, 2**64],
    "threads": [-1, 2**31],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
)
def test_out_of_range_names_the_field(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        Options(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threshold_px", 1e-9), ("threshold_px", 1e9), ("confidence", 1e-9), ("q", 0.999)),
        *(("min_iterations", 1), ("min_iterations", 100_000), ("max_iterations", 2**31 - 1)),
        *(("pool_size", 1), ("guidance", 0), ("guidance", 1), ("seed", 2**64 - 1)),
        ("threads", 64),
    ],
)
def test_limits_are_legal(name, value):
    assert getattr(Options(**{name: value}), name) == value


EXTREMES = {
    **dict.fromkeys(REALS, (5e-324, 1e-160, 1.1e-12, 1e-9, 1 - 2**-53, 1e9, 1e155, 1e308)),
    **dict.fromkeys(INTEGERS, (0, 1, 7, 2**31 - 1, 2**64 - 1)),
    "disable": ((), tuple(AUTO_PARTS)),
}
GRAPH = random_problem(np.random.default_rng(1), n=20, max_degree=3)


@given(
    names=st.sets(st.sampled_from(sorted(EXTREMES)), min_size=1, max_size=2),
    method=st.sampled_from(METHODS),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_extremes_give_finite_results_or_name_the_field(names, method, data):
    fields = {name: data.draw(st.sampled_from(EXTREMES[name])) for name in names}
    try:
        options = Options(**{"min_iterations": 1, **fields})
    except ValueError as refused:
        assert any(name in str(refused) for name in names)  # noqa: PT017
        return
    options = options.replace(min_iterations=20, max_iterations=20)
    points = 800.0 * GRAPH.x0, 800.0 * GRAPH.x1
    graph = AssociationGraph(*points, GRAPH.edges, rank=np.ones(len(GRAPH.edges)))
    camera = np.diag([800.0, 800.0, 1.0])
    pose = manymatch.estimate_relative_pose(graph, camera, camera, method, options)
    for found in (pose, manymatch.estimate_homography(graph, method, options)):
        numbers = [found.hcm, found.worst_pooled, found.match_probability]
        numbers.append(getattr(found, "homography", None))
        plain = [np.asarray(x).tolist() for x in numbers if x is not None]
        json.dumps([plain, found.options.to_dict()], allow_nan=False)
    if pose.success:
        parts = pose.pose.R.tolist(), pose.pose.t.tolist(), pose.parallax_deg
        json.dumps(parts, allow_nan=False)
        score = manymatch.score_pose(graph, camera, camera, pose.pose, options)
        assert np.isfinite(score.hcm)
        manymatch.assess(pose)


def test_numbers_of_numpy_become_plain_ones():
    for name in INTEGERS:
        value = getattr(Options(**{name: np.uint16(1_000)}), name)
        assert (type(value), value) == (int, 1_000)
    for name in REALS:
        value = getattr(Options(**{name: np.float32(0.25)}), name)
        assert (type(value), value) == (float, 0.25)
    assert type(Options(threshold_px=2).threshold_px) is float


@pytest.mark.parametrize("values", [None, 3, "abc", [1, 2], {1: 2}])
def test_from_dict_refuses_what_is_no_mapping_of_names(values):
    with pytest.raises(ValueError, match=r"^values must"):
        Options.from_dict(values)


def test_dict_round_trip_through_json():
    options = Options(threshold_px=0.75, seed=2**64 - 1, guidance=0.5, disable=list(AUTO_PARTS)[:2])
    assert Options.from_dict(json.loads(json.dumps(options.to_dict()))) == options


@pytest.mark.parametrize("name", AUTO_PARTS)
def test_disable_one_part(name):
    for names in ([name], (name,), {name}, {name: 1}, iter([name]), np.array([name])):
        assert Options(disable=names).disable == (name,)
    assert AUTO_PARTS[name].endswith(".")


def test_disable_is_kept_in_one_order_and_each_name_once():
    names = list(AUTO_PARTS)
    options = Options(disable=[*reversed(names), names[0], names[-1]])
    assert options.disable == tuple(names)
    assert options == Options(disable=names)
    assert hash(options) == hash(Options(disable=names))
    assert options != Options(disable=names[1:])
    assert all(type(name) is str for name in Options(disable=np.array(names)).disable)
    assert options.replace(seed=1).disable == tuple(names)
    assert options.to_dict()["disable"] == names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *(([bad], "") for bad in (None, 1, b"filter", "Filter", "", np.nan, ["filter"], {})),
        # The letters of a single name would be names.
        *((bad, "be a sequence of names") for bad in (None, 1, True, 0.5, object(), "filter")),
    ],
)
def test_disable_refuses_other_values(names, message):
    with pytest.raises(ValueError, match=rf"^disable must {message}"):
        Options(disable=names)


def test_replace_keeps_the_rest_and_checks_the_whole():
    options = Options(q=0.4, max_iterations=5_000)
    assert options.replace(seed=3) == Options(q=0.4, max_iterations=5_000, seed=3)
    with pytest.raises(ValueError, match=r"^min_iterations"):
        options.replace(max_iterations=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 6
    assert hash(options) == hash(Options(q=0.4, max_iterations=5_000))
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


def test_max_iterations_below_the_default_minimum_lowers_it():
    assert Options().changed(max_iterations=10, seed=2) == Options(
        min_iterations=10, max_iterations=10, seed=2
    )
    assert Options().changed(max_iterations=5_000) == Options(max_iterations=5_000)
    for options, changes in (
        (Options(min_iterations=500), {"max_iterations": 10}),
        (Options(), {"max_iterations": 10, "min_iterations": 20}),
    ):
        with pytest.raises(ValueError, match=r"^min_iterations must be at most max_iterations"):
            options.changed(**changes)
    with pytest.raises(ValueError, match=r"^max_iterations must be an integer"):
        Options().changed(max_iterations=0)


def test_keywords_of_functions_are_typed_as_the_fields():
    hints, fields = get_type_hints(OptionKeywords), get_type_hints(Options)
    assert hints.pop("disable") == Iterable[str]
    assert hints == {name: kind for name, kind in fields.items() if name != "disable"}
    assert get_type_hints(OptionChanges).keys() == fields.keys() - {"threads"}

"""Two runs, pair by pair."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from manymatch import Options
from manymatch.associate.candidates import Association
from manymatch_lab.evaluate.compare import SetComparison, compare_runs, comparison_table
from manymatch_lab.evaluate.records import Records
from manymatch_lab.evaluate.run import RunConfig, RunResult, run_set, run_sets
from manymatch_lab.evaluate.statistics import paired_difference
from tests.support.command import one_sentence, run
from tests.support.synthetic_runs import SmallGraphs

QUICK = RunConfig(
    "hcm-mcm", Association.uncapped(5), Options(min_iterations=40, max_iterations=40), seeds=2
)
OTHER = replace(QUICK, estimator="mcm")


def test_difference_is_that_of_the_errors(tmp_path):
    results = run_set(SmallGraphs(5), {"a": QUICK, "b": OTHER}, tmp_path)
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    (one,) = found.sets
    assert one.difference == paired_difference(results["a"].errors, results["b"].errors)
    assert one.left_out == 0
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["sets"]["Small"]["pairs"] == 5
    assert "Small" in comparison_table(found).markdown()


def test_only_common_pairs_count(tmp_path):
    run_set(SmallGraphs(5), {"a": QUICK}, tmp_path)
    run_set(SmallGraphs(5), {"b": OTHER}, tmp_path, limit=3)
    (one,) = compare_runs(tmp_path / "a", tmp_path / "b").sets
    assert (len(one.names), one.left_out) == (3, 2)


def test_several_sets_have_a_macro_row(tmp_path):
    sources = [SmallGraphs(2), SmallGraphs(3, name="other", title="Other")]
    for label, config in (("a", QUICK), ("b", OTHER)):
        run_sets(sources, {"run": config}, tmp_path / label)
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    assert [one.title for one in found.sets] == ["Other", "Small"]
    mean = np.mean([one.difference.mean for one in found.sets], axis=0)
    np.testing.assert_allclose(found.macro.mean, mean)
    assert comparison_table(found).rows[-1][0] == "macro"


class NamedSource(SmallGraphs):
    """Says also in its header what its candidates come from."""

    @property
    def identity(self):
        return {**super().identity, "representation": self.representation}


def test_a_method_and_a_preset_are_chosen(tmp_path):
    shared = [NamedSource(2, title="A"), NamedSource(3, name="other", title="Other")]
    for representation, sources in (("one", shared), ("two", [*shared, NamedSource(2, name="x")])):
        named = [replace(source, representation=representation) for source in sources]
        run_sets(named, {"m": QUICK, "n": OTHER}, tmp_path)
    two = {"methods": ("m", "n"), "presets": ("one", "two")}
    for chosen, sentence in (
        ({}, r"two on other: .*; --method chooses one of m, n, --preset"),
        ({"methods": ("m", "n")}, "--preset chooses one of one, two"),
        ({**two, "methods": ("m", "k")}, "method of second must be one of 'm', 'n', got 'k'"),
        ({"presets": ("three", "one")}, "preset of first must be one of 'one', 'two'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            compare_runs(tmp_path, tmp_path, **chosen)
    found = compare_runs(tmp_path, tmp_path, **two)
    assert [one.title for one in found.sets] == ["Other", "A"]
    assert (found.only_first, found.only_second) == ((), ("Small",))
    paths = [tmp_path / "one" / "small" / "m", tmp_path / "two" / "small" / "n"]
    (alone,) = compare_runs(*paths).sets
    assert alone.difference == found.sets[1].difference
    assert "only the second has it: Small." in comparison_table(found).markdown()
    assert found.to_dict()["only_second"] == ["Small"]


def test_comparisons_print_short_and_as_a_table(tmp_path):
    run_set(SmallGraphs(40), {"a": QUICK, "b": OTHER}, tmp_path)
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    assert len(repr(found)) < 250
    assert "1 set, 40 pairs; AUC@5/10/20 " in repr(found)
    assert repr(found.sets[0]).startswith("SetComparison(Small: 40 pairs; AUC@5/10/20 ")
    lines = str(found).splitlines()
    assert lines[0] == f"{tmp_path / 'a'} (synthetic; a) minus {tmp_path / 'b'} (synthetic; b)"
    assert lines[1].split()[:2] == ["set", "pairs"]
    assert lines[2].split()[:2] == ["Small", "40"]
    assert all(len(line) < 240 for line in lines)


def test_a_pair_that_one_run_could_not_read_is_compared(tmp_path):
    run_set(SmallGraphs(3), {"a": QUICK}, tmp_path)
    run_set(SmallGraphs(3, broken=frozenset({1})), {"b": OTHER}, tmp_path)
    (one,) = compare_runs(tmp_path / "a", tmp_path / "b").sets
    assert (len(one.names), one.left_out) == (3, 0)
    assert one.second[:, 1].tolist() == [180.0, 180.0]
    # Other names are another list.
    kept = Records(tmp_path / "b", RunResult.load(tmp_path / "b").header)
    kept.by_index[2]["name0"] = "other"
    kept.write(0)
    (one,) = compare_runs(tmp_path / "a", tmp_path / "b").sets
    assert (len(one.names), one.left_out) == (2, 2)


def test_counts_by_hand():
    one = SetComparison(
        "x",
        [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")],
        np.array([[1.0, 9.0, 3.0, 90.0]]),
        np.array([[4.0, 2.0, 3.5, 170.0]]),
    )
    assert one.counts() == {"better": 1, "worse": 1, "alike": 2}
    assert one.largest_changes(2) == [("c", "d", 9.0, 2.0), ("a", "b", 1.0, 4.0)]


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("a", "nothing", "second must be a folder of manymatch eval"),
        (".", "a", "first must have one run on every set, got two on small: a and b"),
        ("a", "c", "second must have the number of repetitions of first on small, 2, got 1"),
        ("a", "other", "second must have a set of first \\(small\\), got other"),
    ],
)
def test_runs_that_do_not_belong_together(tmp_path, first, second, sentence):
    run_set(SmallGraphs(2), {"a": QUICK, "b": OTHER}, tmp_path / "x")
    run_set(SmallGraphs(2), {"c": replace(QUICK, seeds=1)}, tmp_path)
    run_set(SmallGraphs(2, name="other"), {"other": QUICK}, tmp_path)
    base = {"a": tmp_path / "x" / "a", ".": tmp_path / "x"}
    with pytest.raises(ValueError, match=sentence):
        compare_runs(base.get(first, tmp_path / first), base.get(second, tmp_path / second))


def test_folders_that_are_no_evaluation_are_one_sentence(tmp_path):
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "run.json").write_text('{"format": 1, "config": {}}')
    for folder, says in (
        ("batch", "'.*batch', which manymatch batch wrote; manymatch eval LIST runs its pairs"),
        ("nowhere", r"'.*nowhere' \(there is no such file\)"),
        (".", "got "),
    ):
        for others in ((), (tmp_path / folder,)):
            sentence = one_sentence(run("compare", tmp_path / folder, *others))
            if others or folder == "nowhere":
                assert re.search(f"first must be a folder of manymatch eval, .*{says}", sentence)

"""Ablation: "auto" against rank-one and two-stage, and without each of its ingredients."""

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.geometry.pose import pose_auc
from manymatch.options import AUTO_PARTS, Options
from manymatch_lab.evaluate.inputs import SyntheticGraphs
from manymatch_lab.experiments import ablation
from manymatch_lab.experiments import q3_rank_one as q3
from manymatch_lab.pose_runs import PoseSets
from tests.support.synthetic_spreads import flat, spread, synthetic_result

OTHERS = ("rank-one", "many")


class Recorded(PoseSets):
    """Sets that only record what they should run."""

    def run(self, configs, settings, *_):
        return {"configs": configs, "settings": settings}


def test_runs_what_q3_runs_and_auto(tmp_path):
    """Same names, same settings: a folder of q3 serves here, and the other way round."""
    arguments = {"seeds": 3, "gms": False, "options": Options(min_iterations=7, max_iterations=70)}
    theirs = q3.run(Recorded([], tmp_path), **arguments)["configs"]
    ours = ablation.run(Recorded([], tmp_path), **arguments)["configs"]
    assert {name: ours[name] for name in OTHERS} == theirs
    assert list(ours) == [*OTHERS, "auto", *(f"without-{name}" for name in AUTO_PARTS)]
    for name, config in ours.items():
        if name not in OTHERS:
            assert config.estimator == "auto"
            assert config.association == Association(k=5, max_edges=2048, gms=False, keep=None)
            left_out = () if name == "auto" else (name.removeprefix("without-"),)
            wanted = Options(min_iterations=7, max_iterations=70, disable=left_out)
            assert (config.options, config.seeds) == (wanted, 3)


def test_parts_can_be_chosen(tmp_path):
    last = list(AUTO_PARTS)[-1]
    found = ablation.run(Recorded([], tmp_path), only=[last, last])
    assert list(found["configs"]) == [*OTHERS, "auto", f"without-{last}"]
    assert found["settings"]["parts"] == {last: AUTO_PARTS[last]}
    found = ablation.run(Recorded([], tmp_path), ablation=False)
    assert list(found["configs"]) == [*OTHERS, "auto"]


def synthetic_results(rng, pairs, names=(*OTHERS, "auto", "without-x")):
    """Runs with errors, times and iterations of two seeds."""
    results = {}
    for name in names:
        errors = rng.uniform(0.0, 25.0, (2, pairs)).tolist()
        seconds = rng.uniform(0.1, 1.0, (2, pairs)).tolist()
        iterations = rng.integers(1_000, 2_000, (2, pairs)).tolist()
        results[name] = synthetic_result(errors, seconds=seconds, iterations=iterations)
    return results


def test_measured_from_runs():
    """Accuracy weighs sets equally, cost weighs pairs equally; all of it by plain loops."""
    rng = np.random.default_rng(5)
    sets = [synthetic_results(rng, 3), synthetic_results(rng, 7)]
    found = ablation._measured(sets)
    auc = {}
    for name in sets[0]:
        by_seed = []
        for seed in range(2):
            values = [pose_auc(entry[name].errors[seed], (5, 10, 20)) for entry in sets]
            by_seed.append([sum(column) / 2 for column in zip(*values, strict=True)])
        auc[name] = by_seed
        expected = spread(by_seed)
        assert found["auc"][name]["mean"] == pytest.approx(expected["mean"])
        assert found["auc"][name]["sd"] == pytest.approx(expected["sd"])
        trials = [t for entry in sets for r in entry[name].records for t in r["trials"]]
        for column in ("seconds", "iterations"):
            mean = sum(trial[column] for trial in trials) / 20
            assert found[column][name] == pytest.approx(mean)
    assert list(found["delta"]) == [*OTHERS, "without-x"]
    for name, delta in found["delta"].items():
        gains = np.subtract(auc["auto"], auc[name])
        assert delta["mean"] == pytest.approx(gains.mean(axis=0).tolist())
        assert delta["min"] == pytest.approx(gains.min(axis=0).tolist())
        assert all(low <= high for low, high in delta["interval"])


def test_tuned_sets_and_others_are_averaged_apart():
    rng = np.random.default_rng(6)
    names = ("easy", "planar", "control")
    entries = [(SyntheticGraphs(name, 5), synthetic_results(rng, 4)) for name in names]
    assert [group["name"] for group in ablation._groups(entries, ())] == ["all"]
    every, tuned, others = ablation._groups(entries, ["synthetic-planar"])
    assert every["sets"] == ["synthetic-easy", "synthetic-planar", "synthetic-control"]
    assert (tuned["name"], tuned["sets"]) == ("tuned on", ["synthetic-planar"])
    assert (others["name"], others["sets"]) == ("others", ["synthetic-easy", "synthetic-control"])
    for group, members in ((every, entries), (tuned, entries[1:2]), (others, entries[::2])):
        expected = ablation._measured([results for _, results in members])
        assert {key: group[key] for key in expected} == expected
    # A group without sets is not there.
    names = [group["name"] for group in ablation._groups(entries, every["sets"])]
    assert names == ["all", "tuned on"]


def test_auto_is_compared_with_the_better_of_the_two():
    """The one with the higher mean on that set, not always the same pipeline."""
    for rank_one, many, expected in (
        (80.0, 70.0, ("rank-one", -40.0)),
        (10.0, 30.0, ("many", 10.0)),
    ):
        values = {"rank-one": rank_one, "many": many, "auto": 40.0}
        auc = {name: flat(value) for name, value in values.items()}
        assert ablation.against_better({"auc": auc}) == expected

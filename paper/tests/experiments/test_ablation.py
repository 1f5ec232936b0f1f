"""Ablation: "auto" against rank-one and two-stage, and without each of its ingredients."""

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.estimate.options import AUTO_PARTS, Options
from manymatch.evaluate.sources import SyntheticSource
from manymatch.geometry.pose_error import pose_auc
from manymatch_paper.experiments import ablation
from manymatch_paper.experiments import q3_rank_one as q3
from manymatch_paper.pose_runs import PoseSets
from tests.support.synthetic_spreads import (
    as_json,
    bold,
    flat,
    made_result,
    settings,
    spread,
    texts,
)

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


def test_a_missing_set_may_have_been_tuned_on(tmp_path):
    lost = [{"set": "lost", "why": "it is not here"}]
    found = ablation.run(Recorded([], tmp_path, lost), tuned_on=["lost"])
    assert found["settings"]["tuned_on"] == ["lost"]
    with pytest.raises(ValueError, match="tuned_on must be one of lost, got 'last', did you"):
        ablation.run(Recorded([], tmp_path, lost), tuned_on=["last"])


def made_results(rng, pairs, names=(*OTHERS, "auto", "without-x")):
    """Runs with errors, times and iterations of two seeds."""
    results = {}
    for name in names:
        errors = rng.uniform(0.0, 25.0, (2, pairs)).tolist()
        seconds = rng.uniform(0.1, 1.0, (2, pairs)).tolist()
        iterations = rng.integers(1_000, 2_000, (2, pairs)).tolist()
        results[name] = made_result(errors, seconds=seconds, iterations=iterations)
    return results


def test_measured_from_runs():
    """Accuracy weighs sets equally, cost weighs pairs equally; all of it by plain loops."""
    rng = np.random.default_rng(5)
    sets = [made_results(rng, 3), made_results(rng, 7)]
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


def test_intervals_are_paired():
    """Equal runs differ by nothing, however much their pairs differ from each other."""
    errors = [[0.0, 180.0, 3.0, 12.0], [180.0, 1.0, 9.0, 0.0]]
    results = {name: made_result(errors) for name in (*OTHERS, "auto")}
    found = ablation._measured([results])
    assert found["delta"]["many"]["interval"] == [[0.0, 0.0]] * 3
    assert found["auc"]["many"]["interval"][0][1] > found["auc"]["many"]["interval"][0][0]
    # Nothing was timed.
    assert found["seconds"] == dict.fromkeys(results)


def test_groups():
    rng = np.random.default_rng(6)
    names = ("easy", "planar", "control")
    entries = [(SyntheticSource(name, 5), made_results(rng, 4)) for name in names]
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


def made_entry(rank_one, many, auto, without, interval=(-1.0, 1.0), seconds=(0.2, 0.1, 0.05, 0.2)):
    """A set or group with the same AUC at every threshold."""
    names = (*OTHERS, "auto", "without-x")
    values = dict(zip(names, (rank_one, many, auto, without), strict=True))
    return {
        "auc": {name: flat(value) for name, value in values.items()},
        "delta": {
            name: spread([[auto - value] * 3], (interval,) * 3)
            for name, value in values.items()
            if name != "auto"
        },
        "seconds": dict(zip(names, seconds, strict=True)),
        "iterations": dict(zip(names, (1000.0, 20000.0, 12345.4, 20000.0), strict=True)),
    }


def made_set(name, *values, **more):
    return {"name": name, "title": f"the {name}", "pairs": 9, **made_entry(*values, **more)}


@pytest.fixture
def data():
    easy = made_set("easy", 80.0, 70.0, 79.0, 78.0)
    hard = made_set("hard", 10.0, 30.0, 33.5, 20.0, interval=(0.5, 6.0))
    lossy = made_set("hard", 20.0, 10.0, 18.75, 18.0, seconds=(None, None, None, None))
    everything = {"name": "all", "sets": ["easy", "hard"]}
    everything |= made_entry(45.0, 50.0, 56.25, 49.0, interval=(0.5, 12.0))
    runs = [
        {
            "representation": "first",
            "sets": [easy, hard],
            "groups": [
                everything,
                {"name": "tuned on", "sets": ["easy"], **made_entry(80.0, 70.0, 79.0, 78.0)},
                {"name": "others", "sets": ["hard"], **made_entry(10.0, 30.0, 33.5, 20.0)},
            ],
        },
        {
            "representation": "second",
            "sets": [lossy],
            "groups": [
                {"name": name, "sets": ["hard"], **{k: lossy[k] for k in _MEASURED}}
                for name in ("all", "others")
            ],
        },
    ]
    own = {"k": 5, "max_edges": 2048, "gms": False, "keep": None}
    made = settings(
        1, auto_association=own, parts={"x": "What x is."}, tuned_on=["easy"], workers=2
    )
    missing = [{"set": "lost", "why": "it is not here"}]
    return as_json({"settings": made, "runs": runs, "missing": missing})


_MEASURED = ("auc", "delta", "seconds", "iterations")


def test_comparison_table(data):
    table = ablation.tables(data)[0]
    rows = texts(table)
    gain = "+11.25 [0.50, 12.00]"
    assert rows[0] == [
        "all, 2 sets", "MNN + CM", "45.0", "45.0", "45.0", gain, gain, gain, "200", "1,000", "2.00",
    ]  # fmt: skip
    assert rows[1][:2] + rows[1][5:] == [
        "", "m-to-m + HCM→MCM", *["+6.25 [0.50, 12.00]"] * 3, "100", "20,000", "1.00",
    ]  # fmt: skip
    assert rows[2][1:] == ["auto", "56.2", "56.2", "56.2", "", "", "", "50.0", "12,345", "0.50"]
    assert [row[0] for row in rows[3::3]] == ["tuned on, 1 set", "others, 1 set"]
    # The highest AUC of each group, and the differences whose interval leaves out zero.
    highest = {(row, column) for row in (2, 3, 8) for column in (2, 3, 4)}
    clear = {(row, column) for row in (0, 1) for column in (5, 6, 7)}
    assert bold(table) == highest | clear
    assert [row[8:] for row in texts(ablation.tables(data)[1])][2] == ["", "12,345", ""]


def test_a_tie_is_not_bold(data):
    data["runs"][0]["sets"][0] = made_set("easy", 80.0, 70.0, 80.0, 78.0)
    data["runs"][0]["groups"][0] |= made_entry(56.25, 50.0, 56.25, 49.0)
    assert {cell for cell in bold(ablation.tables(data)[2]) if cell[0] == 0} == set()
    assert {cell for cell in bold(ablation.tables(data)[0]) if cell[0] < 3} == set()


def test_interval_of_a_set_is_against_the_better_of_the_two(data):
    """The one with the higher mean on that set, not always the same pipeline."""
    for number, name in enumerate(["rank-one", "many"]):
        data["runs"][0]["sets"][number]["delta"][name]["interval"][1] = [-7.0, -3.0]
    rows = texts(ablation.tables(data)[2])
    assert [row[8] for row in rows[:3]] == ["[-7.00, -3.00]", "[-7.00, -3.00]", "[-1.00, 1.00]"]

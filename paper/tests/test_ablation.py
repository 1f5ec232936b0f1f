"""Ablation: "auto" against rank-one and two-stage, and without each of its ingredients."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from manymatch.associate.candidates import Association
from manymatch.estimate.options import AUTO_PARTS, Options
from manymatch.evaluate import run as run_module
from manymatch.evaluate.run import RunResult
from manymatch.evaluate.sources import SyntheticSource
from manymatch.geometry.pose_error import pose_auc
from manymatch_paper.cli import experiment_ablation
from manymatch_paper.experiments import ablation, q3
from manymatch_paper.experiments.registry import load_report
from manymatch_paper.experiments.report import render
from manymatch_paper.experiments.style import styled
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


def test_runs_what_q3_runs_and_auto(tmp_path, monkeypatch):
    """Same names, same settings: a folder of q3 serves here, and the other way round."""
    seen = {}

    def record(name):
        def run_sources(_, configs, folder, **more):
            seen[name] = (configs, folder, more)
            return []

        return run_sources

    monkeypatch.setattr(q3, "run_sources", record("q3"))
    monkeypatch.setattr(ablation, "run_sources", record("ablation"))
    arguments = {"seeds": 3, "min_iterations": 7, "max_iterations": 70, "limit": 4, "workers": 2}
    q3.run([], tmp_path, gms=False, **arguments)
    ablation.run([], tmp_path, gms=False, **arguments)
    theirs, ours = seen["q3"][0], seen["ablation"][0]
    assert {name: ours[name] for name in OTHERS} == theirs
    assert seen["q3"][1:] == seen["ablation"][1:]
    assert list(ours) == [*OTHERS, "auto", *(f"without-{name}" for name in AUTO_PARTS)]
    for name, config in ours.items():
        if name not in OTHERS:
            assert config.estimator == "auto"
            assert config.association == Association(k=5, max_edges=2048, gms=False, keep=None)
            left_out = () if name == "auto" else (name.removeprefix("without-"),)
            wanted = Options(min_iterations=7, max_iterations=70, disable=left_out)
            assert (config.options, config.seeds) == (wanted, 3)


def test_ingredients_can_be_chosen(tmp_path, monkeypatch):
    seen = []

    def run_sources(_, configs, *__, **___):
        seen.append(configs)
        return []

    monkeypatch.setattr(ablation, "run_sources", run_sources)
    last = list(AUTO_PARTS)[-1]
    data = ablation.run([], tmp_path, ingredients=[last, last])
    assert list(seen[0]) == [*OTHERS, "auto", f"without-{last}"]
    assert data["settings"]["ingredients"] == {last: AUTO_PARTS[last]}
    data = ablation.run([], tmp_path, ingredients=())
    assert list(seen[1]) == [*OTHERS, "auto"]
    assert data["settings"]["ingredients"] == {}


def test_unknown_names_are_refused_before_anything_runs(tmp_path):
    close = next(iter(AUTO_PARTS)) + "s"
    with pytest.raises(ValueError, match=rf"ingredients must be one of .*, got '{close}', did you"):
        ablation.run([], tmp_path, ingredients=[close])
    source = SyntheticSource.of("easy", 5)
    with pytest.raises(
        ValueError, match=r"tuned_on must be one of synthetic-easy, got 'synthetic-eazy', did"
    ):
        ablation.run([source], tmp_path, tuned_on=["synthetic-eazy"])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_set_may_have_been_tuned_on(tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "run_sources", lambda *_, **__: [])
    lost = [{"set": "lost", "why": "it is not here"}]
    data = ablation.run([], tmp_path, tuned_on=["lost"], missing=lost)
    assert data["settings"]["tuned_on"] == ["lost"]


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
    entries = [(SyntheticSource.of(name, 5), made_results(rng, 4)) for name in names]
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
        1, auto_front=own, ingredients={"x": "What x is."}, tuned_on=["easy"], workers=2
    )
    missing = [{"set": "lost", "why": "it is not here"}]
    return as_json({"settings": made, "runs": runs, "missing": missing})


_MEASURED = ("auc", "delta", "seconds", "iterations")


def test_comparison_table(data):
    table = ablation.tables(data)[0]
    assert table.title == "Ablation: averages over sets, pose AUC (%), first, 1 seed"
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


def test_set_table(data):
    table = ablation.tables(data)[2]
    assert texts(table) == [
        ["first", "the easy", "yes", "9", "80.0", "70.0", "79.0", "-1.00", "[-1.00, 1.00]", "0.50"],
        ["", "the hard", "", "9", "10.0", "30.0", "33.5", "+3.50", "[0.50, 6.00]", "0.50"],
        ["second", "the hard", "", "9", "20.0", "10.0", "18.8", "-1.25 †", "[-1.00, 1.00]", ""],
        ["lost", "not run", *[""] * 8],
    ]
    assert bold(table) == {(0, 4), (1, 6), (2, 4)}
    data["settings"]["tuned_on"] = []
    assert "tuned on" not in ablation.tables(data)[2].header


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


def test_ablation_table(data):
    table = ablation.tables(data)[3]
    rows = texts(table)
    assert rows[0] == ["all, 2 sets", "nothing", "", "", "", "50.0", "12,345", "1.00"]
    assert rows[1] == ["", "x", *["+7.25 [0.50, 12.00]"] * 3, "200", "20,000", "4.00"]
    assert rows[3] == ["", "x", *["+1.00 [-1.00, 1.00]"] * 3, "200", "20,000", "4.00"]
    assert bold(table) == {(1, 2), (1, 3), (1, 4)}
    assert len(ablation.tables(data)) == 5
    data["settings"]["ingredients"] = {}
    assert len(ablation.tables(data)) == 3


def test_sentences(data):
    sentences = ablation.notes(data)
    front = "mutual 5 nearest neighbours, the first 2048 edges"
    assert f"Two-stage: {front}, many-to-many GMS, the first 1024, HCM→MCM." in sentences[0]
    assert f"Auto: {front}, unfiltered." in sentences[0]
    assert "is not counted; that of auto runs inside and is" in sentences[1]
    assert "2 side by side on one thread each" in sentences[1]
    assert any(text.startswith("Looked at while choosing: easy.") for text in sentences)
    assert "Auto also ran without one ingredient at a time. x: What x is." in sentences
    assert (
        "first, all, 2 sets: AUC@10° of auto minus MNN + CM is +11.25 [0.50, 12.00], minus m-to-m "
        "+ HCM→MCM is +6.25 [0.50, 12.00] points; both intervals exclude zero. It takes 0.50 of "
        "the time of m-to-m + HCM→MCM." in sentences
    )
    assert (
        "second, others, 1 set: AUC@10° of auto minus MNN + CM is -1.25 [-1.00, 1.00], minus "
        "m-to-m + HCM→MCM is +8.75 [-1.00, 1.00] points; neither interval excludes zero."
        in sentences
    )
    # A whole point below is not more than a point below.
    assert (
        "AUC@10° of auto is at least that of the better of the two others in 1 of 3 cells (a "
        "representation and a set each), and more than 1 point below it in 1: second the hard "
        "(-1.25)." in sentences
    )
    (unseen,) = [text for text in sentences if text.startswith("Without the sets that were")]
    assert "of the two others in 1 of 2 cells" in unseen
    assert "more than 1 point below it in 1: second the hard (-1.25)." in unseen
    assert sentences[-1] == "lost was not run: it is not here."
    data["settings"] |= {"tuned_on": [], "ingredients": {}, "limit": 4, "workers": 1}
    others = ablation.notes(data)
    assert not any(text.startswith(("Looked at", "Without", "Auto also")) for text in others)
    assert "Only the first 4 pairs of each set were run." in others
    assert "one after the other, ours on all cores" in others[1]


def test_figure(data):
    with styled():
        figure = ablation.FIGURES["ablation_gains"](data)
        first, second = figure.axes
        assert first.get_title() == "first\nall, 2 sets"
        assert second.get_title() == "second\nall, 1 set"
        words = [label.get_text() for label in first.get_yticklabels()]
        assert words == ["MNN + CM", "m-to-m + HCM→MCM", "without x"]
        dots = [line for line in first.lines if line.get_label().startswith("AUC@")]
        assert [line.get_label() for line in dots] == ["AUC@5°", "AUC@10°", "AUC@20°"]
        assert list(dots[1].get_xdata()) == pytest.approx([11.25, 6.25, 7.25])
        assert list(dots[1].get_ydata()) == pytest.approx([0.0, 1.0, 2.0])
        bars = first.collections[0].get_segments()
        assert [bar[:, 0].tolist() for bar in bars] == [[0.5, 12.0]] * 3
        assert bars[0][0][1] == pytest.approx(dots[0].get_ydata()[0])
    assert render(ablation.FIGURES["ablation_gains"], data)["pdf"].startswith(b"%PDF")


def test_figure_without_ablations(data):
    data["settings"]["ingredients"] = {}
    with styled():
        axis = ablation.FIGURES["ablation_gains"](data).axes[0]
        assert [label.get_text() for label in axis.get_yticklabels()] == [
            "MNN + CM",
            "m-to-m + HCM→MCM",
        ]


QUICK = ["--limit", "2", "--iterations", "200", "--seeds", "2", "--workers", "1", "--no-gms"]


def invoke(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(experiment_ablation.ablation)
    return CliRunner().invoke(app, [*map(str, arguments), *QUICK])


def test_command(tmp_path, monkeypatch):
    """The real estimators, all files, drawn again, and nothing computed twice."""
    chosen = list(AUTO_PARTS)[:2]
    only = [word for name in chosen for word in ("--only", name)]
    arguments = [
        "synthetic:easy",
        "synthetic:planar",
        "--tuned-on",
        "synthetic-easy",
        "--out",
        tmp_path,
    ]
    result = invoke(*arguments, *only)
    assert result.exit_code == 0, result.output
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        *(f"ablation.{suffix}" for suffix in ("json", "md", "tex")),
        *(f"ablation_gains.{suffix}" for suffix in ("pdf", "png")),
        "runs",
    }
    folder = tmp_path / "runs" / "synthetic" / "synthetic-easy"
    configs = {*OTHERS, "auto", *(f"without-{name}" for name in chosen)}
    assert {path.name for path in folder.iterdir()} == configs
    own = RunResult.load(folder / f"without-{chosen[0]}").header["config"]
    assert (own["estimator"], own["options"]["disable"]) == ("auto", [chosen[0]])
    data = json.loads((tmp_path / "ablation.json").read_text())
    (only_run,) = data["runs"]
    assert [group["name"] for group in only_run["groups"]] == ["all", "tuned on", "others"]
    entry = only_run["sets"][0]
    errors = RunResult.load(folder / "auto").errors
    expected = np.mean([pose_auc(row, (5, 10, 20)) for row in errors], axis=0)
    assert entry["auc"]["auto"]["mean"] == pytest.approx(expected.tolist())
    assert all(value > 0 for value in entry["seconds"].values())
    assert entry["iterations"]["auto"] <= 200
    again = tmp_path / "again"
    for path in load_report(tmp_path / "ablation.json").write(again):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()

    def refuse(*_):
        raise AssertionError("nothing should be computed")

    monkeypatch.setattr(run_module, "trial", refuse)
    # What is there serves a smaller question, too.
    smaller = invoke(*arguments, "--no-ablation", "--json")
    assert smaller.exit_code == 0, smaller.output
    data = json.loads(smaller.stdout)
    assert data["settings"]["ingredients"] == {}
    assert list(data["runs"][0]["sets"][0]["auc"]) == [*OTHERS, "auto"]
    assert data["runs"][0]["sets"][0]["auc"]["auto"] == entry["auc"]["auto"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--only", next(iter(AUTO_PARTS)), "--no-ablation"],
            "--only must be absent with --no-abl",
        ),
        (["--only", "nothing-like-it"], "ingredients must be one of "),
        (["--tuned-on", "elsewhere"], "tuned_on must be one of synthetic-easy, got 'elsewhere'"),
    ],
)
def test_refusals(tmp_path, arguments, sentence):
    result = invoke("synthetic:easy", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert f"manymatch: {sentence}" in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()

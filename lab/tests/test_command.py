"""The experiments as people run them: files, going on, refusals, Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch.batch.parts import RunInterrupted
from manymatch.geometry.pose import pose_auc
from manymatch_lab import command, pose_runs
from manymatch_lab.command import app
from manymatch_lab.engine import EXPERIMENTS, experiment, load_report
from manymatch_lab.evaluate import run as run_module
from manymatch_lab.evaluate.run import RunResult
from manymatch_lab.everything import PAPER_ITEMS
from manymatch_lab.flags import bind

# What makes a run of an experiment quick, and another configuration of it.
QUICK = {
    "q1": (["--iterations", "200", "--seeds", "2"], ["--iterations", "300"]),
    "q2": (["--max-iterations", "200", "--seeds", "2", "--no-gms"], ["--max-iterations", "300"]),
    "q3": (["--max-iterations", "200", "--seeds", "2", "--no-gms"], ["--max-iterations", "300"]),
    "sensitivity": (
        ["--max-iterations", "200", "--seeds", "2", "--no-gms", "--qs", "0.1", "--deltas", "0.1"],
        ["--max-iterations", "300"],
    ),
    "ablation": (
        ["--max-iterations", "200", "--seeds", "2", "--no-gms", "--only", "polish"],
        ["--seeds", "3"],
    ),
    "calibration": (["--max-iterations", "300", "--seeds", "2"], ["--seeds", "3"]),
}


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module", params=QUICK)
def finished(request, tmp_path_factory):
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    result = invoke(name, "synthetic:easy", *QUICK[name][0], "--limit", 3, "--out", folder)
    assert result.exit_code == 0, result.output
    return name, folder


def test_all_files_are_written(finished):
    name, folder = finished
    files = [f"{name}.{suffix}" for suffix in ("json", "md", "tex")]
    figures = experiment(name).FIGURES
    files += [f"{figure}.{suffix}" for figure in figures for suffix in ("pdf", "png")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "runs"])
    data = json.loads((folder / f"{name}.json").read_text())
    assert (data["experiment"], data["settings"]["seeds"]) == (name, 2)
    (only,) = data["runs"]
    assert only["sets"][0]["pairs"] == 3
    # A plain LaTeX reads every character.
    assert (folder / f"{name}.tex").read_bytes().isascii()


def test_another_configuration_is_refused(finished):
    name, folder = finished
    quick, other = QUICK[name]
    result = invoke(name, "synthetic:easy", *quick, *other, "--limit", 3, "--out", folder)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("manymatch: ")


def test_draws_again_from_the_json_alone(finished, tmp_path):
    name, folder = finished
    result = invoke("draw", folder / f"{name}.json", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()
    assert len(json.loads(result.stdout)["files"]) == len(list(tmp_path.iterdir()))


def test_again_computes_nothing_and_a_missing_set_is_listed(finished, tmp_path, monkeypatch):
    name, folder = finished

    def refuse(*_):
        raise AssertionError("nothing should be computed")

    monkeypatch.setattr(run_module, "trial", refuse)
    before = json.loads((folder / f"{name}.json").read_text())
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    quick = [*QUICK[name][0], "--limit", 3]
    result = invoke(name, "synthetic:easy", "nowhere", *quick, "--out", again, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["runs"] == before["runs"]
    assert [entry["set"] for entry in data["missing"]] == ["nowhere"]
    assert "nowhere was not run: set must be" in (again / f"{name}.md").read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_with_networks_take_a_precision(name):
    flags = {}
    bind(experiment(name).run, flags)
    assert ("precision" in flags) == ("device" in flags)


def test_accuracy_is_that_of_the_runs(tmp_path):
    quick = [*QUICK["q3"][0], "--limit", 3]
    result = invoke("q3", "synthetic:easy", "synthetic:planar", *quick, "--out", tmp_path, "--json")
    (run,) = json.loads(result.stdout)["runs"]
    for i in range(3):
        gains = [entry["delta"]["mean"][i] for entry in run["sets"]]
        assert run["macro"]["delta"]["mean"][i] == pytest.approx(sum(gains) / 2)
    folder = tmp_path / "runs" / run["representation"] / run["sets"][0]["name"]
    for name in ("rank-one", "many"):
        found = RunResult.load(folder / name)
        aucs = [pose_auc(row, (5, 10, 20)) for row in found.errors]
        assert run["sets"][0]["auc"][name]["mean"] == pytest.approx(np.mean(aucs, axis=0).tolist())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["toy", "--delta", "1.5"], "delta must be a number in (0, 1), got 1.5"),
        (["ablation", "synthetic:easy", "--only", "polish", "--no-ablation"], "only must be empty"),
        (["ablation", "synthetic:easy", "--only", "nothing-like-it"], "only must be one of "),
        (
            ["ablation", "synthetic:easy", "--tuned-on", "here"],
            "tuned_on must be one of synthetic-easy, got",
        ),
        (["diagnose", "nowhere"], "set must be"),
        (["operators", "nowhere", "--bins", "a,b"], "--bins must be numbers separated by commas"),
        (["draw", "nothing.json"], "nothing.json"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, tmp_path):
    out = tmp_path / "out"
    result = invoke(*arguments, "--out", out)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert not out.exists()


def test_damaged_json_is_refused(tmp_path):
    for text in ("{", "[]", '{"experiment": 3}', '{"experiment": "q1"}', '{"experiment": "q9"}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError, match=r"a\.json|experiment must be one of"):
            load_report(tmp_path / "a.json")


def test_interruption_ends_with_130(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise RunInterrupted(1, 3, busy=False)

    monkeypatch.setattr(pose_runs, "run_set", interrupted)
    result = invoke("q1", "synthetic:easy", "--out", tmp_path)
    assert result.exit_code == 130
    assert "1 of 3 pairs" in result.stderr


def test_run_continues_after_ctrl_c(tmp_path):
    arguments = ["q1", "synthetic:easy", "--iterations", "20000", "--seeds", "4", "--k", "2"]
    arguments += ["--out", str(tmp_path)]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", "from manymatch_lab.command import app; app()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    try:
        # The limit only keeps a broken build from waiting here for ever.
        for _ in range(1200):
            if any(tmp_path.glob("runs/*/*/K2/parts/*.parquet")):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, (output, errors)
    done = len(RunResult.load(next(tmp_path.glob("runs/*/*/K2"))))
    assert 1 <= done < 100
    result = invoke(*arguments, "--limit", done + 1)
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "q1.json").read_text())
    assert data["runs"][0]["sets"][0]["pairs"] == done + 1


def test_all_runs_what_it_can_and_names_the_rest(tmp_path, monkeypatch):
    chosen = {name: PAPER_ITEMS[name] for name in ("toy", "teaser")}
    monkeypatch.setattr(command, "PAPER_ITEMS", chosen)
    result = invoke("all", "synthetic:easy", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "toy" / "toy.json").is_file()
    assert "could not be run: set must have images" in " ".join(result.stdout.split())


def test_commands_of_the_library_are_passed_on(tmp_path):
    result = invoke("eval", "nowhere", "--out", tmp_path)
    assert result.exit_code == 2
    assert "'nowhere'" in result.stderr
    assert "--unknown-focal" in invoke("eval", "--help").stdout

"""The experiments on pose accuracy as people run them: files, going on, refusals, Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from manymatch.evaluate import run as run_module
from manymatch.evaluate.run import RunResult
from manymatch.runs.runner import RunInterrupted
from manymatch_paper.cli import experiment_q1, experiment_q2, experiment_q3, experiment_sensitivity
from manymatch_paper.experiments import q1
from manymatch_paper.experiments.registry import load_report

COMMANDS = {
    "q1": experiment_q1,
    "q2": experiment_q2,
    "q3": experiment_q3,
    "sensitivity": experiment_sensitivity,
}
FIGURES = {
    "q1": ["q1_k_sweep"],
    "q2": ["q2_estimators", "q2_complementarity"],
    "q3": ["q3_gains"],
    "sensitivity": ["sensitivity_sweeps"],
}
QUICK = ["--limit", "3", "--iterations", "200", "--seeds", "2"]


def run(name, *arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(getattr(COMMANDS[name], name))
    gms = [] if name == "q1" else ["--no-gms"]
    return CliRunner().invoke(app, [*map(str, arguments), *gms])


@pytest.fixture(scope="module", params=COMMANDS)
def finished(request, tmp_path_factory):
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    result = run(name, "synthetic:easy", *QUICK, "--out", folder)
    assert result.exit_code == 0, result.output
    return name, folder, result.stdout


def test_writes_all_files_and_shows_the_tables(finished):
    name, folder, shown = finished
    files = [f"{name}.{suffix}" for suffix in ("json", "md", "tex")]
    files += [f"{figure}.{suffix}" for figure in FIGURES[name] for suffix in ("pdf", "png")]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "runs"])
    data = json.loads((folder / f"{name}.json").read_text())
    assert data["experiment"] == name
    assert data["settings"]["seeds"] == 2
    (only,) = data["runs"]
    assert (only["representation"], only["sets"][0]["pairs"]) == ("synthetic", 3)
    assert "synthetic, easy" in (folder / f"{name}.md").read_text()
    assert "paper" in shown
    assert f"{name}.json" in shown


def test_another_configuration_is_refused(finished):
    name, folder, _ = finished
    other = ["--limit", "3", "--iterations", "300", "--seeds", "2"]
    result = run(name, "synthetic:easy", *other, "--out", folder)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("manymatch: ")


def test_draws_again_from_the_json_alone(finished, tmp_path):
    name, folder, _ = finished
    written = load_report(folder / f"{name}.json").write(tmp_path)
    for path in written:
        assert path.read_bytes() == (folder / path.name).read_bytes()


def test_again_computes_nothing_and_a_missing_set_is_a_row(finished, tmp_path, monkeypatch):
    name, folder, _ = finished

    def refuse(*_):
        raise AssertionError("nothing should be computed")

    monkeypatch.setattr(run_module, "trial", refuse)
    before = json.loads((folder / f"{name}.json").read_text())
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    result = run(name, "synthetic:easy", "nowhere", *QUICK, "--out", again, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["runs"] == before["runs"]
    assert [entry["set"] for entry in data["missing"]] == ["nowhere"]
    text = (again / f"{name}.md").read_text()
    assert "| nowhere | *not run* |" in text
    assert "nowhere was not run: set must be" in text


def test_without_any_set_it_is_an_error(tmp_path):
    result = run("q2", "nowhere", *QUICK, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "'nowhere'" in result.stderr


def test_accuracy_is_that_of_the_runs(tmp_path):
    result = run("q3", "synthetic:easy", "synthetic:planar", *QUICK, "--out", tmp_path, "--json")
    data = json.loads(result.stdout)
    sets = data["runs"][0]["sets"]
    assert [entry["name"] for entry in sets] == ["synthetic-easy", "synthetic-planar"]
    for i in range(3):
        gains = [entry["delta"]["mean"][i] for entry in sets]
        assert data["runs"][0]["macro"]["delta"]["mean"][i] == pytest.approx(sum(gains) / 2)
    folder = tmp_path / "runs" / "synthetic" / "synthetic-easy"
    configs = {
        name: RunResult.load(folder / name).header["config"] for name in ("rank-one", "many")
    }
    assert configs["rank-one"]["estimator"] == "poselib"
    assert configs["rank-one"]["association"] == {
        "k": 1,
        "max_edges": None,
        "gms": False,
        "keep": 1024,
    }
    assert configs["many"]["association"] == {"k": 5, "max_edges": 2048, "gms": False, "keep": 1024}


def test_q1_draws_from_rank_one_with_a_fixed_budget(tmp_path):
    assert run("q1", "synthetic:easy", *QUICK, "--k", "3", "--out", tmp_path).exit_code == 0
    folder = tmp_path / "runs" / "synthetic" / "synthetic-easy"
    assert sorted(path.name for path in folder.iterdir()) == ["K1", "K2", "K3"]
    for k in (1, 2, 3):
        result = RunResult.load(folder / f"K{k}")
        config = result.header["config"]
        assert (config["proposals_rank"], config["probe"]) == (1, True)
        assert config["association"] == {"k": k, "max_edges": None, "gms": False, "keep": None}
        assert (result.column("iterations") == 200).all()
        assert result.column("seed").tolist() == [[1, 2, 3], [2, 3, 4]]


def test_interruption_ends_with_130(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise RunInterrupted(1, 3, busy=False)

    monkeypatch.setattr(q1, "run_sources", interrupted)
    result = run("q1", "synthetic:easy", *QUICK, "--out", tmp_path)
    assert result.exit_code == 130
    assert "1 of 3 pairs finished; the same command goes on" in result.stderr


PROGRAM = """
import typer
from manymatch_paper.cli.experiment_q1 import q1
typer.run(q1)
"""


def test_ctrl_c_and_on(tmp_path):
    arguments = ["synthetic:easy", "--iterations", "20000", "--seeds", "4", "--k", "2"]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", PROGRAM, *arguments, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    journal = tmp_path / "runs" / "synthetic" / "synthetic-easy" / "K2" / "journal.jsonl"
    try:
        # The limit only keeps a broken build from waiting here for ever.
        for _ in range(1200):
            if journal.is_file() and journal.read_bytes().count(b"\n") > 1:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, (output, errors)
    assert "the same command goes on" in errors
    done = len(RunResult.load(journal.parent))
    assert 1 <= done < 100
    result = run("q1", *arguments, "--limit", done + 1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert len(RunResult.load(journal.parent)) >= done + 1
    data = json.loads((tmp_path / "q1.json").read_text())
    assert data["runs"][0]["sets"][0]["pairs"] == done + 1

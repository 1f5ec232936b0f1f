"""``manymatch eval`` and ``manymatch compare`` as people type them."""

import json

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.evaluate import sources as source_module
from manymatch.evaluate.protocol import PAPER
from manymatch.evaluate.run import PaperRun, RunResult
from manymatch.evaluate.sources import open_sources
from manymatch.matcher.config import MatcherConfig
from tests.support.command import one_sentence, run
from tools.street.__main__ import write_data_set

QUICK = ("--seeds", 2, "--limit", 3, "--max-iterations", 100, "--min-iterations", 50)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    for method in ("hcm-mcm", "mcm"):
        result = run(
            "eval", "synthetic:easy", "--no-gms", "--method", method, "--out", folder, *QUICK
        )
        assert result.exit_code == 0, result.output
    return folder


def test_table_and_files(out):
    text = (out / "hcm-mcm.md").read_text()
    assert "synthetic, easy" in text
    assert "AUC@5°" in text
    assert r"\begin{tabular}" in (out / "hcm-mcm.tex").read_text()
    result = RunResult.load(out / "synthetic" / "synthetic-easy" / "hcm-mcm")
    assert result.errors.shape == (2, 3)


def test_again_says_the_same_and_json_is_json(out):
    arguments = ["eval", "synthetic:easy", "--no-gms", "--method", "hcm-mcm", "--out", out, *QUICK]
    record = json.loads(run(*arguments, "--json").stdout)
    errors = RunResult.load(out / "synthetic" / "synthetic-easy" / "hcm-mcm").errors
    (method,) = record["methods"].values()
    assert method["runs"]["synthetic/synthetic-easy"]["median_error_deg"] == np.median(errors)


def recorded(association):
    values = association.to_dict()
    del values["operator"]
    return values


def front(folder, method):
    header = RunResult.load(folder / "synthetic" / "synthetic-easy" / method).header
    return header["config"]["association"]


def test_auto_by_default(tmp_path):
    result = run("eval", "synthetic:easy", "--out", tmp_path, *QUICK)
    assert result.exit_code == 0, result.output
    assert front(tmp_path, "auto") == recorded(Association().for_method("auto"))
    assert "auto on mutual 5-nearest candidates" in (tmp_path / "auto.md").read_text()


def test_several_methods_each_see_what_they_want(tmp_path):
    methods = ("auto", "hcm-mcm")
    chosen = [flag for name in methods for flag in ("--method", name)]
    record = json.loads(
        run("eval", "synthetic:easy", "--out", tmp_path, *chosen, *QUICK, "--json").stdout
    )
    assert list(record["methods"]) == list(methods)
    assert front(tmp_path, "auto") == recorded(Association().for_method("auto"))
    assert front(tmp_path, "hcm-mcm") == recorded(Association.paper())
    for method in methods:
        assert (tmp_path / f"{method}.md").is_file()
        assert record["methods"][method]["config"]["estimator"] == method
    # What is said is done, by every method.
    again = tmp_path / "gms"
    run("eval", "synthetic:easy", "--out", again, *chosen, *QUICK, "--gms")
    assert front(again, "auto") == front(again, "hcm-mcm") == recorded(Association.paper())


def test_the_configuration_names_the_method(tmp_path):
    path = tmp_path / "a.toml"
    MatcherConfig.of("classic", method="mcm").save(path)
    arguments = ["eval", "synthetic:easy", "--config", path, "--out", tmp_path, *QUICK]
    assert run(*arguments).exit_code == 0
    assert front(tmp_path, "mcm") == recorded(Association.paper())


def test_compare(out):
    folder = out / "synthetic" / "synthetic-easy"
    result = run("compare", folder / "hcm-mcm", folder / "mcm", "--markdown", out / "c.md")
    assert result.exit_code == 0
    assert "Δ AUC@10°" in result.stdout
    assert "synthetic, easy" in (out / "c.md").read_text()
    record = json.loads(run("compare", folder / "hcm-mcm", folder / "mcm", "--json").stdout)
    assert record["sets"]["synthetic, easy"]["pairs"] == 3


def test_rank_one_is_another_run(out):
    arguments = ["eval", "synthetic:easy", "--method", "cm", "--rank-one", "--out", out, *QUICK]
    assert run(*arguments).exit_code == 0
    result = RunResult.load(out / "synthetic" / "synthetic-easy" / "rank-one-cm")
    assert result.header["config"]["association"]["k"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["eval", "synthetic:esy"], "did you mean 'easy'"),
        (["eval", "synthetic:easy", "--method", "hmc"], "estimator must be one of"),
        (["eval", "scannet1500"], "scannet1500"),
        (["eval", "/no/such/folder"], "set must be"),
        (["compare", "/no/such/run", "/no/such/run"], "first must be the folder of a run"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_another_configuration_is_refused(out):
    arguments = ["eval", "synthetic:easy", "--no-gms", "--method", "mcm", "--out", out, *QUICK]
    result = run(*arguments, "--threshold-px", "2")
    assert result.exit_code == 2
    assert "threshold_px was 1.0 and is 2.0 now" in result.stderr


def test_images_end_to_end(tmp_path):
    pytest.importorskip("cv2")
    write_data_set(tmp_path, 2, (320, 240))
    arguments = ["eval", tmp_path, "--preset", "classic", "--seeds", "2", "--out", tmp_path / "out"]
    arguments += ["--set", "max_iterations=2000", "--cache", tmp_path / "cache", "--json"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    (summary,) = json.loads(result.stdout)["methods"]["auto"]["runs"].values()
    assert summary["pairs"] == 2
    assert summary["auc"]["mean"][2] > 20


def test_candidates_are_found_again_beside_their_features(tmp_path, monkeypatch):
    pytest.importorskip("cv2")
    pytest.importorskip("h5py")
    calls = []
    original = source_module.candidates
    monkeypatch.setattr(
        source_module, "candidates", lambda **how: calls.append(1) or original(**how)
    )
    write_data_set(tmp_path, 1, (320, 240))
    folder = tmp_path
    graphs = []
    for k in (5, 5, 3):
        (source,) = open_sources([str(folder)], ["classic"], cache=tmp_path / "cache", k=k)
        graphs.append(source[0].graph)
    assert graphs[0] == graphs[1]
    assert graphs[2].num_edges < graphs[0].num_edges
    assert len(calls) == 2


def opened_with(monkeypatch, *arguments):
    """The configuration with which a command opens sets, before anything is loaded."""

    class OpenedError(Exception):
        pass

    def opened(_sets, configs, **_how):
        raise OpenedError(configs)

    monkeypatch.setattr("manymatch.cli.eval.open_sources", opened)
    result = run("eval", "scannet1500", *arguments)
    assert isinstance(result.exception, OpenedError), result.output
    (config,) = result.exception.args[0]
    return config


def test_protocol_paper_sets_everything(monkeypatch, tmp_path):
    assert opened_with(monkeypatch, "--protocol", "paper") == PAPER.matcher()
    config = opened_with(monkeypatch, "--protocol", "paper", "--preset", "classic", "--k", 3)
    assert (config.preset, config.method, config.association.k) == ("classic", "hcm-mcm", 3)
    assert config.association.gms is True
    monkeypatch.undo()
    arguments = ["eval", "synthetic:easy", "--protocol", "paper", "--limit", 1, "--out", tmp_path]
    (name, method), *_ = json.loads(run(*arguments, "--json").stdout)["methods"].items()
    assert (name, method["config"]) == ("hcm-mcm", PaperRun().config.to_dict())


def test_output_says_in_which_points_a_run_differs(tmp_path):
    wanted = [
        "synthetic candidates instead of those of dinov3",
        "q 0.4 instead of 0.3",
        "seeds 1 instead of 5",
        "synthetic-easy instead of the paper's sets",
    ]
    given = ["--protocol", "paper", "--q", 0.4, "--seeds", 1, "--limit", 1, "--out", tmp_path]
    result = run("eval", "synthetic:easy", *given)
    sentence = f"Differs from the paper's protocol in: {', '.join(wanted)}."
    assert sentence in " ".join(result.stdout.split())
    assert sentence in (tmp_path / "hcm-mcm.md").read_text()
    record = json.loads(run("eval", "synthetic:easy", *given, "--json").stdout)
    assert record["methods"]["hcm-mcm"]["differs_from_paper"] == wanted
    summary = tmp_path / "synthetic" / "synthetic-easy" / "hcm-mcm" / "summary.json"
    assert json.loads(summary.read_text())["differs_from_paper"] == wanted


def test_protocols_that_cannot_be_had(tmp_path):
    wrong = run("eval", "synthetic:easy", "--protocol", "other")
    assert "protocol must be one of 'paper', got 'other'" in one_sentence(wrong)
    (tmp_path / "a.toml").write_text('preset = "classic"\n')
    both = run("eval", "synthetic:easy", "--protocol", "paper", "--config", tmp_path / "a.toml")
    assert "--protocol and --config must not be given together" in one_sentence(both)

"""``manymatch eval`` and ``manymatch compare`` as people type them."""

import csv
import json
import re

import numpy as np
import pytest
from PIL import Image

from manymatch.associate.candidates import Association
from manymatch.matcher.config import MatcherConfig
from manymatch_lab.commands import eval as eval_module
from manymatch_lab.evaluate.run import PaperRun, RunResult
from tests.support.command import one_sentence, run
from tests.support.synthetic_trees import words
from tests.support.synthetic_views import image_pair
from tools.street.__main__ import write_data_set

# Names of files begin with what they are of.
EASY = "synthetic-synthetic-easy"
QUICK = ("--seeds", 2, "--limit", 3, "--set", "max_iterations=100", "--set", "min_iterations=50")


EVAL = ("eval", "synthetic:easy", "--set", "gms=false", "--method", "hcm-mcm", *QUICK, "--out")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval")
    result = run(*EVAL, folder)
    assert result.exit_code == 0, result.output
    return folder


def test_table_files_and_json(out):
    text = (out / f"{EASY}-hcm-mcm-first3.md").read_text()
    assert "synthetic, easy" in text
    assert "AUC@5°" in text
    assert r"\begin{tabular}" in (out / f"{EASY}-hcm-mcm-first3.tex").read_text()
    errors = RunResult.load(out / "synthetic" / "synthetic-easy" / "hcm-mcm").errors
    assert errors.shape == (2, 3)
    (method,) = json.loads(run(*EVAL, out, "--json").stdout)["methods"].values()
    assert method["runs"]["synthetic/synthetic-easy"]["median_error_deg"] == np.median(errors)
    refused = run(*EVAL, out, "--threshold-px", "2")
    assert refused.exit_code == 2
    assert "threshold_px was 1.0 and is 2.0 now" in refused.stderr


def recorded(association):
    values = association.to_dict()
    del values["operator"]
    return values


def front(folder, method):
    header = RunResult.load(folder / "synthetic" / "synthetic-easy" / method).header
    return header["config"]["association"]


def test_every_method_gets_its_usual_candidates(tmp_path):
    methods = ("auto", "hcm-mcm")
    chosen = [flag for name in methods for flag in ("--method", name)]
    record = json.loads(
        run("eval", "synthetic:easy", "--out", tmp_path, *chosen, *QUICK, "--json").stdout
    )
    assert list(record["methods"]) == list(methods)
    assert front(tmp_path, "auto") == recorded(Association().for_method("auto"))
    assert front(tmp_path, "hcm-mcm") == recorded(Association.paper())
    for method in methods:
        assert (tmp_path / f"{EASY}-{method}-first3.md").is_file()
        assert record["methods"][method]["config"]["estimator"] == method
    # Every method follows the settings.
    again = tmp_path / "gms"
    run("eval", "synthetic:easy", "--out", again, *chosen, *QUICK, "--set", "gms=true")
    assert front(again, "auto") == front(again, "hcm-mcm") == recorded(Association.paper())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["eval", "synthetic:esy"], "did you mean 'easy'"),
        (["eval", "synthetic:easy", "--method", "hmc"], "estimator must be one of"),
        (["eval", "scannet1500"], "scannet1500"),
        (["eval", "/no/such/folder"], "set must be"),
        (["compare", "/no/such/run", "/no/such/run"], "first must be a folder of manymatch eval"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


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


# --- What a newcomer has: a folder of images and a list ---------------------------------------

FAST = ("--preset", "classic", "--max-keypoints", 200, "--set", "longest=240", "--seeds", 2)
FAST += ("--set", "max_iterations=200", "--set", "min_iterations=50")


@pytest.fixture(scope="module")
def views():
    pytest.importorskip("cv2")
    return image_pair(size=(240, 180))


def lines(views, names=("a.png", "b.png"), **other):
    """One line of a list with truth; `other` replaces matrices."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = views.pose.R, views.pose.t
    values = {"K0": views.camera.K, "K1": views.camera.K, "T": T, **other}
    return f"{names[0]} {names[1]} 0 0 {words(*values.values())}\n"


def write_photos(folder, views, text=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in (("a.png", views.image0), ("b.png", views.image1)):
        Image.fromarray(image).save(folder / name)
    (folder / "pairs.txt").write_text(lines(views) * 2 if text is None else text)
    return folder


@pytest.mark.parametrize("rank_one", [False, True])
def test_every_source_has_its_own_caps(tmp_path, views, rank_one):
    folder = write_photos(tmp_path / "photos", views)
    table = tmp_path / "two.toml"
    table.write_text(
        '[[sources]]\nname = "a"\npreset = "classic"\nmax_edges = 30\nkeep = 15\nk = 3\n'
        '[[sources]]\nname = "b"\npreset = "classic"\nmax_edges = 12\nkeep = 9\nk = 1\n'
        "[estimation]\nmax_iterations = 100\nmin_iterations = 50\n"
    )
    more = ["--rank-one"] if rank_one else []
    result = run("eval", folder, "--config", table, "--set", "longest=240", "--seeds", 1,
                 "--method", "auto", "--out", tmp_path / "out", "--json", *more)  # fmt: skip
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "out").glob("*/*/*auto")
    header = RunResult.load(folder).header["config"]
    caps = [header["association"], *header["further"]]
    wanted = [None, None] if rank_one else [30, 12]
    assert [cap["max_edges"] for cap in caps] == wanted
    assert [cap["keep"] for cap in caps] == ([15, 9] if rank_one else [None, None])
    assert [cap["k"] for cap in caps] == ([1, 1] if rank_one else [3, 1])
    with (folder / "pairs.csv").open() as rows:
        numbers = {int(row["num_edges"]) for row in csv.DictReader(rows)}
    assert numbers == {15 + 9 if rank_one else 30 + 12}


def test_images_may_be_elsewhere_than_the_list(tmp_path, views):
    photos = write_photos(tmp_path / "photos", views)
    (tmp_path / "lists").mkdir()
    (photos / "pairs.txt").rename(tmp_path / "lists" / "pairs.txt")
    how = ("--preset", "classic", "--seeds", 1, "--limit", 1, "--set", "max_iterations=500")
    how += ("--set", "longest=240", "--out", tmp_path / "out")
    sentence = one_sentence(run("eval", tmp_path / "lists", *how))
    assert "a.png', which is not there; --images names the folder of the images" in sentence
    result = run("eval", tmp_path / "lists" / "pairs.txt", "--images", photos, *how)
    assert result.exit_code == 0, result.output
    assert re.search(r"1 of 1 pair \(classic, lists\): 1 (within|over|5°)", result.stderr)


def test_reasons_are_counted_and_the_exit_code_is_one(tmp_path, views):
    good = write_photos(tmp_path / "good", views)
    wrong_camera = lines(views, K0=views.camera.K * [[1, 1, 9], [1, 1, 9], [1, 1, 1]])
    bad = write_photos(tmp_path / "bad", views, wrong_camera * 3 + lines(views, ("x.png", "b.png")))
    arguments = ["eval", good, bad, *FAST, "--out", tmp_path / "out"]
    result = run(*arguments, "--method", "auto", "--method", "cm")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "bad: 4 of 4 pairs could not be run; 3 pairs: camera0 must have its principal" in text
    assert "1 pair: image must be an image file, got" in text
    assert "4 pairs could not be run, for the reasons above" in text
    assert "good: " not in text
    table = (tmp_path / "out" / "classic-good+bad-auto.md").read_text()
    assert "bad: 4 of 4 pairs could not be run" in table
    record = json.loads(run(*arguments, "--json").stdout)
    assert record["not_run"] == 4
    reasons = record["methods"]["auto"]["runs"]["classic/bad"]["reasons_not_run"]
    assert [reason["count"] for reason in reasons] == [3, 1]
    assert run("eval", good, *FAST, "--out", tmp_path / "out").exit_code == 0


def test_retry_errors_runs_an_image_that_came_later(tmp_path, views):
    folder = write_photos(tmp_path / "photos", views)
    (folder / "b.png").rename(folder / "later.png")
    arguments = ["eval", folder, *FAST, "--out", tmp_path / "out"]
    assert run(*arguments).exit_code == 1
    (folder / "later.png").rename(folder / "b.png")
    assert "--retry-errors tries them again" in " ".join(run(*arguments).stdout.split())
    assert run(*arguments, "--retry-errors").exit_code == 0


def test_sizes_of_each_set_in_one_call(tmp_path, views):
    """One call over sets of two kinds gives, bit for bit, what a call for each gives."""
    plain = write_photos(tmp_path / "plain", views)
    small = write_photos(tmp_path / "small", views)
    apart = tmp_path / "apart"
    run("eval", plain, *FAST, "--out", apart)
    run("eval", small, *FAST, "--longest1", 0, "--longest0", 200, "--out", apart)
    (small / "set.toml").write_text("longest0 = 200\n")
    (tmp_path / "more.toml").write_text('root = "small"\nlongest0 = 200\nlongest1 = 0\n')
    result = run("eval", plain, tmp_path / "more.toml", *FAST, "--out", tmp_path / "one")
    assert result.exit_code == 0, result.output
    for name in ("plain", "small"):
        found, wanted = (
            RunResult.load(folder / "classic" / name / "auto")
            for folder in (tmp_path / "one", apart)
        )
        assert found.header == wanted.header
        assert np.array_equal(found.errors, wanted.errors)
    table = (tmp_path / "one" / "classic-plain+small-auto.md").read_text()
    assert "Working size by set: image 0 200 px and image 1 as it is in small." in table
    assert "| macro | 4 |" in table
    # The file of the folder, and a flag that is stronger.
    other = run("eval", small, *FAST, "--longest0", 180, "--out", tmp_path / "other", "--json")
    (summary,) = json.loads(other.stdout)["methods"]["auto"]["runs"].values()
    assert summary["source"]["longest"] == [180, None]
    again = run("eval", small, *FAST, "--longest0", 180, "--out", tmp_path / "other")
    assert "small: longest0 180 as asked for, instead of the set's own 200" in again.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a.png b.png\n",
            "without that of 1 of 1, the first a.png and b.png; manymatch batch needs",
        ),
        ("a.png b.png 0 0 1 2 3\n", "line 1: it must have two names"),
        ("a.png\n", "line 1: it must have two names"),
        ("", "it has no pair"),
        ("# nothing\n", "it has no pair"),
        (None, "root must have a list pairs.txt, got no text file"),
    ],
)
def test_a_list_that_cannot_be_evaluated_is_one_sentence(tmp_path, views, text, sentence):
    folder = write_photos(tmp_path / "photos", views, text or "")
    if text is None:
        (folder / "pairs.txt").unlink()
    result = run("eval", folder, *FAST, "--out", tmp_path / "out")
    assert sentence in one_sentence(result)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_results_is_checked_before_anything_is_opened(tmp_path, monkeypatch):
    def opened(*_args, **_how):
        raise AssertionError("sets were opened")

    monkeypatch.setattr(eval_module, "open_graphs", opened)
    (tmp_path / "file").write_text("x")
    for out, sentence in (
        (tmp_path / "file", f"got '{tmp_path / 'file'}' ('{tmp_path / 'file'}' is a file)"),
        (tmp_path / "file" / "below", f"('{tmp_path / 'file'}' is a file)"),
        ("/proc/nothing", "--out must be a folder that can be written to, got '/proc/nothing'"),
    ):
        assert sentence in one_sentence(run("eval", "synthetic:easy", "--out", out))
    assert (tmp_path / "file").read_text() == "x"


def opened_with(monkeypatch, *arguments):
    """The configuration with which a command opens sets, before anything is loaded."""

    class OpenedError(Exception):
        pass

    def opened(_sets, configs, **_how):
        raise OpenedError(configs)

    monkeypatch.setattr("manymatch_lab.commands.eval.open_graphs", opened)
    result = run("eval", "scannet1500", *arguments)
    assert isinstance(result.exception, OpenedError), result.output
    (config,) = result.exception.args[0]
    return config


def test_protocol_paper_sets_everything(monkeypatch, tmp_path):
    assert opened_with(monkeypatch, "--protocol", "paper") == MatcherConfig.paper()
    config = opened_with(monkeypatch, "--protocol", "paper", "--preset", "classic", "--k", 3)
    assert (config.preset, config.method, config.sources[0].association.k) == (
        "classic",
        "hcm-mcm",
        3,
    )
    assert config.sources[0].association.gms is True
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
    given = ["--protocol", "paper", "--set", "q=0.4", "--seeds", 1, "--limit", 1, "--out", tmp_path]
    result = run("eval", "synthetic:easy", *given)
    sentence = f"Differs from the paper's protocol in: {', '.join(wanted)}."
    assert sentence in " ".join(result.stdout.split())
    assert sentence in (tmp_path / f"{EASY}-hcm-mcm-first1.md").read_text()
    record = json.loads(run("eval", "synthetic:easy", *given, "--json").stdout)
    assert record["methods"]["hcm-mcm"]["differs_from_paper"] == wanted
    summary = tmp_path / "synthetic" / "synthetic-easy" / "hcm-mcm" / "summary.json"
    assert json.loads(summary.read_text())["differs_from_paper"] == wanted


def test_unknown_protocols_are_refused(tmp_path):
    wrong = run("eval", "synthetic:easy", "--protocol", "other")
    assert "protocol must be one of 'paper', got 'other'" in one_sentence(wrong)
    (tmp_path / "a.toml").write_text('preset = "classic"\n')
    both = run("eval", "synthetic:easy", "--protocol", "paper", "--config", tmp_path / "a.toml")
    assert "--protocol and --config must not be given together" in one_sentence(both)


def test_hidden_cameras(tmp_path):
    arguments = ["eval", "synthetic:easy", "--unknown-focal", "--out", tmp_path, *QUICK]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "Cameras are hidden; of the focal lengths, each pair finds its own." in said
    text = (tmp_path / f"{EASY}-auto-first3.md").read_text()
    assert re.search(r"focal error %, quartiles.*\d+\.\d / \d+\.\d / \d+\.\d", text, re.DOTALL)
    found = RunResult.load(tmp_path / "synthetic" / "synthetic-easy" / "auto")
    assert found.header["config"]["unknown_focal"]
    shared = ("--out", tmp_path / "shared", "--camera-per", "all", "--json")
    record = json.loads(run(*arguments, *shared).stdout)
    assert record["methods"]["auto"]["config"]["camera_per"] == "all"
    for change in (["--camera-per", "each"], ["--method", "opencv"]):
        one_sentence(run(*arguments, *change))

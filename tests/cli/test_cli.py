import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch import AssociationGraph, Options, _core, estimate_relative_pose
from manymatch.cli import demo as demo_module
from manymatch.cli import solve as solve_module
from manymatch.cli._cameras import parse_camera
from manymatch.cli.app import app
from manymatch.datasets import demo_pair
from manymatch.datasets.synthetic import EASY, make_scene
from manymatch.estimate.options import INGREDIENTS
from manymatch.evaluate import pose_error_deg
from manymatch.geometry.pose import RelativePose
from manymatch.io import write_associations_csv

CAMERA = "800,800,511.5,383.5"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def scene():
    return make_scene(EASY, 0)


@pytest.fixture
def graph_file(scene, tmp_path):
    path = tmp_path / "pair.npz"
    scene.graph.save(path)
    return path


def one_sentence(result, code):
    """Check that a run ended with one line on standard error and nothing else, and return it."""
    assert result.exit_code == code
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("manymatch: ")
    return result.stderr


def test_version_and_what_it_runs_on():
    plain, verbose = run("--version"), run("--version", "--verbose")
    assert plain.exit_code == verbose.exit_code == 0
    assert len(plain.stdout.splitlines()) == 1
    assert plain.stdout.startswith("manymatch ")
    for part in (np.__version__, _core.instruction_set(), "cores "):
        assert part in verbose.stdout


@pytest.mark.parametrize(
    "command",
    [
        "batch",
        "compare",
        "datasets",
        "demo",
        "eval",
        "experiment",
        "match",
        "models",
        "pca",
        "solve",
    ],
)
def test_help_shows_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: manymatch {command}" in result.stdout


def test_every_option_of_the_estimator_is_a_flag_with_the_same_default():
    signature = solve_module.solve.__annotations__
    defaults = solve_module.solve.__defaults__
    names = list(signature)[: -1 if "return" in signature else None]
    given = dict(zip(names[-len(defaults) :], defaults, strict=True))
    for field in dataclasses.fields(Options):
        # A flag that may be repeated is None when it is not given.
        unsaid = () if field.name == "without" else field.default
        assert (given[field.name] or unsaid) == field.default


@pytest.fixture
def quick():
    """Settings that make the demo take no time."""
    pytest.importorskip("cv2")
    return ("--preset", "classic", "--set", "longest=320", "--set", "max_keypoints=500")


def test_demo_tells_and_draws(tmp_path, quick):
    result = run("demo", "--out", tmp_path, *quick)
    assert result.exit_code in (0, 1)
    for name in ("street0.jpg", "street1.jpg", "rank_one.png", "matches.png", "report.html"):
        assert (tmp_path / name).stat().st_size > 5_000, name
        assert str(tmp_path / name) in result.stdout


def test_demo_json_is_one_document_with_the_errors_of_both_ways(tmp_path, quick):
    result = run("demo", "--json", "--out", tmp_path, *quick)
    record = json.loads(result.stdout)
    true = demo_pair()
    rival = record["rivals"][0]
    for entry, name in ((record, "error_deg"), (rival, "rank_one_error_deg")):
        pose = entry["pose"] and RelativePose(entry["pose"]["R"], entry["pose"]["t"])
        assert record[name] == pytest.approx(pose_error_deg(pose, true.R, true.t), abs=1e-9)


@pytest.mark.parametrize(
    ("plain", "own", "words"),
    [(30.0, 1.0, "goes wrong here"), (1.0, 1.0, "Both ways"), (1.0, 30.0, "not found")],
)
def test_demo_says_what_it_shows(plain, own, words):
    graph = AssociationGraph(np.eye(3, 2), np.eye(3, 2), [(0, 0), (1, 2)], rank=[1, 2])
    estimate = SimpleNamespace(matches=np.array([[0, 0], [1, 2]]))
    text = demo_module._summary(plain, own, SimpleNamespace(graph=graph, estimate=estimate))
    assert words in text
    if plain > own:
        assert "1 of the 2 resolved matches" in text


def test_demo_without_matplotlib_still_tells_and_reports(tmp_path, monkeypatch, quick):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("demo", "--out", tmp_path, *quick)
    assert result.exit_code in (0, 1)
    assert "pose error" in result.stdout
    assert (tmp_path / "report.html").is_file()
    assert not list(tmp_path.glob("*matches.png"))


def test_demo_into_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, quick):
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "folder"
    assert "file" in one_sentence(run("demo", "--out", folder, *quick), 2)


def test_solve_prints_json_equal_to_the_library(scene, graph_file):
    result = run(
        "solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, "--json", "--seed", 5,
        "--method", "mcm",
    )  # fmt: skip
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    K = [[800, 0, 511.5], [0, 800, 383.5], [0, 0, 1]]
    expected = estimate_relative_pose(scene.graph, K, K, method="mcm", options=Options(seed=5))
    assert record["pose"]["R"] == expected.pose.R.tolist()
    assert record["pose"]["t"] == expected.pose.t.tolist()
    assert record["matches"] == len(expected.matches)
    assert record["options"] == Options(seed=5).to_dict()
    assert record["method"] == "mcm"
    assert record["mean_probability"] is None


def test_solve_is_auto_and_can_leave_parts_of_it_out(scene, graph_file):
    cameras = ("--camera0", CAMERA, "--camera1", CAMERA, "--json", "--max-iterations", 2000)
    plain = json.loads(run("solve", graph_file, *cameras).stdout)
    assert plain["method"] == "auto"
    assert plain["options"]["without"] == []
    without = [flag for name in INGREDIENTS for flag in ("--without", name)]
    bare = json.loads(run("solve", graph_file, *cameras, *without).stdout)
    options = Options(max_iterations=2000, without=tuple(INGREDIENTS))
    expected = estimate_relative_pose(
        scene.graph, scene.camera0, scene.camera1, "auto", options=options
    )
    assert bare["options"] == options.to_dict()
    assert bare["pose"]["R"] == expected.pose.R.tolist()
    assert bare["mean_probability"] == expected.match_probability.mean()
    assert bare["pose"] != plain["pose"]
    sentence = one_sentence(run("solve", graph_file, *cameras, "--without", "rank"), 2)
    assert "did you mean 'ranks'" in sentence
    help_text = run("solve", "--help").stdout
    assert all(name in help_text for name in INGREDIENTS)


def test_solve_writes_pose_and_matches(scene, graph_file, tmp_path):
    folder = tmp_path / "a" / "b"
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, "--out", folder)
    assert result.exit_code == 0
    assert "Camera 1 is turned" in result.stdout
    record = json.loads((folder / "pose.json").read_text())
    pose = RelativePose(record["pose"]["R"], record["pose"]["t"])
    assert pose_error_deg(pose, scene.pose.R, scene.pose.t) < 2
    with np.load(folder / "matches.npz") as saved:
        assert len(saved["matches"]) == record["matches"]
        assert np.array_equal(saved["points0"], scene.graph.points0[saved["matches"][:, 0]])
        assert np.array_equal(saved["points1"], scene.graph.points1[saved["matches"][:, 1]])
        assert saved["inliers"].sum() == record["inliers"]
        assert saved["probability"].shape == (record["matches"],)
        assert saved["probability"].mean() == record["mean_probability"]
    sure = round(record["mean_probability"] * record["matches"])
    assert f"matches ({sure} expected to be right)" in " ".join(result.stdout.split())


def test_solve_reads_an_association_csv(scene, graph_file, tmp_path):
    csv = tmp_path / "pair.csv"
    write_associations_csv(scene.graph, csv)
    cameras = ("--camera0", CAMERA, "--camera1", CAMERA, "--json")
    from_csv, from_npz = (json.loads(run("solve", p, *cameras).stdout) for p in (csv, graph_file))
    assert from_csv["pose"] == from_npz["pose"]


def test_solve_with_too_few_candidates_is_exit_code_one(graph_file):
    arguments = ("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, "--max-edges", 4)
    result = run(*arguments)
    assert result.exit_code == 1
    assert "No pose was found" in result.stdout
    record = json.loads(run(*arguments, "--json").stdout)
    assert record["success"] is False
    assert record["pose"] is None
    assert record["failure"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--camera0", "800,800"), "camera0 must be"),
        (("--camera1", "nothing.txt"), "camera1 must name an existing file"),
        (("--method", "best"), "method must be one of"),
        (("--threshold-px", "-1"), "threshold_px must be"),
        (("--min-iterations", "9", "--max-iterations", "3"), "min_iterations must be"),
        (("--max-edges", "-3"), "n must be"),
    ],
)
def test_solve_names_bad_input_in_one_sentence(graph_file, arguments, message):
    # The last of a repeated flag counts.
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, *arguments)
    assert message in one_sentence(result, 2)


def test_solve_of_a_missing_or_damaged_file_is_one_sentence(tmp_path):
    cameras = ("--camera0", CAMERA, "--camera1", CAMERA)
    assert "absent.npz" in one_sentence(run("solve", tmp_path / "absent.npz", *cameras), 2)
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"not a graph")
    assert "damaged.npz" in one_sentence(run("solve", damaged, *cameras), 2)


def test_an_unknown_flag_is_bad_input():
    result = run("solve", "--no-such-flag")
    assert result.exit_code == 2
    assert "no-such-flag" in result.stderr


def test_ctrl_c_ends_with_one_line(graph_file, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(solve_module, "estimate_relative_pose", interrupted)
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA)
    assert "stopped" in one_sentence(result, 130)


def test_a_programming_error_is_not_hidden(graph_file, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("broken")

    monkeypatch.setattr(solve_module, "estimate_relative_pose", broken)
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA)
    assert isinstance(result.exception, RuntimeError)


def test_cameras_as_text_and_as_files(tmp_path):
    numbers = parse_camera("800, 810, 511.5, 383.5", "camera0")
    assert numbers.params == (800.0, 810.0, 511.5, 383.5)
    assert (numbers.model, numbers.width) == ("PINHOLE", None)
    text = "SIMPLE_RADIAL,1024,768,800,511.5,383.5,0.1"
    named = parse_camera(text, "camera0")
    assert (named.model, named.width, named.height) == ("SIMPLE_RADIAL", 1024, 768)
    assert named.params == (800.0, 511.5, 383.5, 0.1)

    plain = tmp_path / "a.txt"
    plain.write_text(text.replace(",", " "))
    assert parse_camera(str(plain), "camera0") == named
    matrix = tmp_path / "matrix.txt"
    matrix.write_text("800 0 511.5\n0 810 383.5\n0 0 1\n")
    assert parse_camera(str(matrix), "camera0") == numbers
    as_dict = tmp_path / "a.json"
    as_dict.write_text(json.dumps(named.to_dict()))
    assert parse_camera(str(as_dict), "camera0") == named
    as_list = tmp_path / "b.json"
    as_list.write_text("[[800, 0, 511.5], [0, 810, 383.5], [0, 0, 1]]")
    assert parse_camera(str(as_list), "camera0") == numbers


def test_a_colmap_cameras_file_is_moved_by_half_a_pixel(tmp_path):
    path = tmp_path / "cameras.txt"
    path.write_text("# Camera list\n1 PINHOLE 1024 768 800 810 512 384\n")
    assert parse_camera(str(path), "camera0").params == (800.0, 810.0, 511.5, 383.5)


@pytest.mark.parametrize(
    "content",
    ["", "1 2 3", "a b c d", "1 PINHOLE 4 4 1 1 1 1\n2 PINHOLE 4 4 1 1 1 1", "PINHOLE 4 x 1 1 1 1"],
)
def test_a_camera_file_with_something_else_is_named(tmp_path, content):
    path = tmp_path / "camera.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"^camera1 must .*camera\.txt"):
        parse_camera(str(path), "camera1")


def test_a_camera_file_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "camera.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"^camera1 must be valid JSON"):
        parse_camera(str(path), "camera1")


def test_the_installed_entry_point_runs():
    code = "from manymatch.cli.app import main; main()"
    result = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-c", code, "solve", "absent.npz", "--camera0", CAMERA, "--camera1", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "camera1 must be" in result.stderr
    assert "Traceback" not in result.stderr

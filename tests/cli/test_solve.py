"""``manymatch solve``: candidates in, pose out."""

import dataclasses
import json

import numpy as np
import pytest

from manymatch import AssociationGraph, Camera, Options, RelativePose, estimate_relative_pose
from manymatch.cli import solve
from manymatch.estimate.many import PROBLEMS
from manymatch.geometry.pose import pose_error_deg
from manymatch.io import load_graph, read_matches_npz
from manymatch.options import AUTO_PARTS
from manymatch_lab.datasets.synthetic import EASY, make_scene
from tests.support.command import one_sentence, run
from tests.support.synthetic_alternatives import with_alternatives

CAMERA = "800,800,511.5,383.5"


@pytest.fixture(scope="module")
def scene():
    return make_scene(EASY, 0)


@pytest.fixture
def graph_file(scene, tmp_path):
    path = tmp_path / "pair.npz"
    scene.graph.save(path)
    return path


def both(camera):
    return ("--camera0", camera, "--camera1", camera)


KNOWN, UNKNOWN = (
    Camera.from_matrix([[800, 0, 511.5], [0, 800, 383.5], [0, 0, 1]]),
    "unknown,1024,768",
)
# Flags, arguments of the library after the graph, options, and words that are printed.
SOLVED = {
    "a method": (
        (*both(CAMERA), "--seed", 5, "--method", "mcm"),
        (KNOWN, KNOWN, "mcm"),
        {"seed": 5},
        "Camera 1 is turned",
    ),
    "without parts of auto": (
        (*both(CAMERA), "--set", f"disable={','.join(AUTO_PARTS)}"),
        (KNOWN, KNOWN, "auto"),
        {"disable": tuple(AUTO_PARTS)},
        "Camera 1 is turned",
    ),
    "unknown focal lengths": (
        both(UNKNOWN),
        (Camera.unknown(1024, 768), Camera.unknown(1024, 768)),
        {},
        " px (from the two images)",
    ),
    "a fundamental matrix": (
        ("--problem", "fundamental"),
        (),
        {},
        "A fundamental matrix relates image 0 and image 1.",
    ),
}


@pytest.mark.parametrize(("flags", "arguments", "options", "said"), SOLVED.values(), ids=SOLVED)
def test_solve_equals_the_library(scene, graph_file, flags, arguments, options, said):
    command = ("solve", graph_file, *flags, "--set", "max_iterations=2000")
    record = json.loads(run(*command, "--json").stdout)
    wanted = Options(max_iterations=2000, **options)
    expected = PROBLEMS[record["problem"]].estimate(scene.graph, *arguments, options=wanted)
    values = json.loads(json.dumps(expected.to_dict()))
    del values["timing_s"]
    assert record.items() >= values.items()
    assert (record["options"], record["method"]) == (wanted.to_dict(), expected.method)
    assert record["cameras"] == [camera.to_dict() for camera in getattr(expected, "cameras", ())]
    assert said in run(*command).stdout


def test_unknown_focal_lengths_may_differ(graph_file):
    flags = (*both(UNKNOWN), "--set", "max_iterations=3000", "--json", "--no-shared-focal")
    focal = json.loads(run("solve", graph_file, *flags).stdout)["focal_px"]
    assert focal[0] != focal[1]


def test_solve_of_a_picture_names_the_command_for_images(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = one_sentence(run("solve", tmp_path / "picture.png"))
    assert "it is an image: manymatch match IMAGE0 IMAGE1 matches two of them" in said


def test_solve_writes_what_match_writes(scene, graph_file, tmp_path):
    folder = tmp_path / "a" / "b"
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, "--out", folder)
    assert result.exit_code == 0
    assert "Camera 1 is turned" in result.stdout
    record = json.loads((folder / "result.json").read_text())
    pose = RelativePose(**record["pose"])
    assert pose_error_deg(pose, scene.pose.R, scene.pose.t) < 2
    # The matches index the points of the file.
    matches = load_graph(folder / "matches.npz")
    assert np.array_equal(matches.points0, scene.graph.points0)
    assert np.array_equal(matches.points1, scene.graph.points1)
    expected = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    ours = {tuple(match) for match in expected.matches.tolist()}
    assert {tuple(edge) for edge in matches.edges.tolist()} == ours
    assert matches.similarity.mean() == pytest.approx(record["mean_probability"], rel=1e-6)


def test_solve_counts_and_writes_sources(scene, tmp_path):
    graph = scene.graph
    number = graph.num_edges
    stacked = AssociationGraph(
        *(graph.points0, graph.points1, graph.edges, graph.similarity, graph.rank),
        source=np.arange(number) % 2,
        source_names=["even", "odd"],
    )
    path = tmp_path / "stacked.npz"
    stacked.save(path)
    out = tmp_path / "out"
    result = run("solve", path, "--camera0", CAMERA, "--camera1", CAMERA, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    pair = read_matches_npz(out / "matches.npz")
    assert (pair.source_names, len(pair.source)) == (("even", "odd"), record["matches"])
    assert np.array_equal(stacked.source_of(pair.inliers), pair.inlier_source)
    for name, numbers in stacked.count_by_source(pair.matches).items():
        assert record["sources"][name]["matches"] == numbers
    assert sum(counts["inliers"] for counts in record["sources"].values()) == record["inliers"]


def test_solve_prints_and_writes_alternatives(scene, graph_file, tmp_path, monkeypatch):
    def ambiguous(*arguments, **settings):
        return with_alternatives(estimate_relative_pose(*arguments, **settings))

    relative = dataclasses.replace(PROBLEMS["relative"], estimate=ambiguous)
    arguments = PROBLEMS["relative"].arguments
    monkeypatch.setattr(type(relative), "arguments", arguments)
    monkeypatch.setitem(PROBLEMS, "relative", relative)
    judge = solve.assess
    monkeypatch.setattr(
        solve, "assess", lambda e: dataclasses.replace(judge(e), verdict="ambiguous")
    )
    arguments = ("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA)
    result = run(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert result.stdout.startswith("Ambiguous: ")
    others = [line for line in result.stdout.splitlines() if line.startswith("Or camera 1 is ")]
    expected = ambiguous(scene.graph, scene.camera0, scene.camera1).alternatives
    for line, other, share in zip(others, expected, ("30 %", "12 %"), strict=True):
        assert f"({share}, {len(other.matches)} matches)." in line
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    assert record["alternatives"] == json.loads(run(*arguments, "--json").stdout)["alternatives"]
    back = read_matches_npz(tmp_path / "out" / "matches.npz").alternatives
    for entry, stored, other in zip(record["alternatives"], back, expected, strict=True):
        assert entry["pose"] == {"R": other.model.R.tolist(), "t": other.model.t.tolist()}
        assert entry["probability"] == stored.probability == other.probability
        assert entry["cardinality"] == entry["matches"] == len(other.matches)
        assert entry["support"] == other.support
        assert stored.pose == other.model
        assert stored.matches.tolist() == other.matches.tolist()


def test_solve_finds_a_homography(tmp_path):
    H = np.array([[1.1, 0.05, 20.0], [-0.03, 0.95, -8.0], [1e-4, -5e-5, 1.0]])
    points = np.random.default_rng(0).uniform(0, 500, (60, 2))
    mapped = np.c_[points, np.ones(60)] @ H.T
    graph = AssociationGraph.from_matches(points, mapped[:, :2] / mapped[:, 2:])
    graph.save(tmp_path / "plane.npz")
    flags = ("--problem", "homography", "--threshold-px", 2, "--out", tmp_path / "out")
    result = run("solve", tmp_path / "plane.npz", *flags, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    np.testing.assert_allclose(record["homography"], H, atol=1e-6)
    assert (record["problem"], record["pose"], record["matches"]) == ("homography", None, 60)
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(record.pop("files")) == {"json", "npz"}
    assert written.pop("files") == ["result.json", "matches.npz"]
    assert written == {"convention": written["convention"], **record}
    assert "homography" in written["convention"]
    assert len(load_graph(tmp_path / "out" / "matches.npz").edges) == 60
    assert "homography" in run("solve", tmp_path / "plane.npz", *flags).stdout
    affine = run("solve", tmp_path / "plane.npz", *flags, "--model", "affine", "--json")
    record = json.loads(affine.stdout)
    assert record["model"] == "affine"
    assert record["homography"][2] == [0.0, 0.0, 1.0]


CLOUD = np.random.default_rng(2).uniform(-1, 1, (40, 3))
TURNED = CLOUD @ np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]) + [1, 2, 3]
# Arrays of a file, flags, arguments of the library after the graph, name of the model, and the
# sentence about it.
MAP = CLOUD + np.array([0.0, 0.0, 5.0])
SPACE = {
    "absolute": (
        {
            "points2D": 800 * MAP[:, :2] / MAP[:, 2:] + [511.5, 383.5],
            "points3D": MAP + np.array([1, 0, 0]),
        },
        ("--camera", CAMERA),
        ([[800, 0, 511.5], [0, 800, 383.5], [0, 0, 1]],),
        "pose",
        "The camera is at (1, 0, 0) and looks along (0, 0, 1).",
    ),
    "rigid": (
        {"points0": CLOUD, "points1": TURNED},
        ("--threshold", 0.05),
        (0.05,),
        "transform",
        "Points 0 are turned 90.00° about (0, 0, 1) and moved by (1, 2, 3) onto points 1.",
    ),
    "similarity": (
        {"points0": CLOUD, "points1": 2 * CLOUD + 1},
        ("--threshold", 0.05),
        (0.05,),
        "transform",
        "Points 0 are scaled by 2, not turned and moved by (1, 1, 1) onto points 1.",
    ),
}


@pytest.mark.parametrize("problem", SPACE)
def test_solve_equals_the_library_on_arrays(tmp_path, problem):
    arrays, flags, arguments, name, sentence = SPACE[problem]
    edges = np.repeat(np.arange(40)[:, None], 2, axis=1)
    np.savez(tmp_path / "pair.npz", **arrays, edges=edges, rank=np.ones(40, int), R=np.eye(3))
    command = ("solve", tmp_path / "pair.npz", "--problem", problem, *flags)
    result = run(*command, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    graph = AssociationGraph(*arrays.values(), edges, rank=np.ones(40, int))
    estimate = PROBLEMS[problem].estimate(graph, *arguments)
    expected = getattr(estimate, name)
    if name == "pose":
        assert record["pose"] == {"R": expected.R.tolist(), "t": expected.t.tolist()}
    else:
        assert record[name] == expected.tolist()
        assert record["pose"] is None
    assert (record["problem"], record["matches"]) == (problem, len(estimate.matches))
    if problem == "similarity":
        assert record["scale"] == pytest.approx(2.0)
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert name in written["convention"] or "R @ X" in written["convention"]
    assert written[name] == record[name]
    matches = read_matches_npz(tmp_path / "out" / "matches.npz")
    assert np.array_equal(matches.keypoints1, list(arrays.values())[1])
    assert np.array_equal(matches.matches, estimate.matches)
    assert matches.config[name] == record[name]
    assert np.array_equal(
        np.sort(load_graph(tmp_path / "out" / "matches.npz").edges[:, 0]),
        np.sort(estimate.matches[:, 0]),
    )
    assert record["confidence"]["verdict"] == "solved"
    said = run(*command).stdout
    assert said.startswith("Solved: ")
    assert sentence in said
    if problem == "absolute":
        assert run(*command[:-2], "--camera0", CAMERA).stdout.startswith(
            said[: said.index("samples in")]
        )
    assert "image 0" not in said


def test_flag_of_another_problem_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", points0=CLOUD, points1=CLOUD, edges=np.zeros((1, 2), int))
    for problem, flags, message in (
        ("rigid", (), "--threshold must be given for --problem rigid, in the unit"),
        (
            "rigid",
            ("--threshold", 1, "--camera0", CAMERA),
            "--camera0 must be left out for --problem rigid",
        ),
        ("similarity", ("--threshold", 0), "threshold must be"),
        (
            "fundamental",
            ("--model", "affine"),
            "--model must be left out for",
        ),
        (
            "fundamental",
            ("--camera0", CAMERA),
            "--camera0 must be left out for",
        ),
        ("homography", ("--shared-focal",), "--shared-focal must be left out"),
        ("homography", ("--model", "rigid"), "--model must be"),
        ("homography", ("--threshold", 1), "--threshold must be left out for --problem homography"),
        ("homography", (), "graph must have pixels (N, 2) as points0 here"),
        ("relative", ("--camera", CAMERA), "--camera must be left out for --problem relative"),
        ("relative", ("--camera0", CAMERA), "--camera1 must be given for --problem relative"),
        ("absolute", (), "--camera must be given for --problem absolute, as fx,fy,cx,cy"),
        ("absolute", ("--camera1", CAMERA), "--camera1 must be left out for --problem absolute"),
    ):
        command = ("solve", tmp_path / "a.npz", "--problem", problem, *flags)
        assert message in one_sentence(run(*command), 2)


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
        (("--camera1", "nothing.txt"), "camera1 must be a text file, got"),
        (("--camera1", "800"), "must be fx,fy,cx,cy where there is no image"),
        (("--method", "best"), "method must be one of"),
        (("--set", "disable=rank"), "did you mean 'ranks'"),
        (("--problem", "pose"), "--problem must be one of"),
        (("--out", "/proc/manymatch"), "--out must be a folder"),
        (("--threshold-px", "wide"), "or \"auto\", got 'wide'"),
        (("--threshold-px", "0"), "threshold_px must be a number in [1e-09, 1e+09]"),
        (("--set", "min_iterations=9", "--set", "max_iterations=3"), "min_iterations must be"),
    ],
)
def test_solve_names_bad_input_in_one_sentence(graph_file, arguments, message):
    # The last of a repeated flag counts.
    result = run("solve", graph_file, "--camera0", CAMERA, "--camera1", CAMERA, *arguments)
    assert message in one_sentence(result, 2)

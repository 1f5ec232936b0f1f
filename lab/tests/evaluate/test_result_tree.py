"""The result tree of the paper's code as posed graphs, and the experiments on it."""

import csv
import hashlib
import json

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

from manymatch import Camera
from manymatch_lab.command import app
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.inputs import open_graphs
from manymatch_lab.evaluate.result_tree import import_tree

METHOD = "combined_interpolate_v3/layer19/debias_svd200"
POSES = ("pair_idx", "fx1", "fy1", "cx1", "cy1", "fx2", "fy2", "cx2", "cy2",
         "qw", "qx", "qy", "qz", "tx", "ty", "tz", "dist0_coeffs", "dist1_coeffs")  # fmt: skip
COLUMNS = ("left_idx", "right_idx", "x1", "y1", "x2", "y2", "similarity", "k")


def write_subset(folder, scenes, method=METHOD, distortion=""):
    associations = folder / method / "progressive_k5"
    associations.mkdir(parents=True)
    # Filtered graphs and smaller K beside it are not read.
    for other in ("progressive_k1", "progressive_k5_GMSm2m_ThrFact_4.0"):
        (folder / method / other).mkdir()
    with (folder / "pose_intrinsics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(POSES)
        for number, scene in enumerate(scenes, 1):
            x, y, z, w = Rotation.from_matrix(scene.pose.R).as_quat()
            cameras = [c for camera in (scene.camera0, scene.camera1) for c in camera.params]
            writer.writerow([number, *cameras, w, x, y, z, *scene.pose.t, distortion, distortion])
    for number, scene in enumerate(scenes, 1):
        graph = scene.graph
        with (associations / f"matching_{number:03d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for e, (i, j) in enumerate(graph.edges):
                # The numbers of keypoints have gaps.
                ends = [2 * i, 3 * j, *graph.points0[i], *graph.points1[j]]
                writer.writerow([*ends, graph.similarity[e], graph.rank[e]])
    return associations


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    scenes = [make_scene(EASY, seed) for seed in range(4)]
    write_subset(root / "scannet_resized" / "scannet_test_pairs_with_gt", scenes[:2])
    for number, name in enumerate(("wildset_0-40", "wildset_40-80")):
        write_subset(root / "NAVI_wild" / name, scenes[2 + number : 3 + number])
    return root, scenes


def test_graphs_cameras_and_poses_come_back(tree, tmp_path):
    root, scenes = tree
    entries = import_tree(root, tmp_path / "graphs")
    found = {(e["representation"], e["set"]): e["pairs"] for e in entries}
    assert found == {("dinov3", "scannet1500"): 2, ("dinov3", "navi-wild"): 2}
    navi, scannet = sorted(open_graphs([str(tmp_path / "graphs")]), key=lambda s: s.name)
    for number, scene in enumerate(scenes[:2]):
        posed = scannet[number]
        i, j = posed.graph.edges.T
        np.testing.assert_allclose(
            posed.graph.points0[i], scene.graph.points0[scene.graph.edges[:, 0]]
        )
        np.testing.assert_allclose(
            posed.graph.points1[j], scene.graph.points1[scene.graph.edges[:, 1]]
        )
        np.testing.assert_array_equal(posed.graph.rank, scene.graph.rank)
        np.testing.assert_allclose(posed.R, scene.pose.R, atol=1e-12)
        assert posed.camera0.params == scene.camera0.params
        assert (posed.seed_index, posed.working_scale[0].tolist()) == (number + 1, [1.0, 1.0])
    # The numbers of pairs, by which seeds go, start again in each bin.
    assert [(posed.bin, posed.seed_index) for posed in navi] == [("0-40", 1), ("40-80", 1)]


def test_distortion_and_priors_are_kept(tmp_path):
    place = tmp_path / "METU_VisTIR_resized" / "cloudy_sunny"
    folder = write_subset(place, [make_scene(EASY, 1)], distortion="-0.1,0.02,0.001,0.002")
    file = folder / "matching_001.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([f"{lines[0]},prob", *(f"{line},0.25" for line in lines[1:])]))
    import_tree(tmp_path, tmp_path / "graphs")
    (source,) = open_graphs([str(tmp_path / "graphs" / "dinov3")])
    assert source.name == "metu-cs"
    assert source[0].camera1.distortion == (-0.1, 0.02, 0.001, 0.002)
    assert isinstance(source[0].camera1, Camera)
    assert set(source[0].graph.prior) == {0.25}


@pytest.mark.parametrize("experiment", ["q1", "q2", "q3"])
def test_experiments_run_on_it(tree, tmp_path, experiment):
    root, _ = tree
    out = tmp_path / "graphs"
    imported = CliRunner().invoke(app, ["import-tree", str(root), str(out)])
    assert "dinov3, scannet1500: 2 pairs" in imported.stdout
    budget = "--iterations" if experiment == "q1" else "--max-iterations"
    arguments = [experiment, str(out), "--seeds", "1", budget, "200", "--workers", "1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    data = json.loads(result.stdout)
    assert [entry["name"] for entry in data["runs"][0]["sets"]] == ["navi-wild", "scannet1500"]
    assert "the imported candidates are those of dinov3" in data["assumed"]
    assert "the pairs of scannet1500 are the published ones" in data["assumed"]
    assert not any("candidates of" in text for text in data["differs_from_paper"])


def change_manifest(root):
    poses = root / "NAVI_wild" / "wildset_0-40" / "pose_intrinsics.csv"
    manifest = {"pose_intrinsics_sha256": "0" * 64, "pair_file_sha256": "1"}
    poses.with_name("pose_intrinsics_manifest.json").write_text(json.dumps(manifest))


def change_list(root):
    poses = root / "NAVI_wild" / "wildset_0-40" / "pose_intrinsics.csv"
    digest = hashlib.sha256(poses.read_bytes()).hexdigest()
    manifest = {"pose_intrinsics_sha256": digest, "pair_file_sha256": "1"}
    poses.with_name("pose_intrinsics_manifest.json").write_text(json.dumps(manifest))
    other = poses.parent / METHOD / "progressive_k5" / "association_manifest.json"
    other.write_text(json.dumps({"pair_file_sha256": "2"}))


def remove_matches(root):
    (root / "NAVI_wild" / "wildset_0-40" / METHOD / "progressive_k5" / "matching_001.csv").unlink()


def remove_column(root):
    file = next(root.rglob("matching_001.csv"))
    file.write_text(file.read_text().replace("right_idx", "other"))


def add_method(root):
    subset = root / "NAVI_wild" / "wildset_0-40"
    place = subset / METHOD.replace("v3", "v3_q1") / "progressive_k5"
    place.mkdir(parents=True)
    (place / "matching_001.csv").write_text("x")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (change_manifest, "another pose_intrinsics.csv"),
        (change_list, "another list of pairs"),
        (remove_matches, "must have matching_001.csv"),
        (remove_column, "lacks the columns right_idx"),
        (add_method, "method must be one of .*v3/.*, .*v3_q1/.*, which all are dinov3"),
    ],
)
def test_trees_that_do_not_fit_are_refused(tree, tmp_path, damage, words):
    root, _ = tree
    damage(root)
    with pytest.raises(ValueError, match=words):
        import_tree(root, tmp_path / "graphs")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tree must have pose_intrinsics\.csv"):
        import_tree(tmp_path, tmp_path / "graphs")

"""COLMAP's mappers on pairs with known poses."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from manymatch import Camera, RelativePose
from manymatch.geometry.pose import rotation_error_deg
from manymatch.io.matches import ImageRecord
from manymatch.reconstruct.mapping import MappingError, Model, agreement, map_pairs, run_jobs
from tests.support.scenes import CAMERA, arc

pytest.importorskip("pycolmap")


@pytest.fixture(scope="module")
def scene():
    return arc()


@pytest.fixture(scope="module")
def mapped(scene, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mapped")
    return map_pairs(scene.graph, [True] * len(scene.graph.pairs), folder, refine_cameras=False)


def errors(scene, model):
    """Angles of rotation and direction between the model and the truth, over all its pairs."""
    found = []
    names = [photo.name for photo in scene.graph.photos]
    for i, j in itertools.combinations(range(len(names)), 2):
        if names[i] in model.poses and names[j] in model.poses:
            R, t = model.relative(names[i], names[j])
            true_R, true_t = scene.relative(i, j)
            cosine = t @ true_t / np.linalg.norm(t) / np.linalg.norm(true_t)
            found.append((rotation_error_deg(R, true_R), np.degrees(np.arccos(min(1.0, cosine)))))
    return np.array(found)


def test_model_has_the_true_poses(scene, mapped):
    (model,) = mapped
    assert len(model.poses) == 8
    assert errors(scene, model).max() < 0.3
    assert model.points > 350
    assert model.reprojection_px < 0.6
    assert model.agreeing == 1.0


def test_same_pairs_give_the_same_model(scene, mapped, tmp_path):
    keep = [True] * len(scene.graph.pairs)
    (again,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False)
    assert again.mapper == mapped[0].mapper
    for name, pose in mapped[0].poses.items():
        assert again.poses[name] == pose


def test_pairs_that_are_not_kept_are_not_used(scene, tmp_path):
    keep = [pair.second < 5 for pair in scene.graph.pairs]
    (model,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False)
    assert sorted(model.poses) == [f"{k:02d}.jpg" for k in range(5)]


def test_two_scenes_are_two_models(tmp_path):
    scene = arc(number=10)
    keep = [pair.second < 6 or pair.first >= 6 for pair in scene.graph.pairs]
    models = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, mappers=["incremental"])
    assert [len(model.poses) for model in models] == [6, 4]
    assert not models[0].poses.keys() & models[1].poses.keys()


def test_focal_length_is_refined_unless_it_is_known(tmp_path):
    wrong = Camera("SIMPLE_PINHOLE", 640, 480, [630.0, 319.5, 239.5])
    scene = arc(noise=0.1)
    records = [
        ImageRecord(photo.name, camera=wrong, focal_known=False, camera_name="one")
        for photo in scene.graph.photos
    ]
    photos = tuple(
        dataclasses.replace(photo, record=record)
        for photo, record in zip(scene.graph.photos, records, strict=True)
    )
    graph = dataclasses.replace(scene.graph, photos=photos)
    import pycolmap

    focals = {}
    for refine in (True, False):
        folder = tmp_path / str(refine)
        folder.mkdir()
        keep = [True] * len(graph.pairs)
        (model,) = map_pairs(graph, keep, folder, refine_cameras=refine, mappers=["incremental"])
        (camera,) = pycolmap.Reconstruction(str(model.folder)).cameras.values()
        focals[refine] = camera.mean_focal_length()
    assert focals[True] == pytest.approx(CAMERA.focal, rel=0.01)
    assert focals[False] == 630.0


def test_photographs_that_exif_turns_agree_with_their_pairs(tmp_path):
    turned = [
        ImageRecord(f"{k:02d}.jpg", camera=CAMERA, orientation=(1, 6, 8)[k % 3]) for k in range(6)
    ]
    scene = arc(number=6, records=turned)
    keep = [True] * len(scene.graph.pairs)
    (model,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, mappers=["incremental"])
    inside, agrees = agreement(scene.graph, model)
    assert inside.all()
    assert agrees.all()


def test_pair_with_another_pose_does_not_agree(scene, mapped):
    pairs = list(scene.graph.pairs)
    turn = np.deg2rad(10.0)
    R = np.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
    pairs[0] = dataclasses.replace(
        pairs[0], pose=RelativePose(R @ pairs[0].pose.R, pairs[0].pose.t)
    )
    pairs[1] = dataclasses.replace(pairs[1], pose=RelativePose(pairs[1].pose.R, -pairs[1].pose.t))
    pairs[2] = dataclasses.replace(pairs[2], pose=None)
    _, agrees = agreement(dataclasses.replace(scene.graph, pairs=tuple(pairs)), mapped[0])
    assert not agrees[:3].any()
    assert agrees[3:].all()


def test_image_that_is_not_in_the_model_has_no_pair_in_it(scene, mapped):
    poses = {name: pose for name, pose in mapped[0].poses.items() if name != "00.jpg"}
    inside, _ = agreement(scene.graph, dataclasses.replace(mapped[0], poses=poses))
    assert [pair.first != 0 for pair in scene.graph.pairs] == inside.tolist()


def test_failed_job_says_what_colmap_said(tmp_path):
    job = {
        "job": "colour",
        "model": str(tmp_path / "nothing"),
        "images": ".",
        "out": str(tmp_path / "out"),
    }
    with pytest.raises(MappingError, match=r"COLMAP ended with code .* in 'colour'.*out\.log"):
        run_jobs([job])
    assert not (tmp_path / "out").exists()


def test_one_mapper_that_fails_leaves_the_other(scene, tmp_path, monkeypatch):
    from manymatch.reconstruct import mapping

    def run_job(job, running, progress):
        if job["job"] == "global":
            raise MappingError("COLMAP ended with code 1 in 'global'")
        original(job, running, progress)

    original = mapping._run_job
    monkeypatch.setattr(mapping, "_run_job", run_job)
    keep = [True] * len(scene.graph.pairs)
    (model,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False)
    assert model.mapper == "incremental"
    with pytest.raises(MappingError, match="'global'"):
        map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, mappers=["global"])


def test_finished_job_is_not_done_again(scene, mapped):
    folder = mapped[0].folder.parents[1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.bin")}
    map_pairs(scene.graph, [True] * len(scene.graph.pairs), folder, refine_cameras=False)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.bin")} == before


_ENDLESS = """
import sys
from manymatch.reconstruct import mapping
mapping.__name__ = "time"
mapping.sys.executable = sys.argv[2]
mapping.run_jobs([{"job": "colour", "out": sys.argv[1] + "/out"}])
"""


def test_ctrl_c_ends_the_child_processes(tmp_path):
    endless = tmp_path / "endless"
    endless.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/number\nexec sleep 600\n")
    endless.chmod(0o755)
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path), str(endless)]
    number = tmp_path / "number"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        deadline = time.monotonic() + 60
        while not (number.exists() and number.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.05)
        child = int(number.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not (tmp_path / "out").exists()


def test_reading_a_model_gives_its_numbers(mapped):
    again = Model.read(mapped[0].folder)
    assert again.points == mapped[0].points
    assert again.poses.keys() == mapped[0].poses.keys()

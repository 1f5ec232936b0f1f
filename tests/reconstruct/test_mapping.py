"""COLMAP's mappers on pairs with known poses."""

import dataclasses
import itertools
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from manymatch import Camera, RelativePose
from manymatch.geometry.pose import rotation_error_deg
from manymatch.io.matches import ImageRecord
from manymatch.reconstruct import mapping
from manymatch.reconstruct.mapping import (
    MappingError,
    Model,
    agreement,
    exact_keypoints,
    map_pairs,
    read_reconstruction,
    run_jobs,
    write_exact,
)
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


def two_sources(exact, noise, seed=5):
    """Keypoints of two sources: those of the first are exact, those of the second have noise."""
    scene = arc(noise=0.05)
    rng = np.random.default_rng(seed)
    photos = []
    for photo in scene.graph.photos:
        source = (np.arange(len(photo.points)) >= exact).astype(np.int64)
        away = rng.normal(0.0, noise, photo.points.shape) * source[:, None]
        photos.append(dataclasses.replace(photo, points=photo.points + away, source=source))
    return dataclasses.replace(scene, graph=dataclasses.replace(scene.graph, photos=tuple(photos)))


def mapped_reconstruction(scene, folder):
    keep = [True] * len(scene.graph.pairs)
    (model,) = map_pairs(scene.graph, keep, folder, refine_cameras=False, mappers=["incremental"])
    return model, read_reconstruction(model.folder)


def test_exact_keypoints_decide_the_poses(tmp_path):
    scene = two_sources(exact=150, noise=1.0)
    model, found = mapped_reconstruction(scene, tmp_path)
    exact = exact_keypoints(scene.graph, found)
    assert sorted(exact) == [photo.name for photo in scene.graph.photos]
    for mask in exact.values():
        assert np.array_equal(np.flatnonzero(mask), np.arange(150))
    write_exact(found, exact, tmp_path / "exact")
    job = {"job": "settle", "model": str(tmp_path / "exact"), "out": str(tmp_path / "settled")}
    job |= {"database": str(tmp_path / "database.db"), "images": str(tmp_path)}
    run_jobs([{**job, "refine_cameras": False, "seed": 0}])
    settled = Model.read(tmp_path / "settled" / "0")
    assert errors(scene, settled).max() < 0.5 * errors(scene, model).max()
    assert settled.points > 0.9 * model.points  # the others are triangulated again


def test_sources_that_are_alike_all_count(tmp_path):
    scene = two_sources(exact=150, noise=0.02)
    _, found = mapped_reconstruction(scene, tmp_path)
    assert exact_keypoints(scene.graph, found) == {}
    alone = [dataclasses.replace(photo, source=None) for photo in scene.graph.photos]
    assert exact_keypoints(dataclasses.replace(scene.graph, photos=tuple(alone)), found) == {}


def test_photographs_with_few_exact_keypoints_keep_all(tmp_path):
    scene = two_sources(exact=60, noise=1.0)
    _, found = mapped_reconstruction(scene, tmp_path)
    assert exact_keypoints(scene.graph, found) == {}


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
        "job": "settle",
        "model": str(tmp_path / "nothing"),
        "images": ".",
        "out": str(tmp_path / "out"),
    }
    with pytest.raises(MappingError, match=r"COLMAP ended with code .* in 'settle'.*out\.log"):
        run_jobs([job])
    assert not (tmp_path / "out").exists()


def test_one_mapper_that_fails_leaves_the_other(scene, tmp_path, monkeypatch):
    def started(job):
        return original({**job, "job": "nothing"} if job["job"] == "global" else job)

    original = mapping._started
    monkeypatch.setattr(mapping, "_started", started)
    keep = [True] * len(scene.graph.pairs)
    notes = []
    (model,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, notes=notes)
    assert model.mapper == "incremental"
    (note,) = notes
    assert note.startswith("Only one mapper counts: COLMAP ended with code 1 in 'global': ")
    with pytest.raises(MappingError, match=r"'global': .*KeyError: 'nothing'"):
        map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, mappers=["global"])


@pytest.mark.parametrize(("enough", "ran"), [(0.9, ["global"]), (1.1, ["global", "incremental"])])
def test_many_images_need_the_incremental_mapper_only_if_pairs_disagree(
    scene, tmp_path, monkeypatch, enough, ran
):
    monkeypatch.setattr(mapping, "_MANY", 7)
    monkeypatch.setattr(mapping, "_ENOUGH", enough)
    (model,) = map_pairs(scene.graph, [True] * 18, tmp_path, refine_cameras=False)
    assert [name for name in ("global", "incremental") if (tmp_path / name).exists()] == ran
    assert model.mapper in ran
    assert errors(scene, model).max() < 0.3


def test_points_of_many_images_are_triangulated_once_and_not_merged(
    scene, mapped, tmp_path, monkeypatch
):
    colmap = pytest.importorskip("pycolmap")
    original, limits = colmap.triangulate_points, []

    def triangulate(*given, options, **named):
        limits.append(options.triangulation.merge_max_reproj_error)
        return original(*given, options=options, **named)

    monkeypatch.setattr(colmap, "triangulate_points", triangulate)
    monkeypatch.setattr(mapping, "_MERGED", 7)
    database = str(mapped[0].folder.parents[1] / "database.db")
    job = {"database": database, "refine_cameras": False, "seed": 0, "out": str(tmp_path)}
    mapping._global(colmap, {**job, "many": False})
    assert not limits
    found = mapping._global(colmap, {**job, "many": True})[0]
    assert limits == [mapping._NEVER_PX]
    found.write(str(tmp_path))
    model = Model.read(tmp_path, "global")
    assert errors(scene, model).max() < 0.5
    assert model.points > 200


def test_many_images_survive_a_global_mapper_that_fails(scene, tmp_path, monkeypatch):
    original = mapping._started
    monkeypatch.setattr(mapping, "_MANY", 7)
    broken = {"global": "nothing"}
    monkeypatch.setattr(
        mapping, "_started", lambda job: original({**job, "job": broken.get(job["job"], "")})
    )
    keep, notes = [True] * len(scene.graph.pairs), []
    with pytest.raises(MappingError, match="'global'"):
        map_pairs(scene.graph, keep, tmp_path, refine_cameras=False)
    broken["incremental"] = "incremental"
    (model,) = map_pairs(scene.graph, keep, tmp_path, refine_cameras=False, notes=notes)
    assert model.mapper == "incremental"
    assert [note.startswith("Only one mapper counts: ") for note in notes] == [True]


def test_full_disk_leaves_no_half_model(mapped, tmp_path):
    """COLMAP itself says nothing when it can write only half a file."""
    job = {"job": "settle", "model": str(mapped[0].folder), "images": ".", "out": tmp_path / "out"}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (mapped[0].folder / "points3D.bin").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))
    try:
        with pytest.raises(MappingError, match="COLMAP ended with code"):
            run_jobs([job])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()
    run_jobs([job])
    assert Model.read(tmp_path / "out" / "0").points == mapped[0].points


def test_finished_job_is_not_done_again(scene, mapped):
    folder = mapped[0].folder.parents[1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.bin")}
    map_pairs(scene.graph, [True] * len(scene.graph.pairs), folder, refine_cameras=False)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.bin")} == before


_STOPPED = """
import sys
from manymatch.reconstruct import mapping
mapping.sys.executable = sys.argv[2]
mapping.run_jobs([{"job": "settle", "out": sys.argv[1] + "/out"}])
"""
_ENDLESS = """#!{python}
import os, pathlib, threading, time
from manymatch.reconstruct import mapping
threading.Thread(target=mapping.end_with_parent, daemon=True).start()
pathlib.Path({number!r}).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_child_processes_end_with_a_run_that_is_stopped(tmp_path, how):
    number, endless = tmp_path / "number", tmp_path / "endless"
    endless.write_text(_ENDLESS.format(python=sys.executable, number=str(number)))
    endless.chmod(0o755)
    command = [sys.executable, "-c", _STOPPED, str(tmp_path), str(endless)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:  # noqa: S603
        wait_for(lambda: number.exists() and number.read_text())
        process.send_signal(how)
        assert process.wait(timeout=60) != 0
    child = Path("/proc") / number.read_text() / "cmdline"
    wait_for(lambda: not child.exists() or not child.read_bytes())  # a zombie has no command
    assert not (tmp_path / "out").exists()


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_reading_a_model_gives_its_numbers(mapped):
    again = Model.read(mapped[0].folder)
    assert again.points == mapped[0].points
    assert again.poses.keys() == mapped[0].poses.keys()

"""From photographs to files of a model."""

import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest

import manymatch
from manymatch.features.registry import register_matcher
from manymatch.io.pairs import read_pairs
from manymatch.matcher.config import MatcherConfig
from manymatch.reconstruct import reconstruct as module
from manymatch.reconstruct.mapping import Model, map_pairs
from manymatch.reconstruct.pair_truth import PairTruth
from manymatch.reconstruct.photos import Photos
from manymatch.reconstruct.reconstruct import _Run, look_alike_notes, reconstruct
from manymatch.reconstruct.reconstruction import ReconstructedPair, Reconstruction
from tests.support.command import one_sentence, run
from tests.support.data_folder import ROOT
from tests.support.scenes import arc

pycolmap = pytest.importorskip("pycolmap")
pytest.importorskip("cv2")
PHOTOS = ROOT / "examples" / "photos"
NAMES = [f"street{k}.jpg" for k in range(4)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Four photographs of a street."""
    folder = tmp_path_factory.mktemp("photos")
    for name in NAMES:
        shutil.copyfile(PHOTOS / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def scene(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    return reconstruct(photos, out, preset="classic", guided=False, text=True)


def truth():
    """True relative poses by the names of two images."""
    listed = read_pairs(PHOTOS / "pairs.txt", PHOTOS)
    return {(pair.name0, pair.name1): (pair.R, pair.t) for pair in listed}


def poses(folder):
    model = pycolmap.Reconstruction(str(folder))
    return {image.name: image.cam_from_world().matrix() for image in model.images.values()}


def error_deg(found, names):
    first, second = (found[name] for name in names)
    R = second[:, :3] @ first[:, :3].T
    t = second[:, 3] - R @ first[:, 3]
    pose = manymatch.RelativePose(R, t)
    return manymatch.pose_error_deg(pose, *truth()[names])


def test_photographs_become_a_model_with_the_true_poses(scene):
    assert scene
    (model,) = scene.models
    assert sorted(model.poses) == NAMES
    assert scene.missing == ()
    found = poses(scene.folder / "sparse/0")
    assert max(error_deg(found, names) for names in truth()) < 1.5
    assert model.reprojection_px < 1.0
    assert str(scene).startswith("Model: 4 of 4 photographs, ")


def test_many_refused_pairs_are_a_warning_that_parts_look_alike():
    graph = arc(number=15).graph  # 39 pairs, all of them trusted

    def notes(graph, refused):
        kept = (k >= refused for k in range(len(graph.pairs)))
        return look_alike_notes(graph, [PairTruth(float(one), one, "") for one in kept])

    (note,) = notes(graph, 10)
    assert note.startswith("Parts of the scene look alike: 10 of 39 pairs that look right ")
    assert notes(graph, 9) == []  # few
    assert notes(arc(number=20).graph, 13) == []  # a small share of 54
    doubted = tuple(dataclasses.replace(pair, trusted=False) for pair in graph.pairs)
    assert notes(dataclasses.replace(graph, pairs=doubted), 39) == []


def test_every_file_is_there_and_readable(scene):
    out = scene.folder
    for kind in ("bin", "txt"):
        assert (out / f"sparse/0/points3D.{kind}").stat().st_size
    summary = json.loads((out / "summary.json").read_text())
    assert summary["registered"] == 4
    assert summary["models"][0]["points"] == scene.models[0].points
    pairs = json.loads((out / "pairs.json").read_text())
    assert len(pairs) == 6
    assert all(pair["accepted"] and pair["agrees"] for pair in pairs)
    assert (out / "points.ply").read_bytes().startswith(b"ply")
    page = (out / "index.html").read_text()
    assert "All 4 images are in one model" in page
    assert set(scene.files) == {"model", "database", "radiance", "points", "pairs", "page"}
    database = pycolmap.Database.open(str(out / "database.db"))
    assert database.num_images() == 4
    database.close()


def test_replaced_photograph_is_refused(photos, scene, tmp_path):
    """Its old features and matches would silently be taken for those of the new one."""
    out, changed = tmp_path / "out", tmp_path / "photos"
    shutil.copytree(scene.folder, out)
    shutil.copytree(photos, changed)
    (changed / NAMES[1]).write_bytes((photos / NAMES[2]).read_bytes())
    with pytest.raises(ValueError, match=rf"^photos must be .* got another file for '{NAMES[1]}'"):
        reconstruct(changed, out, preset="classic", guided=False)


def test_two_runs_in_one_folder_are_refused(photos, scene):
    with (scene.folder / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"^out must be a folder in which no other run is"):
            reconstruct(photos, scene.folder, preset="classic", guided=False)
    assert reconstruct(photos, scene.folder, preset="classic", guided=False)


def test_transforms_map_points_of_the_model_into_the_photographs(scene):
    record = json.loads((scene.folder / "transforms.json").read_text())
    model = pycolmap.Reconstruction(str(scene.folder / "sparse/0"))
    images = {image.name: image for image in model.images.values()}
    assert [frame["file_path"].split("/")[-1] for frame in record["frames"]] == NAMES
    for frame in record["frames"]:
        assert (scene.folder / frame["file_path"]).resolve().is_file()
        image = images[frame["file_path"].split("/")[-1]]
        to_camera = np.linalg.inv(frame["transform_matrix"])
        seen = [point for point in image.points2D if point.has_point3D()][:50]
        world = np.array([model.points3D[point.point3D_id].xyz for point in seen])
        local = np.column_stack([world, np.ones(len(world))]) @ to_camera.T
        assert (local[:, 2] < 0).all()  # z is backwards
        x, y = local[:, 0] / -local[:, 2], -local[:, 1] / -local[:, 2]
        bend = 1.0 + frame["k1"] * (x**2 + y**2)
        u = frame["fl_x"] * bend * x + frame["cx"]
        v = frame["fl_y"] * bend * y + frame["cy"]
        pixels = np.array([point.xy for point in seen])
        assert np.median(np.hypot(u - pixels[:, 0], v - pixels[:, 1])) < 1.0


def test_the_same_call_does_nothing_again_and_gives_the_same_model(scene, photos):
    files = sorted((scene.folder / "mapping").rglob("*.bin"))
    before = [path.stat().st_mtime_ns for path in files]
    again = reconstruct(photos, scene.folder, preset="classic", guided=False, text=True)
    assert [path.stat().st_mtime_ns for path in files] == before
    assert again.models[0].points == scene.models[0].points


def test_known_cameras_stay_as_they_are(photos, tmp_path):
    K = read_pairs(PHOTOS / "pairs.txt", PHOTOS)[0].camera0.K
    config = manymatch.MatcherConfig.of("classic", max_keypoints=800)
    found = reconstruct(photos, tmp_path, K, config, guided=False, mapper="incremental")
    model = pycolmap.Reconstruction(str(tmp_path / "sparse/0"))
    for camera in model.cameras.values():
        assert camera.calibration_matrix()[0, 0] == pytest.approx(K[0, 0], rel=1e-12)
    assert max(error_deg(poses(tmp_path / "sparse/0"), names) for names in truth()) < 1.0
    assert found.models[0].mapper == "incremental"


def test_camera_with_unknown_focal_length_is_refined(photos, tmp_path):
    config = manymatch.MatcherConfig.of("classic", max_keypoints=800)
    camera = manymatch.Camera.unknown(960, 720)
    reconstruct(photos, tmp_path, camera, config, guided=False, mapper="incremental")
    model = pycolmap.Reconstruction(str(tmp_path / "sparse/0"))
    assert all(camera.params[3] != 0.0 for camera in model.cameras.values())  # the distortion


def test_look_alikes_are_matched_and_then_what_the_model_suggests(photos, tmp_path, monkeypatch):
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos/broken.jpg").write_bytes(b"no image")
    config = manymatch.MatcherConfig.of("classic", max_keypoints=800)
    # In a set as small as this one a third photograph joins all pairs.
    given = module.suggested_pairs
    monkeypatch.setattr(module, "suggested_pairs", lambda *a: given(*a[:-1]))
    how = {"pairs": "look-alikes", "similar": 2, "guided": False, "mapper": "incremental"}
    found = reconstruct(tmp_path / "photos", tmp_path / "out", preset=config, **how)
    assert sorted(found.models[0].poses) == NAMES
    assert (tmp_path / "out/features").is_dir()
    # The second round adds what the first one left out.
    assert (tmp_path / "out/matching-suggested/run.json").is_file()
    assert len(found.pairs) == 6
    assert found.missing == ("broken.jpg",)
    assert sum("1 photograph could not be read" in note for note in found.notes) == 1


def test_guided_matching_gives_more_points(scene, photos, tmp_path):
    shutil.copytree(scene.folder, tmp_path / "model")
    found = reconstruct(photos, tmp_path / "model", preset="classic")
    assert found.models[0].points > 1.5 * scene.models[0].points
    assert max(error_deg(poses(tmp_path / "model/sparse/0"), names) for names in truth()) < 1.5


def test_photographs_of_nothing_in_common_are_no_model(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(rng.integers(0, 256, (240, 320, 3), np.uint8)).save(tmp_path / name)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    found = run("reconstruct", tmp_path, "--out", tmp_path / "out", "--preset", "classic")
    assert found.exit_code == 1, found.output
    assert "No model of 4 photographs: 0 of " in found.output
    assert "1 photograph could not be read" in found.output
    assert (tmp_path / "out/index.html").is_file()
    assert not list((tmp_path / "out").glob("sparse/*"))


# -------------------------------------------------------------------------------- command


def test_command_prints_the_model_and_its_files(scene, photos):
    shared = ("--out", scene.folder, "--preset", "classic", "--no-guided", "--text")
    found = run("reconstruct", photos, *shared)
    assert found.exit_code == 0, found.output
    assert "Model: 4 of 4 photographs" in found.stdout
    assert "6 of 6 pairs accepted." in found.stdout
    assert str(scene.folder / "index.html") in found.stdout.replace("\n", "")
    record = json.loads(run("reconstruct", photos, *shared, "--json").stdout)
    assert record["registered"] == 4
    assert record["files"]["page"].endswith("index.html")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing"], "photos must be a folder of photographs or a video, got 'missing'"),
        ([], "photos must be a folder of photographs or a video, got none"),
        ([PHOTOS, "--demo"], "photos must be left out with --demo, got"),
        ([PHOTOS, "--pairs", "some"], "pairs must be one of 'auto'"),
        ([PHOTOS, "--mapper", "some"], "mapper must be one of 'both'"),
        ([PHOTOS, "--camera-per", "pair"], "camera_per must be one of 'image'"),
        ([PHOTOS, "--similar", "0"], "similar must be"),
        ([PHOTOS, "--most-frames", "1"], "most_frames must be"),
        ([PHOTOS, "--cameras", "nothing.txt"], "cameras"),
        ([PHOTOS, "--source", "grid-places"], "preset must have keypoints of images"),
    ],
)
def test_wrong_arguments_are_refused_by_one_sentence(arguments, sentence, tmp_path):
    register_matcher("grid-places", replace=True)(lambda *_: ([], []))
    arguments = [*arguments, "--out", tmp_path / "out"]
    if "--source" not in arguments:
        arguments += ["--preset", "classic"]
    assert sentence in one_sentence(run("reconstruct", *arguments))


def test_failure_of_colmap_is_one_sentence(scene, photos, monkeypatch, tmp_path):
    shutil.copytree(scene.folder / "matching", tmp_path / "matching")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    result = run("reconstruct", photos, "--out", tmp_path, "--preset", "classic")
    assert result.exit_code == 2
    assert "COLMAP ended with code 1 in 'incremental'" in result.stderr.splitlines()[-1]


def test_largest_seed_is_taken(photos, tmp_path):
    config = manymatch.MatcherConfig.of("classic", max_keypoints=800)
    how = {"guided": False, "mapper": "incremental", "seed": 2**64 - 1}
    assert reconstruct(photos, tmp_path, preset=config, **how)


def test_folder_of_other_photographs_is_refused(scene, photos, tmp_path):
    for name in NAMES[:3]:
        shutil.copyfile(photos / name, tmp_path / name)
    result = run("reconstruct", tmp_path, "--out", scene.folder, "--preset", "classic")
    assert "(pair_count was 6 and is 3 now); choose another --out" in one_sentence(result)


@pytest.mark.parametrize("name", ["sparse/0/points3D.bin", "transforms.json", "database.db"])
def test_files_of_another_program_are_not_replaced(photos, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    result = run("reconstruct", photos, "--out", tmp_path, "--preset", "classic")
    assert f"which has '{name.split('/')[0]}' of something else" in one_sentence(result)
    assert path.read_text() == "precious"


def test_names_with_spaces_are_kept_and_their_text_files_are_named(photos, tmp_path):
    """COLMAP cuts names at spaces when it reads its own text files."""
    names = ["one two/ä.JPG", "a.jpg", "b.jpeg"]
    for old, name in zip(NAMES, names, strict=False):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photos / old, tmp_path / "photos" / name)
    config = manymatch.MatcherConfig.of("classic", max_keypoints=800)
    how = {"guided": False, "mapper": "incremental", "text": True}
    found = reconstruct(tmp_path / "photos", tmp_path / "out", preset=config, **how)
    assert sorted(poses(found.folder / "sparse/0")) == sorted(names)
    assert any("'one two/ä.JPG'" in note for note in found.notes)


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    """Two models of cameras with a fisheye lens, written beside files of an earlier run."""
    folder, scene = tmp_path_factory.mktemp("written"), arc(number=10)
    keep = [pair.second < 6 or pair.first >= 6 for pair in scene.graph.pairs]
    work = folder / "mapping" / "0"
    how = {"refine_cameras": False, "mappers": ["incremental"]}
    models = map_pairs(scene.graph, keep, work, **how)
    for model in models:
        own = pycolmap.Reconstruction(model.folder)
        for camera in own.cameras.values():
            pinhole = camera.params.tolist()
            camera.model = pycolmap.CameraModelId.OPENCV_FISHEYE
            camera.params = [*pinhole, 0.1, 0.2, 0.3, 0.4]
        own.write(model.folder)
    (folder / "points-2.ply").write_text("earlier")
    names = tuple(photo.name for photo in scene.graph.photos)
    said = {"verdict": "solved", "matches": 9, "probability": 0.9, "reason": ""}
    pairs = tuple(
        ReconstructedPair(names[one.first], names[one.second], **said, accepted=kept, agrees=kept)
        for one, kept in zip(scene.graph.pairs, keep, strict=True)
    )
    found = Reconstruction(folder, names, tuple(models), pairs, {}, {})
    return found.written(folder / "photos", scene.graph, text=False), scene.graph


def test_every_model_has_its_own_files(two_models):
    scene, _ = two_models
    assert "share no true pair" in str(scene)
    assert not (scene.folder / "points-2.ply").exists()
    for number, model in enumerate(scene.models):
        ending = f"-{number}" if number else ""
        record = json.loads((scene.folder / f"transforms{ending}.json").read_text())
        assert len(record["frames"]) == len(model.poses)
        points = (scene.folder / record["ply_file_path"]).read_bytes()
        assert f"element vertex {model.points}\n".encode() in points
        assert Model.read(scene.folder / "sparse" / str(number)).points == model.points
        database = pycolmap.Database.open(str(scene.folder / f"database{ending}.db"))
        known = {image.name for image in database.read_all_images()}
        database.close()
        assert known >= set(model.poses)


def test_fisheye_lenses_are_named_for_radiance_fields(two_models):
    record = json.loads(two_models[0].files["radiance"].read_text())
    assert record["camera_model"] == "OPENCV_FISHEYE"
    assert [record["frames"][0][f"k{k}"] for k in range(1, 5)] == [0.1, 0.2, 0.3, 0.4]
    assert "p1" not in record["frames"][0]


def test_files_of_earlier_models_go_where_there_is_none(two_models):
    scene, graph = two_models
    found = dataclasses.replace(scene, models=()).written(scene.folder, graph, text=False)
    assert set(found.files) == {"pairs", "page"}


@pytest.mark.nightly
def test_demo_does_not_fold_the_courtyard(tmp_path):
    found = run("reconstruct", "--demo", "--out", tmp_path, "--preset", "classic", "--no-guided")
    assert found.exit_code == 0, found.output
    assert "Model: 20 of 20 photographs" in found.stdout
    right, total = map(int, re.search(r"cameras, (\d+) of (\d+) pairs", found.stdout).groups())
    assert total == 190
    assert right >= 185
    # Fronts that look the same: most refused pairs have many matches.
    refused = [pair for pair in json.loads((tmp_path / "pairs.json").read_text()) if pair["reason"]]
    assert sum(pair["matches"] > 50 and not pair["accepted"] for pair in refused) > 30


_STAGES = {
    "matching": "matching/parts/*.parquet",
    "database": "mapping/*/database.db",
    "mappers": "mapping/*/incremental",
    "guided matches": "mapping/*/guided-*.db",
    "adjustment": "mapping/*/guided-*/0",
}


def command(photos, out, *flags):
    start = "from manymatch.cli.app import main; main()"
    shared = ["--out", out, "--preset", "classic", "--max-keypoints", "800"]
    return [sys.executable, "-c", start, "reconstruct", photos, *shared, *flags]


def assert_same_model(one, two):
    for name in ("images.bin", "points3D.bin", "cameras.bin"):
        assert (one / "sparse/0" / name).read_bytes() == (two / "sparse/0" / name).read_bytes()


@pytest.mark.nightly
def test_pairs_that_ray_matches_give_the_same_model(photos, tmp_path):
    pytest.importorskip("ray")
    for engine in ("local", "ray"):
        flags = ["--no-guided", "--engine", engine, "--workers", "2"]
        subprocess.run(command(photos, tmp_path / engine, *flags), check=True)  # noqa: S603
    assert_same_model(tmp_path / "local", tmp_path / "ray")


@pytest.mark.nightly
@pytest.mark.parametrize("stage", _STAGES)
def test_run_that_is_killed_in_any_stage_ends_with_the_same_model(stage, photos, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(photos, whole), check=True, capture_output=True)  # noqa: S603
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(command(photos, out), **quiet) as process:  # noqa: S603
        deadline = time.monotonic() + 300
        while not list(out.glob(_STAGES[stage])) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (out / "summary.json").exists()
    subprocess.run(command(photos, out), check=True, capture_output=True)  # noqa: S603
    assert_same_model(whole, out)


def chance(tmp_path, monkeypatch, first, second, agree):
    """Return the models that `map` takes, of `first` photographs and of `second` with more pairs.

    `agree` are the numbers of true pairs that agree with each.
    """
    graph = arc(number=5).graph
    own = _Run(tmp_path, MatcherConfig.of("classic"), {"seed": 0}, {"cameras": None}, None)
    own.graph = graph
    own.truth = [PairTruth(float(k == 0), k == 0, "") for k in range(len(graph.pairs))]
    names = [photo.name for photo in graph.photos]
    found = [[Model(tmp_path, dict.fromkeys(names[:k]), 9, 0.5, 2.0)] for k in (first, second)]
    waiting, scores = list(found), [(number, 0.5) for number in agree]
    monkeypatch.setattr(_Run, "_mapped", lambda *_: waiting.pop(0))
    monkeypatch.setattr(module, "score_models", lambda *_: scores.pop(0))
    own.map()
    return found.index(own.models)


def test_trusted_pairs_are_a_second_chance_unless_a_model_contradicts(tmp_path, monkeypatch):
    assert chance(tmp_path, monkeypatch, 3, 5, (1, 1)) == 1
    assert chance(tmp_path, monkeypatch, 3, 5, (1, 0)) == 0  # true pairs no longer agree
    assert chance(tmp_path, monkeypatch, 2, 5, (1, 0)) == 1  # two photographs are no model
    assert chance(tmp_path, monkeypatch, 2, 2, (1, 1)) == 0  # nothing is gained
    monkeypatch.setattr(module, "_WORTH", 0.5)
    assert chance(tmp_path, monkeypatch, 3, 5, (1, 1)) == 0  # two of five are too few to map again


@pytest.mark.parametrize(
    ("focal", "before", "after", "cameras", "taken"),
    [
        (3.0, 3, 5, None, True),
        (3.0, 3, 3, None, False),  # no more photographs than before
        (1.1, 3, 5, None, None),  # nearly the same focal length
        (3.0, 5, 5, None, None),  # no photograph is missing
        (3.0, 3, 5, "given", None),
    ],
)
def test_focal_length_of_the_model_is_one_to_match_again_with(
    tmp_path, monkeypatch, focal, before, after, cameras, taken
):
    graph = arc(number=5).graph
    names = tuple(photo.name for photo in graph.photos)
    models = [[Model(tmp_path, dict.fromkeys(names[:k]), 9, 0.5, 2.0)] for k in (before, after)]
    own = _Run(tmp_path, MatcherConfig.of("classic"), {}, {"cameras": cameras}, None)
    own.photos, own.graph, own.truth, own.models = (
        Photos(tmp_path, names, sequence=True),
        graph,
        [],
        models[0],
    )
    own.tried = np.zeros((0, 2), dtype=np.int64)
    wanted = focal * graph.photos[0].camera.focal
    camera = types.SimpleNamespace(mean_focal_length=lambda: wanted)
    found = types.SimpleNamespace(cameras={1: camera})
    matched = []
    monkeypatch.setattr(module, "read_reconstruction", lambda _: found)
    monkeypatch.setattr(_Run, "_match", lambda run, _, *names: matched.append((run.camera, *names)))
    monkeypatch.setattr(_Run, "map", lambda run: setattr(run, "models", models[1]))
    own.match_again()
    assert own.models == models[taken is True]
    assert own.matched == ("matching-again" if taken else "matching")
    assert [name for _, name in matched] == ["matching-again"] * (taken is not None)
    assert [used.focal for used, _ in matched] == pytest.approx([wanted] * len(matched))
    assert (own.camera is None) == (taken is not True)

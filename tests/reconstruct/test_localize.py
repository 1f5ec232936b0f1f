"""Photographs are found in a model with exact points, and those of other places are not."""

import json
import shutil

import numpy as np
import pytest

import manymatch
from manymatch.geometry.pose import rotation_error_deg
from manymatch.reconstruct import scene_map
from manymatch.reconstruct.localize import find_queries, localize, write_localized
from manymatch.reconstruct.scene_map import SceneMap
from tests.support.scene_model import FOCAL, QUICK, SIZE, make_place

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")
pycolmap = pytest.importorskip("pycolmap")

DEPTH = 5.0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("place"), turned=("v3.jpg",))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("other"), count=3, seed=9)


@pytest.fixture(scope="module")
def found(place):
    return localize(place.folder / "new", place.model, place.photos, cameras=str(FOCAL), **QUICK)


def errors(one, place):
    """Degrees, and per cent of the distance to the scene."""
    true = place.views[one.name].pose
    shift = np.linalg.norm(one.pose.center - true.center)
    return rotation_error_deg(one.pose.R, true.R), 100.0 * shift / DEPTH


def test_photographs_are_found_where_they_were_taken(place, found):
    assert [one.name for one in found] == list(place.queries)
    for one in found:
        # Half a pixel in the wrong direction is 0.1 degrees.
        turn, shift = errors(one, place)
        assert turn < 0.03
        assert shift < 0.1
        assert one.success
        assert one
        assert one.confidence.verdict == "solved"
        assert one.confidence.covariance.shape == (6, 6)
        assert len(one.matches) > 100
        assert set(one.map_images) == set(place.views) - set(place.queries)
        number = int(one.name[1])
        assert one.matched_images[0] in (f"v{number - 1}.jpg", f"v{number + 1}.jpg")
        assert one.name in repr(one)
        assert "Its points are in" in str(one)


def test_pixels_of_a_map_are_where_its_cameras_see_the_points(place):
    """The model's pixels, half a pixel larger than ours, are converted when they are read."""
    scene = SceneMap.read(place.model, place.photos)
    for image in scene.images:
        if image.name != "v3.jpg":
            seen = scene.points[image.seen] @ image.pose.R.T + image.pose.t
            pixels = place.views[image.name].camera.project(seen[:, :2] / seen[:, 2:])
            np.testing.assert_allclose(image.pixels, pixels, atol=1e-6)


def test_a_photograph_that_exif_turns_is_a_part_of_the_map(place):
    """Its pixels in the model are those of the file as it is stored."""
    scene = SceneMap.read(place.model, place.photos)
    turned = next(image for image in scene.images if image.name == "v3.jpg")
    true = place.views["v3.jpg"].pose
    assert rotation_error_deg(turned.pose.R, true.R) == pytest.approx(90.0, abs=1e-6)
    only = SceneMap(scene.folder, scene.points, (turned,))
    (one,) = localize(place.query(1), only, cameras=str(FOCAL), **QUICK)
    assert errors(one, place)[0] < 0.1


def test_the_covariance_holds_the_errors(place, found):
    for one in found:
        true = place.views[one.name].pose
        spread = np.sqrt(np.diag(one.confidence.covariance)[3:])
        assert np.all(np.abs(one.pose.center - true.center) < 10.0 * spread)
        assert np.all(spread < 0.02 * DEPTH)


def test_unknown_focal_length_is_found_with_the_pose(place):
    (one,) = localize(place.query(1), place.model, place.photos, cameras="unknown", **QUICK)
    assert one.camera.focal == pytest.approx(FOCAL, rel=0.02)
    turn, shift = errors(one, place)
    assert turn < 0.2
    assert shift < 2.0


def test_photographs_of_another_place_are_refused(place, other):
    for camera in (str(FOCAL), "unknown"):
        (one,) = localize(other.query(), place.model, place.photos, cameras=camera, **QUICK)
        assert one.confidence.verdict == "no match"
        assert not one.success
        assert one.pose is None
        assert one.pose_line() == ""
        assert one.matched_images == ()
        assert one.to_dict()["pose"] is None


def test_result_does_not_depend_on_threads_or_other_queries(place, found):
    (alone,) = localize(
        [place.query(1)], place.model, place.photos, cameras=str(FOCAL), **QUICK, threads=2
    )
    assert alone.pose == found[1].pose
    np.testing.assert_array_equal(alone.matches, found[1].matches)
    np.testing.assert_array_equal(alone.confidence.covariance, found[1].confidence.covariance)
    again = localize(
        place.query(1), place.model, place.photos, cameras=str(FOCAL), **QUICK, seed=5
    )[0]
    assert errors(again, place)[0] < 0.03


def test_only_the_most_similar_photographs_are_matched(place, found):
    seen = []
    (few,) = localize(
        place.query(0),
        place.model,
        place.photos,
        similar=2,
        cameras=str(FOCAL),
        progress=seen.append,
        **QUICK,
    )
    assert set(few.map_images) == {"v0.jpg", "v2.jpg"}
    assert errors(few, place)[0] < 0.05
    assert few.graph.num_edges < found[0].graph.num_edges
    assert [(step.finished, step.total, step.noun) for step in seen] == [
        *((k, 6, "photograph") for k in range(1, 7)),
        (1, 1, "photograph"),
    ]
    assert seen[-1].counts == {"solved": 1}


def test_keypoints_are_points_that_the_model_observes_nearby(place, tmp_path):
    """A model of other keypoints: its observations are up to half a pixel away from ours."""
    rng = np.random.default_rng(0)
    shutil.copytree(place.model, tmp_path / "model")
    lines = (tmp_path / "model" / "images.txt").read_text().splitlines()
    for k in range(1, len(lines), 2):
        numbers = np.array(lines[k].split(), dtype=float).reshape(-1, 3)
        numbers[:, :2] += rng.uniform(-0.3, 0.3, (len(numbers), 2))
        lines[k] = " ".join(f"{x} {y} {int(point)}" for x, y, point in numbers)
    (tmp_path / "model" / "images.txt").write_text("\n".join(lines) + "\n")
    (one,) = localize(place.query(1), tmp_path / "model", place.photos, cameras=str(FOCAL), **QUICK)
    assert errors(one, place)[0] < 0.05
    assert len(one.matches) > 100


def test_binary_models_and_folders_of_a_reconstruction(place, found, tmp_path):
    inside = tmp_path / "out" / "sparse" / "0"
    inside.mkdir(parents=True)
    pycolmap.Reconstruction(place.model).write_binary(inside)
    assert not list(inside.glob("*.txt"))
    with pytest.raises(ValueError, match=r"images must be the folder .* got None"):
        localize(place.query(), tmp_path / "out", **QUICK)
    record = {"photos_folder": str(place.photos), "settings": {"preset": "classic"}}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(record))
    without = {name: value for name, value in QUICK.items() if name != "preset"}
    for model in (tmp_path / "out", inside):
        (one,) = localize(place.query(1), model, cameras=str(FOCAL), **without)
        assert one.config.preset == "classic"
        np.testing.assert_allclose(one.pose.matrix(), found[1].pose.matrix(), atol=1e-9)
        assert one.names[1] == "out"


def test_lists_have_names_and_cameras_in_colmaps_pixels(place, tmp_path):
    (tmp_path / "plain.txt").write_text(f"# queries\n{place.queries[1]}\n\n")
    (plain,) = find_queries(tmp_path / "plain.txt", place.folder / "new")
    assert (plain.name, plain.path, plain.camera) == (place.queries[1], place.query(1), None)
    (tmp_path / "spaced.txt").write_text(" new day/a b.JPG \n")
    (spaced,) = find_queries(tmp_path / "spaced.txt")
    assert spaced.path == tmp_path / "new day" / "a b.JPG"
    width, height = SIZE
    line = f"{place.queries[1]} SIMPLE_PINHOLE {width} {height} {FOCAL} {width / 2} {height / 2}\n"
    (tmp_path / "hloc.txt").write_text(line)
    (one,) = localize(
        tmp_path / "hloc.txt",
        place.model,
        place.photos,
        query_images=place.folder / "new",
        **QUICK,
    )
    assert one.camera.cx == 0.5 * (width - 1)
    assert errors(one, place)[0] < 0.03


def test_unreadable_photographs_do_not_stop_the_others(place, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no image")
    shutil.copy(place.query(1), tmp_path / place.queries[1])
    bad, good = localize(tmp_path, place.model, place.photos, cameras=str(FOCAL), **QUICK)
    assert bad.unreadable
    assert bad.confidence.verdict == "failed"
    assert "a.jpg" in bad.confidence.reason
    assert not bad.success
    assert good.success
    assert not good.unreadable
    assert errors(good, place)[0] < 0.03


def test_files_of_a_result(place, found, other, tmp_path):
    written = write_localized(found, tmp_path)
    lines = written["poses"].read_text().splitlines()
    for line, one in zip(lines, found, strict=True):
        name, *numbers = line.split()
        w, x, y, z, *t = map(float, numbers)
        R = pycolmap.Rotation3d(np.array([x, y, z, w])).matrix()
        assert name == one.name
        np.testing.assert_allclose(R, one.pose.R, atol=1e-12)
        np.testing.assert_array_equal(t, one.pose.t)
    record = json.loads(written["json"].read_text())
    assert [entry["name"] for entry in record["queries"]] == list(place.queries)
    assert record["queries"][0]["confidence"]["verdict"] == "solved"
    assert len(record["queries"][0]["confidence"]["covariance"]) == 6
    assert record["config"]["preset"] == "classic"
    assert written["map"].stat().st_size > 1000
    assert found[0].plot().size[0] > 500
    foreign = localize(other.query(), place.model, place.photos, cameras=str(FOCAL), **QUICK)
    files = write_localized(foreign, tmp_path, picture=False)
    assert files["poses"].read_text() == ""
    assert not (tmp_path / "map.png").exists()


def test_maps_are_drawn_from_above(found, monkeypatch):
    """Cameras of the arc are on one side of the points, in a row, whatever the frame is."""
    pages = []
    monkeypatch.setattr(scene_map, "as_image", pages.append)
    found[0].plot()
    dots, lines = pages[0].panels[0].marks
    tips = lines.ends[: len(lines.ends) // 3, 0]
    across = np.ptp(tips, axis=0)
    # Seen from above the arc is much longer than it is deep, and in front of the points.
    assert across.max() > 3.0 * across.min()
    depth = int(np.argmin(across))
    inner = np.percentile(dots.centres[:, depth], (10, 90))
    assert (tips[:, depth] < inner[0]).all() or (tips[:, depth] > inner[1]).all()
    assert pages[0].texts[0].text == "1 of 1 photograph found in model"


def damaged(place, folder, name, change):
    shutil.copytree(place.model, folder)
    path = folder / name
    path.write_text(change(path.read_text()))
    return folder


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("points3D.txt", lambda _: "1 2 three\n", "line 1 is not POINT3D_ID"),
        ("points3D.txt", lambda text: f"9999 nan 0 1 0 0 0 0\n{text}", "point 9999 is not finite"),
        ("points3D.txt", lambda _: "7 0 0 1 0 0 0 0\n", "'v0.jpg' observes points"),
        ("points3D.txt", lambda _: "", "'v0.jpg' observes points"),
        ("images.txt", lambda text: text.replace("v0.jpg", "../v0.jpg"), "below its folder"),
        ("images.txt", lambda text: text.replace("v0.jpg", "gone.jpg"), "has no 'gone.jpg'"),
        ("images.txt", lambda _: "", "none of its images observes a point"),
        ("cameras.txt", lambda _: "1 PINHOLE 3\n", "line 1 is not"),
    ],
)
def test_damaged_models_are_named(place, tmp_path, name, change, words):
    model = damaged(place, tmp_path / "model", name, change)
    with pytest.raises(ValueError, match=words) as error:
        SceneMap.read(model, place.photos)
    assert "\n" not in str(error.value)


def test_map_with_smaller_photographs_is_named(place, tmp_path):
    for view in place.photos.iterdir():
        with Image.open(view) as image:
            image.reduce(2).save(tmp_path / view.name, exif=image.getexif())
    with pytest.raises(ValueError, match=r"in their size, got 'v\d.jpg' of \d+ x \d+ pixels"):
        localize(place.query(1), place.model, tmp_path, cameras=str(FOCAL), **QUICK)


def test_truncated_binary_points_are_named(place, tmp_path):
    model = tmp_path / "binary"
    model.mkdir()
    pycolmap.Reconstruction(place.model).write_binary(model)
    data = (model / "points3D.bin").read_bytes()
    for size in (4, len(data) // 2, len(data) - 3):
        (model / "points3D.bin").write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"points3D.bin' \(it (ends|does not end) "):
            SceneMap.read(model, place.photos)
    (model / "points3D.bin").unlink()
    with pytest.raises(ValueError, match=r"it holds no points3D\.bin"):
        SceneMap.read(model, place.photos)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "nowhere"}, "model must be an existing folder"),
        ({"images": "nowhere"}, "images must be an existing folder"),
        ({"queries": "nowhere"}, "queries must be a folder of images, an image or a list"),
        ({"queries": 5}, "queries must be the name of a file"),
        ({"similar": 0}, "similar must be"),
        ({"cameras": "1,2"}, "cameras must be"),
        ({"preset": "clasic"}, "did you mean 'classic'"),
    ],
)
def test_bad_arguments_are_named(place, arguments, words):
    given = {"queries": place.query(), "model": place.model, "images": place.photos, **QUICK}
    with pytest.raises(ValueError, match=words):
        localize(**{**given, **arguments})


def test_bad_lists_are_named(tmp_path):
    with pytest.raises(ValueError, match="at least one image"):
        find_queries(tmp_path)
    for content, words in {
        "": "it has no name",
        "a.jpg PINHOLE 3\n": "line 1: it must have a name, the model of its camera",
        "a.jpg PINHOLE 1e999 480 1 1 1 1\n": "line 1",
        "a.jpg\n../b.jpg\n": "line 2: a name must be",
        "a.jpg FOO 640 480 1\n": "line 1",
    }.items():
        (tmp_path / "list.txt").write_text(content)
        with pytest.raises(ValueError, match=words):
            find_queries(tmp_path / "list.txt")


def test_localize_is_public():
    assert manymatch.localize is localize
    assert manymatch.LocalizedImage.__name__ == "LocalizedImage"

"""``manymatch match`` on what people give it: results, or one sentence and the right exit code."""

import errno
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch.associate.candidates import Association
from manymatch.cli.match import pair_folder
from manymatch.io import files, load_graph, read_hloc, read_matches_npz
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.options import Options
from manymatch.viz.aligned import warp
from tests.oracles.geometry import rotation_from_vector
from tests.support import command
from tests.support.command import one_sentence
from tests.support.synthetic_images import texture
from tests.support.synthetic_views import image_pair

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

QUICK = ("--preset", "classic", "--max-keypoints", "300", "--longest", "360",
         "--set", "max_iterations=3000")  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    pair = image_pair(size=(360, 270))
    for name, image in (("a.png", pair.image0), ("b.png", pair.image1)):
        Image.fromarray(image).save(folder / name)
    f, cx, cy = pair.camera.fx, pair.camera.cx, pair.camera.cy
    return folder, f"{f},{f},{cx},{cy}"


def run(*arguments):
    return command.run("match", *arguments)


def test_result_is_printed_and_written(photos, tmp_path):
    folder, camera = photos
    out = tmp_path / "out"
    result = run(folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera,
                 "--out", out, "--with-rank-one", "--format", "npz", "--format", "colmap",
                 *QUICK)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Camera 1 is turned" in result.stdout
    assert "rank-one, plain consensus" in result.stdout
    names = {path.name for path in out.iterdir()}
    assert names == {
        "result.json", "config.toml", "matches.npz", "matches.txt", "a.png.txt", "b.png.txt",
        "matches.png", "report.html",
    }  # fmt: skip
    again = run(folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera,
                "--out", tmp_path / "two", "--config", out / "config.toml", "--json",
                "--no-picture", "--no-report")  # fmt: skip
    record = json.loads(again.stdout)
    assert record["pose"] == json.loads((out / "result.json").read_text())["pose"]
    assert record["config"]["sources"][0]["max_keypoints"] == 300
    assert set(record["files"]) == {"json", "config", "npz"}


@pytest.mark.parametrize(
    ("flags", "method", "kept"), [((), "auto", 2048), (("--protocol", "paper"), "hcm-mcm", 1024)]
)
def test_method_is_named_and_the_protocol_is_the_papers(photos, tmp_path, flags, method, kept):
    folder, camera = photos
    result = run(folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera,
                 "--out", tmp_path, "--no-picture", "--no-report", *flags, *QUICK)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert re.search(rf"^method +{method}, ", result.stdout, re.MULTILINE)
    config = MatcherConfig.load(tmp_path / "config.toml")
    assert config.method == method
    assert config.options.max_iterations == 3000
    association = config.sources[0].association.for_method(method)
    assert association.gms == (method == "hcm-mcm")
    assert (association.keep or association.max_edges) == kept


def test_protocol_of_the_paper_without_a_preset():
    config = MatcherConfig.paper()
    assert config.preset == "dinov3"
    assert config.sources[0].association == Association.paper()
    assert (config.method, config.options) == ("hcm-mcm", Options())


def test_unknown_focal_lengths_are_found(photos, tmp_path):
    folder, _ = photos
    result = run(folder / "a.png", folder / "b.png", "--out", tmp_path, "--no-picture", *QUICK)
    assert result.stdout.count("Both cameras: unknown focal length") == 1
    assert re.search(r"Focal length (found|assumed): \d+ ± \d+ px", result.stdout)
    two = (folder / "a.png", folder / "b.png", "--out", tmp_path, "--json", "--no-report", *QUICK)
    record = json.loads(run(*two, "--no-shared-focal", "--camera1", "unknown").stdout)
    assert len(set(record["focal_px"])) == 2
    assert [camera["params"][0] for camera in record["config"]["cameras"]] == record["focal_px"]
    assert all(deviation > 0 for deviation in record["focal_sd_px"])


def test_single_pixel_is_exit_code_1(tmp_path):
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    result = run(tmp_path / "dot.png", tmp_path / "dot.png", "--out", tmp_path / "o", *QUICK)
    assert result.exit_code == 1
    assert "Failed" in result.stdout
    assert (tmp_path / "o" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--camera0", "PINHOLE,64,64,50,50,32,32"), "camera0"),
        (("--detector", "harris"), "detector must be one of"),
        (("--descriptor", "resnet"), "backbone must be one of"),
        (("--device", "abacus", "--descriptor", "efficientnet-lite0"), "device must be"),
    ],
)
def test_bad_flags_are_named(photos, tmp_path, arguments, words):
    images, out = (photos[0] / "a.png", photos[0] / "b.png"), tmp_path / "out"
    assert words in one_sentence(run(*images, "--out", out, *QUICK, *arguments))
    assert not out.exists()


def test_focal_length_alone_is_a_camera(photos, tmp_path):
    images, flags = (photos[0] / "a.png", photos[0] / "b.png"), ("--no-report", "--json", *QUICK)
    result = run(*images, "--camera0", "300", "--camera1", 310.5, "--out", tmp_path, *flags)
    cameras = json.loads(result.stdout)["config"]["cameras"]
    assert [camera["model"] for camera in cameras] == ["SIMPLE_PINHOLE"] * 2
    assert [camera["params"] for camera in cameras] == [[300, 179.5, 134.5], [310.5, 179.5, 134.5]]
    assert [camera["width"] for camera in cameras] == [360, 360]


@pytest.mark.parametrize("as_json", [False, True])
def test_result_that_cannot_be_written_is_printed(photos, tmp_path, monkeypatch, as_json):
    folder, _ = photos

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    out = tmp_path / "out"
    out.mkdir()
    flags = ("--out", out, *QUICK, *(["--json"] if as_json else []))
    result = run(folder / "a.png", folder / "b.png", *flags)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"manymatch: No space left on device: '{out}")
    assert ".tmp" not in result.stderr
    if as_json:
        record = json.loads(result.stdout)
        assert record["pose"]
        assert record["files"] == {}
    else:
        assert "Camera 1 is turned" in result.stdout
        assert str(out) not in result.stdout
    assert list(out.iterdir()) == []


# Bad flags, the name of the first image, and words of the sentence.
REFUSED = {
    "an unknown format": (["--format", "npz,h5p"], "a.png", "did you mean 'h5'"),
    "a missing package": (["--format", "h5"], "a.png", "needs h5py: pip install"),
    "a file": (["--out", "file"], "a.png", "--out must be a folder that can be written to"),
    "below a file": (["--out", "file/deep/out"], "a.png", "'file' is a file"),
    "a link to nothing": (["--out", "nowhere"], "a.png", "'nowhere' is a file"),
    "no place to write to": (["--out", "/proc/manymatch/out"], "a.png", "--out must be a folder"),
    "a long name": (["--out", "o" * 300], "a.png", "File name too long"),
    "a space": (["--format", "colmap"], "my a.png", "must have no spaces"),
    "a line end": (["--format", "h5"], "a\nb.png", "must be the name of an image"),
    "no focal length": (["--camera1", "-3"], "a.png", "camera1 must"),
    "three numbers": (["--camera1", "800,800,3"], "a.png", "camera1 must be a focal length"),
    "a matcher": (["--set", "matcher=glue"], "a.png", "matcher must be one of nearest"),
    "no such file": (["--camera0", "none.txt"], "a.png", "camera0 must be a text file"),
    "no such model": (["--camera0", "empty"], "a.png", "holds no cameras.bin"),
    "a setting": (["--method", "best"], "a.png", "method must be one of"),
}


@pytest.mark.parametrize(("flags", "image", "says"), REFUSED.values(), ids=REFUSED)
def test_bad_flag_is_refused_before_an_image_is_read(tmp_path, monkeypatch, flags, image, says):
    """The images are none, which is found out later."""
    monkeypatch.chdir(tmp_path)
    for name in (image, "b.png"):
        (tmp_path / name).write_text("no image")
    if "needs" in says:
        monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    sentence = one_sentence(run(image, "b.png", *QUICK, *flags))
    assert says in sentence
    assert "Pillow" not in sentence
    assert sorted(tmp_path.rglob("*")) == before


def test_replaced_result_is_named(photos, tmp_path):
    folder, _ = photos
    flags = ("--out", tmp_path / "out", "--no-report", "--no-picture", *QUICK)
    Image.open(folder / "b.png").save(tmp_path / "c.png")
    assert "They replace" not in run(folder / "a.png", folder / "b.png", *flags).stdout
    result = run(folder / "a.png", tmp_path / "c.png", *flags)
    assert result.exit_code == 0, result.output
    assert "They replace the result of a.png and b.png." in result.stdout
    images = json.loads((tmp_path / "out" / "result.json").read_text())["images"]
    assert images == [f"{folder.name}/a.png", f"{tmp_path.name}/c.png"]


def test_default_folder_is_named_after_the_pair(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        (tmp_path / name).symlink_to(photos[0] / name)
    result = run("a.png", "b.png", "--no-picture", "--no-report", *QUICK)
    assert result.exit_code == 0, result.output
    assert "out/a_b/result.json" in result.stdout
    assert (tmp_path / "out" / "a_b" / "matches.npz").is_file()


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=90)


@given(st.lists(names, min_size=1, max_size=4), names)
def test_any_image_gives_a_usable_name(folders, name):
    image = Path("/", *folders, f"{name}.jpg")
    folder = pair_folder(image, Path("b.jpg"))
    assert folder.parent == Path("out")
    assert len(folder.name.encode()) <= 255
    assert re.fullmatch(r"[\w-][\w.-]*", folder.name)
    others = {
        pair_folder(Path("/", *folders, "one", f"{name}.jpg"), Path("b.jpg")),
        pair_folder(Path("/", *folders, "two", f"{name}.jpg"), Path("b.jpg")),
        folder,
    }
    assert len(others) == 3


@pytest.mark.parametrize(
    ("images", "name"),
    [
        (("a.jpg", "b.jpg"), "a_b"),
        (("x/a.jpg", "y/a.jpg"), "x-a_y-a"),
        (("./x/../a.jpg", "b.tar.jpg"), "a_b.tar"),
        (("my photo (1).jpg", ".hidden.png"), "my-photo-1-_hidden"),
        (("/data/a.jpg", "/data/b.jpg"), "data-a_data-b"),
    ],
)
def test_names_of_folders(images, name):
    assert pair_folder(*map(Path, images)) == Path("out") / name


def test_ctrl_c(photos, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Matcher, "match", interrupted)
    out = tmp_path / "out"
    sentence = one_sentence(
        run(photos[0] / "a.png", photos[0] / "b.png", "--out", out, *QUICK), 130
    )
    assert "stopped" in sentence
    assert not out.exists()


def test_files_for_colmap_have_stored_pixels_and_relative_names(photos, tmp_path):
    """A photograph that EXIF turns, in a subfolder of the folder of images."""
    pycolmap = pytest.importorskip("pycolmap")
    h5py = pytest.importorskip("h5py")
    folder, _ = photos
    (tmp_path / "set" / "in").mkdir(parents=True)
    with Image.open(folder / "a.png") as image:
        image.save(tmp_path / "set" / "in" / "a.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(folder / "b.png") as image:
        width, height = image.size
        image.transpose(Image.Transpose.ROTATE_90).save(
            tmp_path / "set" / "in" / "b.png", exif=exif
        )
    paths = [tmp_path / "set" / "in" / name for name in ("a.png", "b.png")]
    how = ["--format", "npz,h5,colmap,colmap-db", "--no-picture", "--no-report", *QUICK]
    result = run(*paths, "--images", tmp_path / "set", "--out", tmp_path / "out", *how)
    assert result.exit_code == 0, result.output
    with h5py.File(tmp_path / "out" / "features.h5") as file:
        stored = file["in/b.png/keypoints"][()]
        assert file["in/b.png/image_size"][()].tolist() == [height, width]
    with pycolmap.Database.open(tmp_path / "out" / "database.db") as database:
        image = database.read_image_with_name("in/b.png")
        camera = database.read_camera(image.camera_id)
        assert (camera.width, camera.height) == (height, width)
        np.testing.assert_allclose(database.read_keypoints(image.image_id) - 0.5, stored, atol=1e-4)
        assert database.num_verified_image_pairs() == 1
    lines = (tmp_path / "out" / "in" / "b.png.txt").read_text().splitlines()[1:]
    texts = np.array([line.split()[:2] for line in lines], dtype=float)
    np.testing.assert_allclose(texts - 0.5, stored, atol=1e-4)
    with np.load(tmp_path / "out" / "matches.npz") as arrays:
        shown = arrays["keypoints1"]
    # Turned clockwise when it is shown.
    np.testing.assert_allclose(
        np.column_stack([shown[:, 1], width - 1 - shown[:, 0]]), stored, atol=1e-4
    )
    sentence = one_sentence(run(*paths, "--images", folder, "--out", tmp_path / "no", *how))
    assert "image0 must be below the folder of images" in sentence
    assert not (tmp_path / "no").exists()


def test_several_sources(photos, tmp_path):
    folder, camera = photos
    images = (folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera)
    out = tmp_path / "out"
    table = tmp_path / "two.toml"
    table.write_text(
        '[[sources]]\npreset = "classic"\nmax_keypoints = 300\n'
        '[[sources]]\nname = "few"\ndetector = "sift"\nmax_keypoints = 40\nk = 1\n'
    )
    result = run(*images, "--out", out, "--config", table, "--longest", "360",
                 "--set", "max_iterations=3000", "--format", "npz,h5,colmap-db")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "sift + native, sift + native" in result.stdout
    assert re.search(r"by source: sift-native [\d,]+ and [1-9]\d*, few", result.stdout)
    record = json.loads((out / "result.json").read_text())
    assert record["sources"]["few"]["keypoints0"] == 40
    assert (out / "config.toml").read_text().count("[[sources]]") == 2
    again = run(*images, "--out", tmp_path / "again", "--config", out / "config.toml")
    assert again.exit_code == 0, again.output
    other = json.loads((tmp_path / "again" / "result.json").read_text())
    assert other["sources"] == record["sources"]
    pair = read_matches_npz(out / "matches.npz")
    counts = {name: counts["matches"] for name, counts in record["sources"].items()}
    assert pair.source_names == tuple(counts) == ("sift-native", "few")
    assert np.bincount(pair.source, minlength=2).tolist() == list(counts.values())
    graph = read_hloc(out / "matches.h5", out / "features.h5", "a.png", "b.png")
    assert set(map(tuple, graph.edges.tolist())) == set(map(tuple, pair.matches.tolist()))
    assert np.array_equal(load_graph(out / "matches.npz").source_of(pair.matches), pair.source)


def test_unrelated_images_do_not_match(tmp_path):
    images = [tmp_path / "a.png", tmp_path / "b.png"]
    for path, seed in zip(images, (1, 7), strict=True):
        Image.fromarray(texture(seed, 360, 270)).save(path)
    out = tmp_path / "out"
    result = run(*images, "--out", out, *QUICK)
    assert result.exit_code == 1, result.output
    assert result.stdout.startswith("No match: ")
    assert "Camera 1" not in result.stdout
    assert "%" not in result.stdout.split("features")[0]
    record = json.loads((out / "result.json").read_text())
    assert (record["success"], record["pose"], record["matches"]) == (False, None, 0)
    assert record["confidence"]["verdict"] == "no match"
    matches = read_matches_npz(out / "matches.npz")
    assert (len(matches.matches), matches.pose) == (0, None)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The images do not match." in page
    assert "Camera 1" not in page
    found = Matcher("classic", max_keypoints=300, max_iterations=3000).match(*images)
    assert not found
    assert (found.success, found.pose, len(found.matches)) == (False, None, 0)
    assert found.estimate.pose is not None


def test_images_of_a_plane_match_by_a_homography(tmp_path):
    images = [tmp_path / "a.png", tmp_path / "b.png"]
    # The plane z = 2 seen from a camera that is turned by 35 degrees and keeps looking at it.
    K = np.array([[320.0, 0.0, 179.5], [0.0, 320.0, 134.5], [0.0, 0.0, 1.0]])
    turn = rotation_from_vector(np.radians([0.0, 35.0, 0.0]))
    t = np.array([0.0, 0.0, 2.0]) - turn @ [0.0, 0.0, 2.0]
    H = K @ (turn + np.outer(t, [0.0, 0.0, 0.5])) @ np.linalg.inv(K)
    first = texture(3, 360, 270)
    second = warp(first, np.linalg.inv(H), (360, 270))[..., :3]
    for path, image in zip(images, (first, second), strict=True):
        Image.fromarray(np.ascontiguousarray(image)).save(path)
    result = run(*images, "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Planar: The images match (")
    assert f"manymatch align {images[0]} {images[1]}" in result.stdout
    assert "Camera 1" not in result.stdout
    record = json.loads((tmp_path / "out" / "result.json").read_text())
    found = np.array(record["confidence"]["homography"])
    np.testing.assert_allclose(found, H / H[2, 2], rtol=0.02, atol=0.02)

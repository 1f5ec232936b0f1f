"""Two images in, a pose out."""

import copy
import dataclasses
import json
import pickle
import sys

import numpy as np
import pytest

import manymatch
from manymatch import pose_error_deg
from manymatch.geometry.camera import Camera
from manymatch.matcher.match_result import FORMATS, RANK_ONE
from manymatch.matcher.matcher import Matcher, match
from tests.support.synthetic_views import image_pair

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

QUICK = {"max_keypoints": 400, "longest": 480, "max_iterations": 5_000}


@pytest.fixture(scope="module")
def pair():
    return image_pair()


@pytest.fixture(scope="module")
def matcher():
    return Matcher("classic", **QUICK)


@pytest.fixture(scope="module")
def result(pair, matcher):
    return matcher.match(pair.image0, pair.image1, pair.camera, pair.camera, with_rank_one=True)


def test_pose_is_found(pair, result):
    assert result.estimate.success
    assert pose_error_deg(result.estimate.pose, pair.pose.R, pair.pose.t) < 2.0
    assert result.confidence.verdict == "solved"
    assert bool(result)
    assert result.keypoints0.shape == (400, 2)
    assert result.timing["total"] >= result.timing["features"] > 0
    assert "Solved: " in str(result)
    assert "Camera 1 is turned" in str(result)
    assert result.rank_one.estimate.method == "cm"
    assert (result.rank_one.graph.rank == 1).all()


def test_method_decides_which_candidates_it_gets(pair, matcher, result):
    features = matcher.extractor.extract_many([pair.image0, pair.image1])
    found = {}
    for name, settings in {
        "auto": {},
        "paper": {"method": "hcm-mcm"},
        "filtered": {"gms": True, "keep": 100},
        "plain": {"method": "hcm-mcm", "gms": False},
    }.items():
        other = Matcher("classic", **QUICK, **settings)
        found[name] = other.match_features(*features, pair.camera, pair.camera)
    assert matcher.config.method == result.estimate.method == "auto"
    counts = {name: one.counts for name, one in found.items()}
    assert counts["auto"]["after_cap"] == counts["auto"]["kept"] == found["auto"].graph.num_edges
    assert counts["paper"]["after_gms"] < counts["paper"]["after_cap"]
    assert counts["paper"]["kept"] == min(counts["paper"]["after_gms"], 1024)
    assert counts["filtered"]["after_gms"] == counts["paper"]["after_gms"]
    assert counts["filtered"]["kept"] == 100
    assert counts["plain"]["after_gms"] == counts["plain"]["after_cap"]
    assert found["auto"].estimate.match_probability is not None
    assert found["paper"].estimate.match_probability is None
    assert found["paper"].to_dict()["mean_probability"] is None
    assert "Method auto: " in str(found["auto"])
    assert "Method hcm-mcm: " in str(found["paper"])


def test_scores_follow_from_the_result(result):
    again = manymatch.score_pose(
        result.graph, result.camera0, result.camera1, result.estimate.pose, result.estimate.options
    )
    assert again.cardinality == result.estimate.cardinality
    assert np.array_equal(again.inliers, result.estimate.inliers)


def test_results_are_in_pixels_of_the_given_images(pair, matcher, result):
    double = [np.repeat(np.repeat(i, 2, 0), 2, 1) for i in (pair.image0, pair.image1)]
    camera = pair.camera.scaled(2.0)
    large = matcher.match(*double, camera, camera)
    assert large.camera0 == camera
    assert large.size0 == (960, 720)
    # One pixel at working size is two of the image as given.
    assert large.estimate.options.threshold_px == pytest.approx(2.0)
    assert result.estimate.options.threshold_px == pytest.approx(1.0)
    assert pose_error_deg(large.estimate.pose, pair.pose.R, pair.pose.t) < 2.0
    x0, x1 = large.matched_points
    E = pair.pose.essential()
    rays0, rays1 = (np.column_stack([camera.unproject(x), np.ones(len(x))]) for x in (x0, x1))
    residual = np.abs(np.einsum("ij,jk,ik->i", rays1, E, rays0)) * camera.focal
    assert np.median(residual) < 4.0


def test_images_may_have_different_working_sizes(pair, matcher):
    half = np.asarray(Image.fromarray(pair.image1).resize((240, 180), Image.Resampling.BOX))
    camera1 = pair.camera.scaled(0.5)
    found = matcher.match(pair.image0, half, pair.camera, camera1, longest1=0)
    assert pose_error_deg(found.estimate.pose, pair.pose.R, pair.pose.t) < 5.0
    # Both images are at their own size: a pixel is a pixel.
    assert found.estimate.options.threshold_px == pytest.approx(1.0)
    enlarged = matcher.match(pair.image0, half, pair.camera, camera1)
    f0, f1 = pair.camera.focal, camera1.focal
    wanted = (1 / f0 + 1 / (2 * f1)) / (1 / f0 + 1 / f1)
    assert enlarged.estimate.options.threshold_px == pytest.approx(wanted)


def test_motion_filter_does_not_depend_on_the_stored_size(pair):
    """Two files of unequal resolution with the same pixels at working size."""
    matcher = Matcher("classic", **QUICK, method="hcm-mcm")
    plain = matcher.match(pair.image0, pair.image1, pair.camera, pair.camera)
    large = np.repeat(np.repeat(pair.image0, 8, axis=0), 8, axis=1)
    stored = matcher.match(large, pair.image1, pair.camera.scaled(8.0), pair.camera)
    assert stored.size0 == (3840, 2880)
    assert 0 < plain.counts["after_gms"] < plain.counts["after_cap"]
    assert stored.counts == plain.counts
    assert np.array_equal(stored.graph.edges, plain.graph.edges)
    np.testing.assert_allclose((stored.keypoints0 + 0.5) / 8 - 0.5, plain.keypoints0, atol=1e-9)


def test_files_arrays_and_turned_photographs_agree(pair, matcher, tmp_path):
    plain, turned = tmp_path / "a.png", tmp_path / "turned.png"
    Image.fromarray(pair.image0).save(plain)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees
    Image.fromarray(np.rot90(pair.image1, 1)).save(turned, exif=exif)
    from_files = matcher.match(plain, turned, pair.camera, pair.camera)
    from_arrays = matcher.match(pair.image0, pair.image1, pair.camera, pair.camera)
    assert np.array_equal(from_files.estimate.pose.R, from_arrays.estimate.pose.R)
    assert np.array_equal(from_files.keypoints1, from_arrays.keypoints1)
    assert from_files.names == ("a.png", "turned.png")


def test_names_tell_images_apart(pair, matcher, tmp_path):
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "x.png", tmp_path / "b" / "x.png"):
        Image.fromarray(pair.image0[:64, :64]).save(path)
    outer, inner = tmp_path / "x.png", tmp_path / "b" / "x.png"
    assert matcher.match(outer, inner).names == ("x.png", "b/x.png")
    assert len(set(matcher.match(outer, outer).names)) == 2
    assert matcher.match(outer, pair.image1).names == ("x.png", "image1")
    below = matcher.match(outer, inner, images_folder=tmp_path.parent).names
    assert below == (f"{tmp_path.name}/x.png", f"{tmp_path.name}/b/x.png")
    with pytest.raises(ValueError, match=r"^image0 must be below the folder of images '.*/b', got"):
        matcher.match(outer, inner, images_folder=tmp_path / "b")
    with pytest.raises(ValueError, match=r"^images must be an existing folder, got '.*absent'"):
        matcher.match(outer, inner, images_folder=tmp_path / "absent")


def test_result_does_not_depend_on_threads_or_history(pair, result):
    again = Matcher("classic", threads=1, **QUICK).match(
        pair.image0, pair.image1, pair.camera, pair.camera
    )
    assert np.array_equal(again.estimate.pose.R, result.estimate.pose.R)
    assert np.array_equal(again.estimate.matches, result.estimate.matches)
    assert again.confidence.pose_probability == result.confidence.pose_probability


@pytest.mark.parametrize("shape", [(1, 1, 3), (200, 300, 3), (1, 500), (40, 30, 4)])
def test_blank_images_have_no_pose(matcher, shape):
    blank = np.zeros(shape, np.uint8)
    found = matcher.match(blank, blank)
    assert not found.estimate.success
    assert not found
    assert found.confidence.verdict == "failed"
    assert str(found).startswith("Failed: No pose was found: no keypoints in image 0 and image 1.")
    json.dumps(found.to_dict(), allow_nan=False)
    assert "unknown focal length" in " ".join(found.notes)
    assert not found.camera0.known_focal


def test_all_files_are_written_and_read_back(result, tmp_path):
    for name in ("h5py", "matplotlib"):
        pytest.importorskip(name)
    written = result.save(tmp_path / "new" / "folder", formats=("npz", "h5", "colmap"))
    assert all(path.is_file() for path in written.values())
    record = json.loads(written["json"].read_text())
    assert np.allclose(record["pose"]["R"], result.estimate.pose.R)
    assert record["config"]["versions"]["manymatch"] == manymatch.__version__
    assert record["config"]["estimation"]["seed"] == 0
    assert manymatch.MatcherConfig.load(written["config"]) == result.config
    for graph in (
        manymatch.io.load_graph(written["npz"]),
        manymatch.io.read_hloc(written["h5 matches"], written["h5 features"], *result.names),
    ):
        ours = {tuple(edge) for edge in result.estimate.matches}
        assert {tuple(edge) for edge in graph.edges} == ours
        assert np.allclose(graph.points0, result.keypoints0, atol=1e-3)
        probability = dict(zip(map(tuple, graph.edges.tolist()), graph.similarity, strict=True))
        np.testing.assert_allclose(
            [probability[tuple(match)] for match in result.estimate.matches.tolist()],
            result.estimate.match_probability,
            rtol=1e-6,
        )
    assert record["mean_probability"] == result.estimate.match_probability.mean()
    page = written["report"].read_bytes()
    assert b"<html" in page[:300].lower()
    assert RANK_ONE.encode() in page  # the other system stands beside ours
    again = result.save(tmp_path / "new" / "folder", formats=("h5",))
    assert set(again) == {"json", "config", "h5 features", "h5 matches", "picture", "report"}
    assert not list((tmp_path / "new" / "folder").glob(".*"))


def test_refused_result_writes_nothing(result, tmp_path):
    with pytest.raises(ValueError, match="formats must be"):
        result.save(tmp_path / "a", formats=("npz", "xml"))
    spaced = dataclasses.replace(result, names=("my photo.jpg", "b.jpg"))
    with pytest.raises(ValueError, match="names of images must have no spaces"):
        spaced.save(tmp_path / "a", formats=("colmap",))
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="folder must be a folder that can be written to"):
        result.save(tmp_path / "file" / "a")


def test_files_of_an_earlier_result_are_removed(result, tmp_path):
    pytest.importorskip("h5py")
    written = result.save(tmp_path / "a", FORMATS)
    assert {"picture", "report", "npz", "colmap"} <= set(written)
    assert all(path.is_file() for path in written.values())
    nested = dataclasses.replace(result, names=("x/a.jpg", "y/a.jpg"))
    nested.save(tmp_path / "a", ["colmap"], picture=False, report=False)
    assert (tmp_path / "a" / "x" / "a.jpg.txt").is_file()
    result.save(tmp_path / "a", (), picture=False, report=False)
    assert {path.name for path in (tmp_path / "a").rglob("*")} == {"result.json", "config.toml"}


def test_other_files_stay(result, tmp_path):
    folder, victim = tmp_path / "a", tmp_path / "victim.txt"
    victim.write_text("mine")
    for content in (
        {"files": ["../victim.txt", "notes.txt", "/etc/passwd"], "images": ["a.jpg"]},
        {"files": ["../victim.txt"], "images": ["../victim"]},
        {"files": [["matches.npz"], None, 3], "images": 3},
        {"files": 3},
        [],
        "no JSON",
    ):
        folder.mkdir(exist_ok=True)
        for name in ("notes.txt", "report.html"):
            (folder / name).write_text("mine")
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "result.json").write_text(text)
        result.save(folder, (), picture=False, report=False)
        assert victim.read_text() == "mine"
        assert {path.name for path in folder.iterdir()} == {
            "notes.txt", "report.html", "result.json", "config.toml",
        }  # fmt: skip


def test_pictures_are_files_without_matplotlib_and_figures_with_it(result, tmp_path, monkeypatch):
    figure = result.plot()
    said = " ".join(text.get_text() for text in figure.texts)
    for part in (*result.names, result.confidence.reason):
        assert part in said
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert result.save(tmp_path / "a", ())["picture"].is_file()
    assert result.plot(tmp_path / "b.jpg") == tmp_path / "b.jpg"
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"manymatch\[viz\]"):
        result.plot()


def test_picture_of_another_estimate_has_no_verdict(result):
    other = dataclasses.replace(result.estimate)
    figure = result.plot(estimate=other)
    assert result.confidence.reason not in " ".join(text.get_text() for text in figure.texts)


def test_notebook_shows_images_or_text(result, monkeypatch):
    shown = result._repr_html_()
    assert shown.startswith("<iframe ")
    assert "data:image/jpeg;base64," in shown
    assert "rank-one, plain consensus" in shown
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert result._repr_html_() is None


def test_results_have_short_representations(result):
    assert result.success is result.estimate.success is True
    assert result.pose is result.estimate.pose
    assert result.matches is result.estimate.matches
    for shown in (
        *(result, result.estimate, result.confidence, result.graph, result.pose, result.camera0),
        *(result.rank_one.estimate, manymatch.Candidates(result.graph, result.counts)),
    ):
        assert len(repr(shown)) < 240
        assert "\n" not in repr(shown)
        assert "array(" not in repr(shown)
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):  # noqa: S301
        assert repr(again) == repr(result)
        assert np.array_equal(again.matched_points[1], result.matched_points[1])
    found = manymatch.estimate_homography(result, seed=2)
    assert found.inliers.shape == (result.graph.num_edges,)


def test_matcher_can_be_pickled(pair, matcher, result):
    again = pickle.loads(pickle.dumps(matcher))  # noqa: S301
    assert repr(again) == repr(matcher)
    assert again.extractor.config == matcher.extractor.config
    matched = again.match(pair.image0, pair.image1, pair.camera, pair.camera)
    assert np.array_equal(matched.matches, result.matches)


def test_options_of_one_pair_are_keywords(pair, matcher):
    given = (pair.image0, pair.image1, pair.camera, pair.camera)
    one = matcher.match(*given, seed=7, max_iterations=300)
    options = matcher.config.options.replace(seed=7, min_iterations=300, max_iterations=300)
    same = matcher.match(*given, options=options)
    assert (one.estimate.options, one.estimate.iterations) == (same.estimate.options, 300)
    assert np.array_equal(one.matches, same.matches)
    with pytest.raises(ValueError, match=r"^k must be given to Matcher, as in Matcher\(k=\.\.\.\)"):
        matcher.match(*given, k=3)
    with pytest.raises(ValueError, match="did you mean 'seed'"):
        matcher.match(*given, sead=3)
    with pytest.raises(ValueError, match="options must be an Options or None, got 3"):
        matcher.match(*given, options=3)


def test_match_in_one_call(pair):
    found = match(pair.image0, pair.image1, preset="classic", **QUICK)
    assert found.estimate.success
    assert sum("Both cameras: unknown focal length" in note for note in found.notes) == 1
    assert found.camera_origins == ("found", "found")
    assert found.camera0 == found.camera1 == found.estimate.camera0
    assert found.camera0.known_focal
    assert found.camera_priors == (Camera.unknown(*found.size0), Camera.unknown(*found.size1))
    options = {"longest0": 300, "longest1": 200, "with_rank_one": True, "seed": 4}
    found = match(pair.image0, pair.image1, preset="classic", **QUICK, **options)
    assert found.rank_one is not None
    assert found.estimate.options.seed == 4
    with pytest.raises(ValueError, match="did you mean preset="):
        match(pair.image0, pair.image1, "classic")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.jpg", "missing.jpg"), "image0 must be"),
        ((np.zeros((3, 3, 7), np.uint8), np.zeros((3, 3), np.uint8)), "image0 must be"),
        ((np.zeros((9, 9), np.uint8), 5), "image1 must be"),
        ((np.zeros((9, 9), np.uint8),) * 2 + (3,), "camera0 must be"),
        ((np.zeros((9, 9), np.uint8),) * 2 + (None, "1,2"), "camera1 must be"),
    ],
)
def test_bad_arguments_are_named(matcher, arguments, words):
    with pytest.raises(ValueError, match=words):
        matcher.match(*arguments)

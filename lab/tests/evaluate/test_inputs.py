"""Opening sets by what people call them; associations; posed graphs in files."""

import dataclasses

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch.features.feature_config import FEATURE_PRESETS
from manymatch.features.registry import find_model
from manymatch.features.weight_files import sha256_of
from manymatch.io.pairs import Pair
from manymatch.matcher.matcher import Matcher
from manymatch.options import Options
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate import inputs
from manymatch_lab.evaluate.estimators import trial
from manymatch_lab.evaluate.inputs import (
    NUM_SCENES,
    FileGraphs,
    ImageGraphs,
    SyntheticGraphs,
    open_graphs,
    other_weights,
)
from manymatch_lab.evaluate.posed_graph import read_posed_graph, write_posed_graph
from manymatch_lab.evaluate.run import RunConfig, run_set
from tests.support.synthetic_runs import SmallGraphs
from tests.support.synthetic_trees import words, write_image
from tests.support.synthetic_views import image_pair


@pytest.fixture
def posed():
    return SmallGraphs()[0]


def seen(association, posed):
    return association.apply(posed.graph, **posed.sizes)


def write_set(folder, count=2):
    folder.mkdir(parents=True)
    for index, item in zip(range(count), SmallGraphs(count), strict=False):
        write_posed_graph(folder / f"{index:03d}.npz", item)


def test_posed_graph_file_round_trip(tmp_path, posed):
    write_posed_graph(tmp_path / "a.npz", posed)
    again = read_posed_graph(tmp_path / "a.npz", 7)
    assert again.graph == posed.graph
    np.testing.assert_allclose(again.R, posed.R, atol=1e-12)
    np.testing.assert_array_equal(again.t, posed.t)
    assert (again.name0, again.scene, again.seed_index) == (posed.name0, posed.scene, 7)
    assert again.camera0.K.tolist() == posed.camera0.K.tolist()
    assert again.size1 == posed.size1


def test_files_are_found_by_set_and_by_representation(tmp_path):
    write_set(tmp_path / "graphs" / "sift" / "fox")
    write_set(tmp_path / "graphs" / "sift" / "office", 1)
    write_set(tmp_path / "graphs" / "vit" / "fox", 1)
    found = FileGraphs.find(str(tmp_path / "graphs"))
    assert {(source.name, source.representation) for source in found} == {
        ("fox", "sift"),
        ("office", "sift"),
        ("fox", "vit"),
    }
    below = FileGraphs.find(str(tmp_path / "graphs" / "sift"))
    assert [source.name for source in below] == ["fox", "office"]
    sources = open_graphs([str(tmp_path / "graphs" / "sift" / "fox")])
    assert [(s.name, s.representation, len(s)) for s in sources] == [("fox", "sift", 2)]
    assert sources[0][1].seed_index == 2


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"R": np.eye(3) * 2}, "R must be a rotation"),
        ({"t": np.zeros(3)}, "t must be"),
        ({"size0": [640]}, "size0 must be"),
        ({"size0": [0, 480]}, "size0 must be"),
        ({"K0": np.zeros((3, 3))}, ""),
        ({"edges": np.array([[0, 10**6]])}, "edges"),
        ({"rank": np.zeros(3, int)}, "rank"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, posed, change, part):
    path = tmp_path / "a.npz"
    write_posed_graph(path, posed)
    with np.load(path) as content:
        arrays = dict(content)
    np.savez(path, **{**arrays, **change})
    with pytest.raises(ValueError, match=rf"must be a posed graph, got .*{part}"):
        read_posed_graph(path)


def test_synthetic_scenes_by_name():
    # A set that is given twice is one.
    (source,) = open_graphs(["synthetic:easy", "synthetic:easy"], k=3)
    assert len(source) == NUM_SCENES
    assert source[3].graph == make_scene(dataclasses.replace(EASY, k=3), 3).graph
    assert source.identity == SyntheticGraphs("easy", 3).identity
    with pytest.raises(IndexError):
        source[NUM_SCENES]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("synthetic:esy", "synthetic: must be followed by one of .*did you mean 'easy'"),
        ("no-such-set", "set must be the name of a data set"),
        ("scannet150", "did you mean 'scannet1500'"),
    ],
)
def test_an_unknown_set_is_one_sentence(spec, sentence):
    with pytest.raises(ValueError, match=sentence):
        open_graphs([spec])


def test_images_are_filtered_and_thresholded_at_working_size(tmp_path):
    """The same pixels in a larger file: the same edges after the filter, the same angle."""
    pytest.importorskip("cv2")
    Image = pytest.importorskip("PIL.Image")
    views = image_pair()
    matcher = Matcher("classic", longest=480, max_keypoints=400)
    found = []
    for factor in (1, 4):
        large = np.repeat(np.repeat(views.image0, factor, axis=0), factor, axis=1)
        paths = tmp_path / f"{factor}.png", tmp_path / "b.png"
        Image.fromarray(large).save(paths[0])
        Image.fromarray(views.image1).save(paths[1])
        pair = Pair(
            "a", "b", *paths, views.camera.scaled(factor), views.camera,
            R=views.pose.R, t=views.pose.t
        )  # fmt: skip
        found.append(ImageGraphs(Dataset("views", "Views", (pair,)), matcher)[0])
    plain, stored = found
    assert (plain.working0, stored.working0) == ((480, 360), (480, 360))
    assert stored.size0 == (1920, 1440)
    assert plain.pixels == pytest.approx(1.0)
    assert stored.pixels == pytest.approx(2 / (1 / 4 + 1))
    kept = [Association.paper().apply(posed.graph, **posed.sizes) for posed in found]
    assert 0 < kept[0].num_edges < Association.paper().max_edges
    assert np.array_equal(kept[0].edges, kept[1].edges)
    # In pixels of the files the grids would lie otherwise.
    unscaled = Association.paper().apply(stored.graph, stored.size0, stored.size1)
    assert not np.array_equal(unscaled.edges, kept[0].edges)
    row, again = (
        trial("auto", posed, posed.graph, Options(max_iterations=2000, threshold_px=posed.pixels))
        for posed in found
    )
    assert again["num_inliers"] == row["num_inliers"]
    write_posed_graph(tmp_path / "posed.npz", stored)
    assert read_posed_graph(tmp_path / "posed.npz").sizes == stored.sizes
    assert again["error_deg"] == pytest.approx(row["error_deg"], abs=1e-3)


def test_a_set_below_a_folder_may_also_be_named_with_its_settings(tmp_path):
    pytest.importorskip("cv2")
    for name in ("day", "night"):
        write_image(tmp_path / "sets" / name / "a.png")
        text = f"a.png a.png 0 0 {words(np.eye(3), np.eye(3), np.eye(4) + np.eye(4, k=3))}\n"
        (tmp_path / "sets" / name / "pairs.txt").write_text(text)
    (tmp_path / "n.toml").write_text('root = "sets/night"\nlongest1 = 0\n')
    found = open_graphs([str(tmp_path / "sets"), str(tmp_path / "n.toml")], ["classic"])
    sizes = {source.name: source.identity["longest"] for source in found}
    assert sizes == {"day": [None, None], "night": [None, 0]}
    assert [source.notes[1:] for source in found] == [
        (),
        (f"night: longest1 0 by {tmp_path / 'n.toml'}",),
    ]
    with pytest.raises(ValueError, match="sets must have different names"):
        open_graphs([str(tmp_path / "n.toml"), str(tmp_path / "sets" / "night")], ["classic"])


def test_missing_truth_is_refused_before_networks_are_loaded(tmp_path, monkeypatch):
    (tmp_path / "pairs.txt").write_text("a.png b.png\n")
    monkeypatch.setattr("manymatch_lab.evaluate.inputs.Matcher", None)
    with pytest.raises(ValueError, match="set must have the true pose of every pair"):
        open_graphs([str(tmp_path)], ["classic"])


def test_file_of_dinov3_that_is_not_metas_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    assert other_weights("dinov3-vitl16", None) == []
    file = tmp_path / "dinov3-vitl16.safetensors"
    file.write_bytes(b"hub")
    model = find_model("dinov3-vitl16")
    wanted = [f"weights {file.name} instead of {model.published}"]
    assert other_weights("dinov3-vitl16", None) == wanted
    assert other_weights("dinov3-vitl16", str(file)) == wanted
    # The same content is the same file, whatever its name.
    digests = {model.published: sha256_of(file)}
    monkeypatch.setattr(inputs, "find_model", lambda _: dataclasses.replace(model, sha256=digests))
    assert other_weights("dinov3-vitl16", None) == []
    assert other_weights("dinov3-vitl16", "random") == []
    # Both files of DINOv2 give the same features.
    assert other_weights("dinov2-vitl14-reg", str(file)) == []


def test_directions_that_were_removed_reach_the_list_of_differences(tmp_path):
    class Debiased(SmallGraphs):
        def __getitem__(self, index):
            return dataclasses.replace(super().__getitem__(index), debiased=96 + index)

        @property
        def identity(self):
            features = FEATURE_PRESETS["dinov3"].to_dict()
            own = {"preset": "dinov3", "features": features, "operator": "mutual"}
            return {**super().identity, **own}

    config = RunConfig("hcm", Association.paper(), Options(max_iterations=1000), 1)
    result = run_set(Debiased(2), {"a": config}, tmp_path)["a"]
    assert [row["debiased"] for row in result.rows()] == [96, 97]
    text = "96 directions of position removed instead of 200"
    assert text in result.summary()["differs_from_paper"]

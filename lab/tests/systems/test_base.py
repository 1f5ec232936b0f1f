"""Complete matchers: what they return, what they say when something is missing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from manymatch.associate.candidates import Association
from manymatch_lab import datasets
from manymatch_lab.datasets.dataset import Dataset
from manymatch_lab.systems import SYSTEMS, Correspondences, System, load_system
from manymatch_lab.systems import base as systems_base
from manymatch_lab.systems.base import SystemGraphs
from tests.support.oracle_system import TrueMatches, views_of, write_views
from tests.support.synthetic_images import texture

NAMES_OF_THE_PAPER = ("sp", "sp-lg", "eloftr", "omniglue", "mast3r", "xoftr")


class Fixed(System):
    """Returns what it was given."""

    name, title = "fixed", "Fixed"

    def __init__(self, *answer):
        super().__init__("cpu", offline=True)
        self.answer = answer

    def settings(self):
        return {}

    def _match(self, image0, image1):
        assert image0.dtype == image1.dtype == np.uint8
        return self.answer


def picture(width=40, height=30):
    return np.zeros((height, width, 3), dtype=np.uint8)


def test_correspondences_come_best_first_and_never_change():
    found = Correspondences([[1, 2], [3, 4], [5, 6]], np.eye(3, 2), [0.2, 0.9, 0.2])
    assert found.points0.tolist() == [[3, 4], [1, 2], [5, 6]]
    assert found.scores.tolist() == [0.9, 0.2, 0.2]
    with pytest.raises(ValueError, match="read-only"):
        found.points0[0] = 0.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([[1, 2]], [[1, 2], [3, 4]], [1]), "points1 must be 1 pixels, as points0"),
        (([[1, 2]], [[3, 4]], [1, 2]), "scores must be 1 numbers, as points0"),
        (([[np.nan, 2]], [[3, 4]], [1]), "points0 must hold finite numbers"),
    ],
)
def test_correspondences_that_do_not_fit_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Correspondences(*arguments)


def test_every_system_has_a_name_and_a_title_and_those_of_the_paper_are_there():
    systems = [load_system(name, device="cpu", offline=True) for name in SYSTEMS]
    assert [system.name for system in systems] == list(SYSTEMS)
    assert len({system.title for system in systems}) == len(systems)
    assert tuple(system.paper for system in systems if system.paper) == NAMES_OF_THE_PAPER
    assert [system.name for system in systems if system.specialist] == ["xoftr"]


def test_a_missing_package_is_said_with_the_command(monkeypatch):
    monkeypatch.setattr(systems_base, "is_installed", lambda package: package != "transformers")
    sentence = 'SuperPoint + MNN needs transformers: pip install "manymatch[features]"'
    assert load_system("superpoint-mnn", offline=True).missing() == sentence
    monkeypatch.setattr(systems_base, "is_installed", lambda package: package != "cv2")
    sentence = 'SIFT + MNN needs cv2: pip install "manymatch[images]"'
    assert load_system("sift-mnn", offline=True).missing() == sentence


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("superpoint-mnn", "hf download magic-leap-community/superpoint"),
        ("superpoint-lightglue", "hf download magic-leap-community/superpoint"),
        ("efficient-loftr", "hf download zju-community/efficientloftr"),
    ],
)
def test_missing_weights_are_said_with_the_command(name, command, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    system = load_system(name, offline=True)
    for fetch in (False, True):
        sentence = system.missing(fetch=fetch)
        assert f"run `{command}" in sentence
        assert "downloads are switched off" in sentence


def test_the_weights_of_lightglue_are_asked_for_beside_those_of_its_detector(monkeypatch, tmp_path):
    (tmp_path / "superpoint.safetensors").write_bytes(b"")
    monkeypatch.setenv("MANYMATCH_WEIGHTS", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    sentence = load_system("superpoint-lightglue", offline=True).missing()
    assert "run `curl -L --create-dirs" in sentence
    assert "superpoint_lightglue.pth`" in sentence


def all_rows(found):
    """All descriptors of an image and whose they are."""
    own = np.arange(len(found))
    return np.concatenate([found.descriptors, found.further]), np.concatenate([own, found.owners])


def test_sift_gives_mutual_nearest_neighbours_of_all_its_descriptors():
    image0 = texture(1, 160, 120)
    image1 = np.ascontiguousarray(image0[6:, 9:])
    system = load_system("sift-mnn", offline=True)
    assert system.missing() is None
    found = system.match(image0, image1)
    first, second = (system.detector.detect(image) for image in (image0, image1))
    pairs = set()
    similarity = all_rows(first)[0] @ all_rows(second)[0].T
    owner0, owner1 = all_rows(first)[1], all_rows(second)[1]
    best = np.full((len(first), len(second)), -np.inf)
    np.maximum.at(best, (owner0[:, None], owner1[None, :]), similarity)
    for i in range(len(first)):
        j = int(best[i].argmax())
        if int(best[:, j].argmax()) == i:
            pairs.add((*first.points[i], *second.points[j]))
    assert {(*a, *b) for a, b in zip(found.points0, found.points1, strict=True)} == pairs
    assert len(pairs) > 20
    assert (np.diff(found.scores) <= 0).all()
    # The cut moves every point by the same whole pixels.
    shift = np.median(found.points0 - found.points1, axis=0)
    np.testing.assert_allclose(shift, [9, 6], atol=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_views(tmp_path_factory.mktemp("pairs") / "views", 2)


@pytest.fixture(scope="module")
def views(folder):
    return views_of(folder)


def test_kept_correspondences_serve_other_seeds(views, tmp_path):
    oracle = TrueMatches(views)
    source = SystemGraphs(views, oracle, tmp_path)
    graphs = [source[i] for i in range(2)]
    assert oracle.calls == 2
    other = SystemGraphs(views, TrueMatches(views), tmp_path)
    assert all(other[i].graph == graphs[i].graph for i in range(2))
    assert other._system.calls == 0
    different = SystemGraphs(views, TrueMatches(views, noise=0.5), tmp_path)
    assert different[0].graph != graphs[0].graph
    assert different.folder != other.folder


def test_all_matches_are_edges_of_rank_one_best_first(views, tmp_path):
    posed = SystemGraphs(views, TrueMatches(views), tmp_path)[0]
    count = len(posed.graph)
    assert posed.graph.rank.tolist() == [1] * count
    assert posed.graph.edges.tolist() == [[i, i] for i in range(count)]
    assert (np.diff(posed.graph.similarity) <= 0).all()
    # The configuration of a run decides how many of the best reach the estimator.
    cut = Association.rank_one(7).apply(posed.graph, **posed.sizes)
    np.testing.assert_array_equal(cut.points0[cut.edges[:, 0]], posed.graph.points0[:7])


def test_the_threshold_is_at_working_size(folder, views, tmp_path):
    posed = SystemGraphs(views, TrueMatches(views), tmp_path)[0]
    assert posed.pixels == pytest.approx(1.0)
    assert posed.seed_index == 1
    # Without a word about the size, the longer edge becomes 1024 pixels.
    usual = datasets.load("folder", folder)
    oracle = TrueMatches(usual)
    large = SystemGraphs(usual, oracle, tmp_path)[0]
    assert large.pixels == pytest.approx(240 / 1024)
    assert oracle.shapes == [((768, 1024, 3), (768, 1024, 3))]
    np.testing.assert_allclose(large.graph.points0, posed.graph.points0, atol=1e-9)
    np.testing.assert_allclose(large.graph.points1, posed.graph.points1, atol=1e-9)


def test_turned_pairs_come_back_in_pixels_of_their_files(views, tmp_path):
    """A system sees the turned image; a point at its top-left pixel is at a corner of the file."""

    class Corner(System):
        name = title = "corner"

        def settings(self):
            return {}

        def _match(self, image0, image1):
            del image1
            assert image0.shape == (240, 180, 3)
            return [[0.0, 0.0]], [[0.0, 0.0]], [1.0]

    pair = dataclasses.replace(views.pairs[0], rot0=1)
    turned = Dataset(views.name, views.title, (pair,), longest0=0, longest1=0)
    graph = SystemGraphs(turned, Corner("cpu"), tmp_path)[0].graph
    # Turned counter-clockwise once: its top-left pixel is the top-right one of the file.
    np.testing.assert_allclose(graph.points0, [[239.0, 0.0]])
    np.testing.assert_allclose(graph.points1, [[0.0, 0.0]])


def test_an_unknown_system_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'sift-mnn', got 'sift-mn'"):
        load_system("sift-mn")

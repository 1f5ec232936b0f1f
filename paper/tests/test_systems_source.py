"""Correspondences of a system as a set of graphs: kept, cut, and in pixels of the files."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from manymatch import datasets
from manymatch.datasets.dataset import Dataset
from manymatch_paper.systems import System
from manymatch_paper.systems.source import SystemSource
from tests.support.oracle_system import Knowing, views_of, write_views


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_views(tmp_path_factory.mktemp("pairs") / "views", 2)


@pytest.fixture(scope="module")
def views(folder):
    return views_of(folder)


def test_kept_correspondences_serve_other_seeds(views, tmp_path):
    knowing = Knowing(views)
    source = SystemSource(views, knowing, tmp_path)
    graphs = [source[i] for i in range(2)]
    assert knowing.calls == 2
    other = SystemSource(views, Knowing(views), tmp_path)
    assert all(other[i].graph == graphs[i].graph for i in range(2))
    assert other._system.calls == 0
    different = SystemSource(views, Knowing(views, noise=0.5), tmp_path)
    assert different[0].graph != graphs[0].graph
    assert different.folder != other.folder


def test_the_best_matches_reach_the_estimator(views, tmp_path, monkeypatch):
    knowing = Knowing(views)
    whole = SystemSource(views, knowing, tmp_path)[0].graph
    monkeypatch.setattr(knowing, "keep", 7, raising=False)
    cut = SystemSource(views, knowing, tmp_path / "cut")
    knowing.pairs = iter(views.pairs)
    graph = cut[0].graph
    assert len(graph) == 7
    np.testing.assert_array_equal(graph.points0, whole.points0[:7])
    assert graph.rank.tolist() == [1] * 7
    assert graph.edges.tolist() == [[i, i] for i in range(7)]


def test_the_threshold_is_at_working_size(folder, views, tmp_path):
    posed = SystemSource(views, Knowing(views), tmp_path)[0]
    assert posed.pixels == pytest.approx(1.0)
    assert posed.seed_index == 1
    # Without a word about the size, the longer edge becomes 1024 pixels.
    usual = datasets.load("folder", folder)
    knowing = Knowing(usual)
    large = SystemSource(usual, knowing, tmp_path)[0]
    assert large.pixels == pytest.approx(240 / 1024)
    assert knowing.shapes == [((768, 1024, 3), (768, 1024, 3))]
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
    graph = SystemSource(turned, Corner("cpu"), tmp_path)[0].graph
    # Turned counter-clockwise once: its top-left pixel is the top-right one of the file.
    np.testing.assert_allclose(graph.points0, [[239.0, 0.0]])
    np.testing.assert_allclose(graph.points1, [[0.0, 0.0]])


def test_pairs_without_a_pose_are_refused(views, tmp_path):
    pair = dataclasses.replace(views.pairs[0], R=None, t=None)
    with pytest.raises(ValueError, match="set must have the true pose of every pair"):
        SystemSource(Dataset("folder", "mine", (pair,)), Knowing(views), tmp_path)


def test_folders_are_told_apart_by_their_titles(views):
    assert Dataset("folder", "mine", views.pairs).set_name == "mine"
    assert views.set_name == "made-views"

"""The graphs that the speed benchmark runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import manymatch
from manymatch_lab.datasets import synthetic
from tests.golden.exact_graphs import CAMERA, make_graph
from tests.support.data_folder import data_folder

if TYPE_CHECKING:
    from pathlib import Path

RATIOS = ("0.05", "0.10", "0.20", "0.40")
NUM_EDGES = 1024


@dataclass(frozen=True)
class Problem:
    """A graph of about 1024 edges with its cameras and true pose."""

    name: str
    graph: manymatch.AssociationGraph
    camera0: manymatch.Camera
    camera1: manymatch.Camera
    R: np.ndarray
    t: np.ndarray

    def core_arguments(self, threshold_px: float = 1.0) -> tuple[Any, ...]:
        """Points on the normalised plane, edges and eps, as the compiled module takes them."""
        compact = self.graph.compact()[0]
        x0 = np.ascontiguousarray(self.camera0.unproject(compact.points0))
        x1 = np.ascontiguousarray(self.camera1.unproject(compact.points1))
        eps = 0.5 * (1.0 / self.camera0.focal + 1.0 / self.camera1.focal) * threshold_px
        return x0, x1, np.ascontiguousarray(compact.edges, dtype=np.int32), eps


def load_problems(quick: bool) -> list[Problem]:
    """Take the reference graphs where they are, synthetic scenes otherwise."""
    data = data_folder()
    folder = data / "graphs" / "made" if data else None
    if folder is not None and folder.is_dir():
        ratios = RATIOS[1:3] if quick else RATIOS
        return [from_file(folder / f"g_{ratio}_00.npz", ratio) for ratio in ratios]
    return [from_scene(seed) for seed in range(2 if quick else 4)]


def from_file(path: Path, ratio: str) -> Problem:
    """One graph of the reference data."""
    with np.load(path) as file:
        graph = manymatch.AssociationGraph(
            file["kp1"],
            file["kp2"],
            np.column_stack([file["idx1"], file["idx2"]]),
            file["similarity"],
            file["first_k"],
        )
        cameras = [manymatch.Camera.from_matrix(file[key]) for key in ("K1", "K2")]
        return Problem(f"inlier ratio {ratio}", graph, *cameras, file["R"], file["t"])


def from_scene(seed: int) -> Problem:
    """Make a scene with families of look-alikes, cut to its first 1024 edges."""
    config = synthetic.SceneConfig(
        num_points=250, num_outliers=100, family_size=5, max_edges=NUM_EDGES
    )
    scene = synthetic.make_scene(config, seed)
    ratio = scene.is_true.mean()
    return Problem(
        f"scene {seed}, {100 * ratio:.0f} % true edges",
        scene.graph,
        scene.camera0,
        scene.camera1,
        scene.pose.R,
        scene.pose.t,
    )


def synthetic_problem(ratio: float, seed: int, num_edges: int = NUM_EDGES) -> Problem:
    """Make a graph with a given share of true edges, the rest at random; the same everywhere."""
    graph = make_graph(seed, num_edges, ratio)
    name = f"{ratio:g} of {num_edges} edges, graph {seed}"
    return Problem(name, graph.graph, CAMERA, CAMERA, graph.R, graph.t)

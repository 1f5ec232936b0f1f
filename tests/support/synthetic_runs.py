"""Sets of synthetic scenes for tests of evaluations, small enough to run often."""

from dataclasses import dataclass, field, replace
from typing import Any

from manymatch.io.files import MissingFileError
from manymatch_lab.datasets.synthetic import EASY, make_scene
from manymatch_lab.evaluate.posed_graph import PosedGraph


@dataclass
class SmallGraphs:
    """A few easy scenes; those of `broken` cannot be read."""

    count: int = 4
    name: str = "small"
    title: str = "Small"
    representation: str = "synthetic"
    broken: frozenset[int] = frozenset()
    first_seed_index: int = 1
    bins: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: list[int] = field(default_factory=list)
    label: str = "a"

    @property
    def identity(self) -> dict[str, Any]:
        return {"set": self.name, "label": self.label}

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> PosedGraph:
        self.asked.append(index)
        if index in self.broken:
            raise MissingFileError(f"image {index} must be an image, got no file")
        scene = make_scene(EASY, index)
        return PosedGraph(
            f"{index}a",
            f"{index}b",
            scene.graph,
            scene.camera0,
            scene.camera1,
            scene.size,
            scene.size,
            scene.pose.R,
            scene.pose.t,
            self.first_seed_index + index,
            f"scene {index}",
            self.bins[index] if self.bins else "",
        )

    def about(self, index: int) -> dict[str, str]:
        names = {"name0": f"{index}a", "name1": f"{index}b", "scene": f"scene {index}"}
        return {**names, "bin": self.bins[index] if self.bins else ""}

    def order(self):
        return reversed(range(len(self)))


@dataclass
class TrueEdgesGraphs(SmallGraphs):
    """Easy scenes that know their true edges."""

    def __getitem__(self, index: int) -> PosedGraph:
        true = make_scene(EASY, index).is_true
        return replace(super().__getitem__(index), true_edges=true)

"""Made scenes as a set: graphs of known truth without any image."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from manymatch._validate import suggest
from manymatch.datasets.synthetic import CONFIGS, SceneConfig, make_scene
from manymatch.evaluate.posed_graph import PosedGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Scenes of a made set.
NUM_SCENES = 100


@dataclasses.dataclass(frozen=True)
class MadeSource:
    """Scenes of one configuration, of the seeds 0, 1, 2 and so on."""

    name: str
    config: SceneConfig
    title: str
    representation: str = "made"
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, k: int) -> MadeSource:
        """Take a named configuration, with `k` candidates per keypoint."""
        if name not in CONFIGS:
            raise ValueError(
                f"made: must be followed by one of {', '.join(CONFIGS)}, got "
                f"{name!r}{suggest(name, CONFIGS)}"
            )
        return cls(f"made-{name}", dataclasses.replace(CONFIGS[name], k=k), f"made, {name}")

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the graphs."""
        return {"set": self.name, "scene": dataclasses.asdict(self.config)}

    def __len__(self) -> int:
        return NUM_SCENES

    def __getitem__(self, index: int) -> PosedGraph:
        if not 0 <= index < NUM_SCENES:
            raise IndexError(index)
        scene = make_scene(self.config, index)
        return PosedGraph(
            name0=f"{index}-0",
            name1=f"{index}-1",
            graph=scene.graph,
            camera0=scene.camera0,
            camera1=scene.camera1,
            size0=scene.size,
            size1=scene.size,
            R=scene.pose.R,
            t=scene.pose.t,
            seed_index=index + 1,
            scene=str(index),
            true_edges=scene.is_true,
        )

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Leave the order as it is."""
        return indices

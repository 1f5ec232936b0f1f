"""Correspondences of a system as a set of graphs: matched once a pair, kept, posed as any other."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path, read_bytes, read_npz, write_whole
from manymatch.evaluate.posed_graph import PosedGraph
from manymatch.features.config import FeatureConfig
from manymatch.features.device import choose_device, library_versions
from manymatch.features.resize import resize_image
from manymatch.graph import AssociationGraph
from manymatch.io.image import load_image
from manymatch.matcher.cameras import resolve_camera
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import working_pixels
from manymatch.runs.batch import batch_header
from manymatch.runs.views import turned_back
from manymatch_paper.systems.base import Correspondences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from manymatch._validate import FloatArray
    from manymatch.datasets.dataset import Dataset
    from manymatch.io.pairs import Pair
    from manymatch_paper.systems.base import System

_ARRAYS = ("points0", "points1", "scores", "sizes")
_WANT = "kept correspondences"


class SystemSource:
    """A `GraphSource` whose graphs are the correspondences of a system, all of rank one.

    Parameters
    ----------
    dataset : Dataset
        Pairs, every one with its true pose.
    system : System
        Complete: `missing` says nothing.
    folder : path
        Where correspondences are kept, so that a run that goes on does not match again. Those of
        other settings have another folder below it.
    """

    def __init__(self, dataset: Dataset, system: System, folder: object) -> None:
        dataset.require_truth()
        self.name, self.title, self.notes = dataset.set_name, dataset.title, dataset.notes
        self.representation = system.name
        self._dataset, self._system = dataset, system
        # The working size of the paper; the features of this configuration are not used.
        self._resizing = FeatureConfig()
        header = batch_header(
            MatcherConfig.of("classic"), dataset.pairs, "cpu", None, compare=False, matches=False
        )
        network = "torch" in system.packages
        self.identity: dict[str, Any] = {
            "set": self.name,
            "system": system.name,
            "settings": system.settings(),
            "keep": system.keep,
            "resize": self._resizing.resize.to_dict(),
            "longest": [dataset.longest0, dataset.longest1],
            **{name: header[name] for name in ("pair_count", "pair_list_hash")},
            "device": choose_device(system.device).type if network else None,
            "versions": library_versions() if network else header["versions"],
        }
        text = json.dumps(self.identity, sort_keys=True)
        self.folder: Path = as_path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]
        # Networks take turns; what runs without one takes care of itself.
        self._turn: Any = threading.Lock() if network else contextlib.nullcontext()

    def __len__(self) -> int:
        return len(self._dataset)

    def order(self, indices: Sequence[int]) -> Sequence[int]:
        """Leave the order: nothing is shared between pairs."""
        return indices

    def __getitem__(self, index: int) -> PosedGraph:
        dataset = self._dataset
        pair = dataset.pairs[index]
        if pair.R is None or pair.t is None:
            raise ValueError(f"pair {index} must have a true pose, got none")
        found, sizes = self._correspondences(index, pair)
        kept = found.head(self._system.keep)
        camera0 = resolve_camera(pair.camera0, pair.path0, sizes[0], "camera0").camera
        camera1 = resolve_camera(pair.camera1, pair.path1, sizes[1], "camera1").camera
        numbers = np.arange(len(kept))
        return PosedGraph(
            name0=pair.name0,
            name1=pair.name1,
            graph=AssociationGraph(
                kept.points0,
                kept.points1,
                np.column_stack([numbers, numbers]),
                kept.scores,
                np.ones(len(kept), dtype=np.int64),
            ),
            camera0=camera0,
            camera1=camera1,
            size0=sizes[0],
            size1=sizes[1],
            R=pair.R,
            t=pair.t,
            seed_index=int(pair.extra.get("seed_index", index + 1)),
            scene=pair.scene,
            bin=str(pair.extra.get("bin", "")),
            pixels=working_pixels(
                self._resizing,
                (camera0, sizes[0], dataset.longest0),
                (camera1, sizes[1], dataset.longest1),
            ),
        )

    def _correspondences(
        self, index: int, pair: Pair
    ) -> tuple[Correspondences, list[tuple[int, int]]]:
        """Read the correspondences of a pair, in pixels of its files, or compute and keep them."""
        path = self.folder / f"{index:06d}.npz"
        if path.is_file():
            saved = read_npz(read_bytes(path, _WANT), path, _WANT, _ARRAYS)
            width0, height0, width1, height1 = map(int, saved["sizes"].ravel())
            kept = Correspondences(*(saved[name] for name in _ARRAYS[:3]))
            return kept, [(width0, height0), (width1, height1)]
        found, sizes = self._match(pair)
        buffer = BytesIO()
        values = (found.points0, found.points1, found.scores, np.array(sizes))
        arrays: dict[str, Any] = dict(zip(_ARRAYS, values, strict=True))
        np.savez_compressed(buffer, **arrays)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(buffer.getvalue()))
        return found, sizes

    def _match(self, pair: Pair) -> tuple[Correspondences, list[tuple[int, int]]]:
        """Match at working size, and map back to the pixels of the files."""
        dataset = self._dataset
        images, back, sizes = [], [], []
        for path, turns, longest in (
            (pair.path0, pair.rot0, dataset.longest0),
            (pair.path1, pair.rot1, dataset.longest1),
        ):
            image = load_image(path)
            turned = np.rot90(image, turns)
            config = self._resizing if longest is None else self._resizing.replace(longest=longest)
            frame = config.resize.plan((turned.shape[1], turned.shape[0]))
            size = (image.shape[1], image.shape[0])
            images.append(resize_image(np.ascontiguousarray(turned), frame))
            back.append((frame, turns, size))
            sizes.append(size)
        with self._turn:
            found = self._system.match(images[0], images[1])
        points: list[FloatArray] = [
            turned_back(frame.to_original(given), turns, size)
            for given, (frame, turns, size) in zip(
                (found.points0, found.points1), back, strict=True
            )
        ]
        return Correspondences(points[0], points[1], found.scores), sizes

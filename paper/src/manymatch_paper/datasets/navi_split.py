"""Making the two lists of NAVI-Wild that have no image in common: poses and recall."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._files import as_path, read_bytes, unreadable, write_whole
from manymatch._validate import integer, real
from manymatch.datasets import loading
from manymatch.io.image import image_size
from manymatch_paper.datasets._navi_audit import Row, audit, balance
from manymatch_paper.datasets._navi_pools import ObjectPairs, UnsplittableError, split_object
from manymatch_paper.datasets.navi import BINS, COLUMNS, data_root
from manymatch_paper.datasets.navi_annotations import Annotation, Annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from manymatch._validate import BoolArray, IndexArray

SPLITS = ("estimation", "correspondence")
LISTS = (
    "pairs-wild_set.txt",
    "custom_splits/pairwise_pixel_correspondences/pairs-wild_set.txt",
)
_WANT = "NAVI's list of wild pairs"


@dataclasses.dataclass(frozen=True)
class _Edge:
    """A pair of the source: two images, and the angle as the list writes it."""

    first: str
    second: str
    angle: float
    text: str


def make_navi_split(
    root: object,
    out: object,
    *,
    pairs: int = 500,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Choose image-disjoint pairs of NAVI-Wild for pose estimation and for recall.

    Every object's images are divided into two pools. From each pool the same number of pairs of
    every bin is chosen, with equal histograms of the angle in steps of 5 degrees.

    Parameters
    ----------
    root : path
        Folder of NAVI. The pairs come from its ``pairs-wild_set.txt``; without that file they are
        all pairs of unoccluded images of an object, with the angle of the relative rotation.
    out : path
        Folder to write to: ``estimation`` and ``correspondence`` with three CSV files each,
        ``image_partition.csv`` and, last, ``manifest.json``. Existing files are replaced.
    pairs : int
        Pairs of each bin and split; objects have equal shares, and the rest of the division goes
        to other objects in each bin.
    seed : int
        The split is a function of the data, the arguments and NumPy's generator.
    progress : callable, optional
        Called with (done, all, object).

    Returns
    -------
    dict
        The manifest, with an audit of all constraints.

    Raises
    ------
    ValueError
        If data are missing, or an object cannot be divided; object and bin are named.
    """
    count = integer(pairs, "pairs", 1)
    rng = np.random.default_rng(integer(seed, "seed", 0))
    folder = data_root(loading.root_folder(root, "navi-wild"))
    target = as_path(out, "out")
    annotations = Annotations(folder)
    edges, source = _edges(folder, annotations)
    objects = sorted(edges)
    quotas = _quotas(objects, count, rng)
    rows: dict[tuple[str, str], list[Row]] = {(s, b): [] for s in SPLITS for b in BINS}
    partition: dict[str, str] = {}
    larger = itertools.cycle((1, 0))
    for done, name in enumerate(objects):
        if progress is not None:
            progress(done, len(objects), name)
        images = sorted({image for edge in edges[name] for image in (edge.first, edge.second)})
        views = [annotations.image(image) for image in images]
        usable, table = _table(name, edges[name], images, views)
        # Of an odd number of images the larger half goes to the one split and the other in turn.
        size = len(images) // 2 + (next(larger) if len(images) % 2 else 0)
        side, chosen = split_object(table, list(quotas[name].values()), size, rng)
        partition |= {i: SPLITS[0 if s else 1] for i, s in zip(images, side, strict=True)}
        for split, indices in zip(SPLITS, chosen, strict=True):
            for index in indices:
                edge = usable[index]
                bin_name = list(BINS)[int(edge.angle // 40)]
                rows[split, bin_name].append(_row(edge, annotations))
    for key, listed in rows.items():
        rows[key] = _swap_half(listed, rng)
    views_of = {image: annotations.image(image) for image in partition}
    findings = audit(rows, partition, views_of, quotas)
    broken = [finding["constraint"] for finding in findings if not finding["holds"]]
    if broken:
        raise UnsplittableError(f"the split must keep that {broken[0]}, got one that does not")
    files = _files(rows, partition, views_of)
    manifest = {
        "what": "image-disjoint pairs of NAVI-Wild for pose estimation and for recall",
        "source": source,
        "seed": seed,
        "pairs_per_bin": count,
        "objects": len(objects),
        "images": {s: sum(p == s for p in partition.values()) for s in SPLITS},
        "quotas": quotas,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "audit": findings,
        "balance": balance(rows, partition, views_of),
    }
    files["manifest.json"] = (json.dumps(manifest, indent=2) + "\n").encode()
    for name, data in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(target / name, lambda file, data=data: file.write(data))  # type: ignore[misc]
    return manifest


def _edges(folder: Path, annotations: Annotations) -> tuple[dict[str, list[_Edge]], dict[str, Any]]:
    """Pairs below 120 degrees by object, and where they are from."""
    for name in LISTS:
        if (folder / name).is_file():
            path = folder / name
            edges = _listed(path)
            source = {"list": name, "sha256": loading.sha256(path)}
            break
    else:
        edges = _all_pairs(folder, annotations)
        source = {"list": "all pairs of unoccluded images, angle of the relative rotation"}
    if not edges:
        raise ValueError(
            f"root must have {LISTS[0]} or <object>/wild_set/annotations.json, "
            f"got {str(folder)!r} without them"
        )
    return edges, source


def _listed(path: Path) -> dict[str, list[_Edge]]:
    """Read lines of two images below the root and their angle in degrees."""
    edges: dict[str, list[_Edge]] = {}
    seen = set()
    for number, line in enumerate(
        read_bytes(path, _WANT).decode("utf-8", "replace").split("\n"), 1
    ):
        words = line.split()
        if not words:
            continue
        try:
            if len(words) != 3:
                raise ValueError(f"it must have two images and an angle, got {len(words)} columns")  # noqa: TRY301
            angle = real(float(words[2]), "the angle", 0.0, 180.0, closed=True)
            names = [PurePosixPath(word).parts[0] for word in words[:2]]
            if names[0] != names[1] or words[0] == words[1]:
                raise ValueError("it must name two images of one object")  # noqa: TRY301
        except ValueError as error:
            raise unreadable(path, _WANT, f"line {number}: {error}") from error
        key = frozenset(words[:2])
        if key not in seen and angle < 120.0:
            edges.setdefault(names[0], []).append(_Edge(words[0], words[1], angle, words[2]))
        seen.add(key)
    return edges


def _all_pairs(folder: Path, annotations: Annotations) -> dict[str, list[_Edge]]:
    edges: dict[str, list[_Edge]] = {}
    for path in sorted(folder.glob("*/wild_set/annotations.json")):
        name = path.parent.parent.name
        images = [
            f"{name}/wild_set/images/{file}" for file in annotations.scene(f"{name}/wild_set")
        ]
        views = {image: annotations.image(image) for image in sorted(images)}
        free = [image for image, view in views.items() if not view.occluded]
        for a, b in itertools.combinations(free, 2):
            R = views[b].to_camera[:3, :3] @ views[a].to_camera[:3, :3].T
            angle = float(np.degrees(np.arccos(np.clip((np.trace(R) - 1) / 2, -1.0, 1.0))))
            if angle < 120.0:
                edges.setdefault(name, []).append(_Edge(a, b, angle, repr(angle)))
    return edges


def _table(
    name: str, edges: list[_Edge], images: list[str], views: list[Annotation]
) -> tuple[list[_Edge], ObjectPairs]:
    """Bring the pairs of an object to numbers."""
    index = {image: i for i, image in enumerate(images)}
    columns = [
        [view.split for view in views],
        [view.camera_model for view in views],
        [f"{view.height} x {view.width}" for view in views],
    ]
    tags = np.stack([np.unique(c, return_inverse=True)[1] for c in columns], axis=1)
    ends: IndexArray = np.array([(index[e.first], index[e.second]) for e in edges], dtype=np.int64)
    angle = np.array([edge.angle for edge in edges])
    return edges, ObjectPairs(name, ends[:, 0], ends[:, 1], angle, tags.astype(np.int64))


def _quotas(objects: list[str], pairs: int, rng: np.random.Generator) -> dict[str, dict[str, int]]:
    """Equal shares; what is left over goes to other objects in each bin."""
    share, rest = divmod(pairs, len(objects))
    quotas = {name: dict.fromkeys(BINS, share) for name in objects}
    order = rng.permutation(len(objects))
    for b, bin_name in enumerate(BINS):
        for k in range(rest):
            quotas[objects[order[(b * rest + k) % len(objects)]]][bin_name] += 1
    return quotas


def _row(edge: _Edge, annotations: Annotations) -> Row:
    sizes = []
    for name in (edge.first, edge.second):
        view = annotations.image(name)
        file = annotations.root / name
        if file.is_file() and image_size(file) != (view.width, view.height):
            width, height = image_size(file)
            raise ValueError(
                f"the image {file} must be {view.width} x {view.height} as the annotations say, "
                f"got {width} x {height}"
            )
        sizes.append((view.height, view.width))
    return Row(edge.first, edge.second, edge.angle, edge.text, sizes[0], sizes[1], swapped=False)


def _swap_half(rows: list[Row], rng: np.random.Generator) -> list[Row]:
    """Shuffle, and swap the images of half of the pairs."""
    order = rng.permutation(len(rows))
    turn: BoolArray = np.zeros(len(rows), dtype=np.bool_)
    turn[rng.permutation(len(rows))[: len(rows) // 2]] = True
    return [rows[i].swap() if turn[i] else rows[i] for i in order]


def _files(
    rows: dict[tuple[str, str], list[Row]], partition: dict[str, str], views: dict[str, Annotation]
) -> dict[str, bytes]:
    files = {
        f"{split}/pairs_wildset_{bin_name}.csv": _csv(
            [COLUMNS, *((r.first, r.second, r.text, *r.size1, *r.size2) for r in listed)]
        )
        for (split, bin_name), listed in rows.items()
    }
    header = ("image", "split", "tag", "camera_model", "height", "width")
    lines = [
        (image, split, v.split, v.camera_model, v.height, v.width)
        for image, split in sorted(partition.items())
        for v in (views[image],)
    ]
    return files | {"image_partition.csv": _csv([header, *lines])}


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()

"""Two lists of NAVI-Wild without a common image: one for poses, one for recall.

The images of an object are dealt out to two pools, and some are exchanged until both pools have
enough pairs of every viewing angle. Pairs are picked from the rarest angles first, always with the
images that are used least, which keeps the reuse of images low. Of several selections that fit, the
two that pair the most similar cameras are taken. At the end the lists are checked for every
constraint.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np

from manymatch.io.files import as_path, read_bytes, unreadable, write_whole
from manymatch.io.image import image_size
from manymatch_lab.checks import BoolArray, FloatArray, IndexArray, integer, real
from manymatch_lab.datasets.loading import sha256
from manymatch_lab.datasets.navi import BINS, COLUMNS, Annotation, Annotations, layout

SPLITS = ("estimation", "correspondence")
LISTS = ("pairs-wild_set.txt", "custom_splits/pairwise_pixel_correspondences/pairs-wild_set.txt")
_WANT = "NAVI's list of wild pairs"

#: Width of the classes of the angle histograms in degrees, and their number in a bin.
STEP_DEG, STEPS = 5, 8
#: How often an image may be used in one bin and in all bins.
REUSE_BIN, REUSE_ALL = 4, 6

_DEALS, _EXCHANGES = 8, 250
_SELECTIONS, _KEPT = 80, 48
_SPARE = 4


@dataclasses.dataclass(frozen=True)
class Row:
    """One pair of a list: its images, in the order of the line, and their (height, width).

    The angle is in degrees, and `text` has it as it was written; `swapped` says whether the images
    are in the other order than in the source.
    """

    first: str
    second: str
    angle: float
    text: str
    size1: tuple[int, int] = (0, 0)
    size2: tuple[int, int] = (0, 0)
    swapped: bool = False

    def swap(self) -> Row:
        """Return the pair the other way round."""
        ends = (self.second, self.first, self.angle, self.text, self.size2, self.size1)
        return Row(*ends, swapped=not self.swapped)

    @property
    def object(self) -> str:
        """Name of the object."""
        return PurePosixPath(self.first).parts[0]


#: Lines by (split, bin).
Rows: TypeAlias = Mapping[tuple[str, str], list[Row]]


def make_navi_split(
    root: object, out: object, *, pairs: int = 500, seed: int = 0
) -> dict[str, Any]:
    """Choose image-disjoint pairs of NAVI-Wild for pose estimation and for recall.

    Every object's images are divided into two pools. From each pool the same number of pairs of
    every bin is chosen, with equal histograms of the angle in steps of 5 degrees. If data are
    missing or an object cannot be divided, the error names object and bin.

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

    Returns
    -------
    dict
        The manifest, with an audit of all constraints.
    """
    count = integer(pairs, "pairs", 1)
    rng = np.random.default_rng(integer(seed, "seed", 0))
    folder, _ = layout("navi-wild").locate(root, "navi-wild")
    target = as_path(out, "out")
    annotations = Annotations(folder)
    listed, source = _source_pairs(folder, annotations)
    objects = sorted(listed)
    quotas = _quotas(objects, count, rng)
    rows: dict[tuple[str, str], list[Row]] = {(s, b): [] for s in SPLITS for b in BINS}
    partition: dict[str, str] = {}
    larger = itertools.cycle((1, 0))
    for name in objects:
        images = sorted({image for row in listed[name] for image in (row.first, row.second)})
        table = _table(name, listed[name], images, annotations)
        # Of an odd number of images the larger half goes to the one split and the other in turn.
        size = len(images) // 2 + (next(larger) if len(images) % 2 else 0)
        side, chosen = split_object(table, list(quotas[name].values()), size, rng)
        partition |= {i: SPLITS[0 if s else 1] for i, s in zip(images, side, strict=True)}
        for split, indices in zip(SPLITS, chosen, strict=True):
            for row in (listed[name][index] for index in indices):
                rows[split, list(BINS)[int(row.angle // 40)]].append(_with_sizes(row, annotations))
    for key, listed_rows in rows.items():
        # Shuffle, and swap the images of half of the pairs.
        order = rng.permutation(len(listed_rows))
        turned = set(rng.permutation(len(listed_rows))[: len(listed_rows) // 2].tolist())
        rows[key] = [listed_rows[i].swap() if i in turned else listed_rows[i] for i in order]
    views = {image: annotations.image(image) for image in partition}
    findings = audit(rows, partition, views, quotas)
    broken = [finding["constraint"] for finding in findings if not finding["holds"]]
    if broken:
        raise UnsplittableError(f"the split must keep that {broken[0]}, got one that does not")
    files = _files(rows, partition, views)
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
        "balance": balance(rows, partition, views),
    }
    files["manifest.json"] = (json.dumps(manifest, indent=2) + "\n").encode()
    for name, data in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(target / name, lambda file, data=data: file.write(data))  # type: ignore[misc]
    return manifest


def _source_pairs(
    folder: Path, annotations: Annotations
) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """Pairs below 120 degrees by object, and where they are from."""
    name = next((name for name in LISTS if (folder / name).is_file()), None)
    if name is not None:
        return _listed(folder / name), {"list": name, "sha256": sha256(folder / name)}
    found = _all_pairs(folder, annotations)
    if not found:
        raise ValueError(
            f"root must have {LISTS[0]} or <object>/wild_set/annotations.json, "
            f"got {str(folder)!r} without them"
        )
    return found, {"list": "all pairs of unoccluded images, angle of the relative rotation"}


def _listed(path: Path) -> dict[str, list[Row]]:
    """Read lines of two images below the root and their angle in degrees."""
    found: dict[str, list[Row]] = {}
    seen = set()
    text = read_bytes(path, _WANT).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), 1):
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
            found.setdefault(names[0], []).append(Row(words[0], words[1], angle, words[2]))
        seen.add(key)
    return found


def _all_pairs(folder: Path, annotations: Annotations) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*/wild_set/annotations.json")):
        scene = f"{path.parent.parent.name}/wild_set"
        images = sorted(f"{scene}/images/{file}" for file in annotations.scene(scene))
        views = {image: annotations.image(image) for image in images}
        free = [image for image, view in views.items() if not view.occluded]
        for a, b in itertools.combinations(free, 2):
            R = views[b].to_camera[:3, :3] @ views[a].to_camera[:3, :3].T
            angle = float(np.degrees(np.arccos(np.clip((np.trace(R) - 1) / 2, -1.0, 1.0))))
            if angle < 120.0:
                row = Row(a, b, angle, repr(angle))
                found.setdefault(row.object, []).append(row)
    return found


def _table(name: str, rows: list[Row], images: list[str], annotations: Annotations) -> ObjectPairs:
    """Bring the pairs of an object to numbers."""
    index = {image: i for i, image in enumerate(images)}
    views = map(annotations.image, images)
    columns = zip(
        *((v.split, v.camera_model, f"{v.height} x {v.width}") for v in views), strict=True
    )
    tags = np.stack([np.unique(c, return_inverse=True)[1] for c in columns], axis=1)
    ends = np.array([(index[row.first], index[row.second]) for row in rows], dtype=np.int64)
    angle = np.array([row.angle for row in rows])
    return ObjectPairs(name, ends[:, 0], ends[:, 1], angle, tags.astype(np.int64))


def _quotas(objects: list[str], pairs: int, rng: np.random.Generator) -> dict[str, dict[str, int]]:
    """Give objects equal shares; the remainder goes to other objects in each bin."""
    share, rest = divmod(pairs, len(objects))
    quotas = {name: dict.fromkeys(BINS, share) for name in objects}
    order = rng.permutation(len(objects))
    for b, bin_name in enumerate(BINS):
        for k in range(rest):
            quotas[objects[order[(b * rest + k) % len(objects)]]][bin_name] += 1
    return quotas


def _with_sizes(row: Row, annotations: Annotations) -> Row:
    sizes = []
    for name in (row.first, row.second):
        view = annotations.image(name)
        file = annotations.root / name
        if file.is_file() and image_size(file) != (view.width, view.height):
            width, height = image_size(file)
            raise ValueError(
                f"the image {file} must be {view.width} x {view.height} as the annotations say, "
                f"got {width} x {height}"
            )
        sizes.append((view.height, view.width))
    return dataclasses.replace(row, size1=sizes[0], size2=sizes[1])


def _files(rows: Rows, partition: dict[str, str], views: dict[str, Annotation]) -> dict[str, bytes]:
    tables: dict[str, list[Any]] = {
        f"{split}/pairs_wildset_{bin_name}.csv": [
            COLUMNS,
            *((r.first, r.second, r.text, *r.size1, *r.size2) for r in listed),
        ]
        for (split, bin_name), listed in rows.items()
    }
    tables["image_partition.csv"] = [("image", "split", "tag", "camera_model", "height", "width")]
    for image, split in sorted(partition.items()):
        v = views[image]
        line = (image, split, v.split, v.camera_model, v.height, v.width)
        tables["image_partition.csv"].append(line)
    files = {}
    for name, lines in tables.items():
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(lines)
        files[name] = text.getvalue().encode()
    return files


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectPairs:
    """All pairs of one object: images (E,) by index, and the angle in degrees, in [0, 120).

    `tags` (N, 3) has the training tag, camera model and size of every image, as numbers.
    """

    name: str
    first: IndexArray
    second: IndexArray
    angle: FloatArray
    tags: IndexArray

    @property
    def cell(self) -> IndexArray:
        """Class (E,) of every pair's angle, 0 to 23; a bin has eight."""
        return np.floor(self.angle / STEP_DEG).astype(np.int64)


class UnsplittableError(ValueError):
    """An object has too few images or pairs."""


def split_object(
    pairs: ObjectPairs, quota: Sequence[int], size: int, rng: np.random.Generator
) -> tuple[BoolArray, list[IndexArray]]:
    """Divide the images of an object and choose its pairs.

    `quota` is the number of pairs of each bin, in each pool; `size` is the number of images of the
    first pool: half of them, rounded up or down. Returns whether an image is in the first pool,
    (N,), and the pairs of both pools, by index, with equal histograms of the angle. If nothing
    keeps all limits, the error names object and bin.
    """
    deals = [_dealt(pairs, quota, size, rng) for _ in range(_DEALS)]
    deals.sort(key=lambda deal: deal[0])
    stuck = 0
    for _, side in deals:
        inside = [_members(pairs, side), _members(pairs, ~side)]
        room = np.minimum(*(_histogram(pairs.cell[part]) for part in inside))
        lacks = [room[b].sum() < quota[b] for b in range(3)]
        if any(lacks):
            stuck = lacks.index(True)
            continue
        while True:
            raw = _histogram(pairs.cell)
            target = np.concatenate([_share(raw[b], room[b], quota[b]) for b in range(3)])
            found = [_select(pairs, part, target, rng) for part in inside]
            failed = next((f for f in found if isinstance(f, int)), None)
            if failed is None:
                break
            # Ask for one pair less of the angle that cannot be had, more of the others.
            stuck = failed // STEPS
            room[stuck, failed % STEPS] = target[failed] - 1
            if room[stuck].sum() < quota[stuck]:
                break
        lists = [f for f in found if not isinstance(f, int)]
        if len(lists) == 2:
            return side, _most_alike(pairs, lists[0], lists[1])
    raise UnsplittableError(
        f"the pairs of {pairs.name} must allow two times {quota[stuck]} in the bin "
        f"{list(BINS)[stuck]} without a common image, got {len(pairs.tags)} images with "
        f"{int((pairs.cell // STEPS == stuck).sum())} pairs of that bin, which are too few"
    )


def _dealt(
    pairs: ObjectPairs, quota: Sequence[int], size: int, rng: np.random.Generator
) -> tuple[float, BoolArray]:
    """Deal images out to two pools, then exchange some while that is not a loss."""
    tags = pairs.tags
    # In turns, alike ones after each other, so that pools get equal shares.
    order = np.lexsort((rng.permutation(len(tags)), tags[:, 2], tags[:, 1], tags[:, 0]))
    side = np.zeros(len(tags), dtype=np.bool_)
    # The pool that begins gets one more of an odd number.
    side[order[0 if 2 * size > len(tags) else 1 :: 2]] = True
    cost = _cost(pairs, quota, side)
    for _ in range(_EXCHANGES):
        a = rng.choice(np.flatnonzero(side))
        others = np.flatnonzero(~side & (tags[:, 0] == tags[a, 0]))
        if not len(others):
            continue
        b = rng.choice(others)
        side[[a, b]] = False, True
        changed = _cost(pairs, quota, side)
        if changed <= cost:
            cost = changed
        else:
            side[[a, b]] = True, False
    return cost, side


def _cost(pairs: ObjectPairs, quota: Sequence[int], side: BoolArray) -> float:
    """Weigh missing pairs most, then pairs to spare, then unequal cameras and sizes."""
    counts = [_histogram(pairs.cell[_members(pairs, s)]) for s in (side, ~side)]
    common = np.minimum(*counts).sum(axis=1) - np.asarray(quota)
    missing = float(np.maximum(0, -common).sum())
    spare = float(np.maximum(0, _SPARE - common).sum())
    sign = np.where(side, 1.0, -1.0)
    uneven = sum(
        float(np.abs(np.bincount(pairs.tags[:, column], weights=sign)).sum()) for column in (1, 2)
    )
    return 100.0 * missing + 2.0 * spare + uneven


def _members(pairs: ObjectPairs, side: BoolArray) -> IndexArray:
    """Return the pairs with both images in a pool."""
    return np.flatnonzero(side[pairs.first] & side[pairs.second])


def _histogram(cell: IndexArray) -> IndexArray:
    return np.bincount(cell, minlength=3 * STEPS).astype(np.int64).reshape(3, STEPS)


def _share(raw: IndexArray, room: IndexArray, quota: int) -> IndexArray:
    """Share a bin's pairs among its angles as the object has them, as far as there is room."""
    given = np.zeros(STEPS, dtype=np.int64)
    wish = raw * (quota / max(1, raw.sum()))
    for _ in range(quota):
        short = np.where(given < room, wish - given, -np.inf)
        given[int(np.argmax(short))] += 1
    return given


def _select(
    pairs: ObjectPairs, part: IndexArray, target: IndexArray, rng: np.random.Generator
) -> list[IndexArray] | int:
    """Choose pairs of a pool several times; return the best, or a class that stays too small."""
    fits: list[tuple[int, IndexArray]] = []
    failed: list[int] = []
    for _ in range(_SELECTIONS):
        result = _select_once(pairs, part, target, rng)
        if isinstance(result, int):
            failed.append(result)
            continue
        used = np.bincount(np.concatenate([pairs.first[result], pairs.second[result]]))
        fits.append((int((used**2).sum()), result))
        if len(fits) == _KEPT:
            break
    if not fits:
        return int(np.bincount(failed).argmax())
    return [result for _, result in sorted(fits, key=lambda fit: fit[0])]


def _select_once(
    pairs: ObjectPairs, part: IndexArray, target: IndexArray, rng: np.random.Generator
) -> IndexArray | int:
    cell = pairs.cell[part]
    used = np.zeros((4, len(pairs.tags)), dtype=np.int64)
    spare = np.bincount(cell, minlength=len(target)) - target
    chosen: list[int] = []
    # Where there is the least choice first.
    for c in np.lexsort((rng.permutation(len(target)), spare)):
        b = int(c) // STEPS
        left = rng.permutation(part[cell == c])
        for _ in range(int(target[c])):
            ends = np.stack([pairs.first[left], pairs.second[left]])
            fits = ((used[b, ends] < REUSE_BIN) & (used[3, ends] < REUSE_ALL)).all(axis=0)
            if not fits.any():
                return int(c)
            burden = used[3, ends].max(axis=0) * 100 + used[3, ends].sum(axis=0)
            pick = int(np.argmin(np.where(fits, burden, 1 << 30)))
            used[b, ends[:, pick]] += 1
            used[3, ends[:, pick]] += 1
            chosen.append(int(left[pick]))
            left = np.delete(left, pick)
    return np.array(sorted(chosen), dtype=np.int64)


def _most_alike(
    pairs: ObjectPairs, one: list[IndexArray], two: list[IndexArray]
) -> list[IndexArray]:
    """Take the two selections with the most equal cameras: same or not, then which."""
    first, second = (
        [np.stack(counts) for counts in zip(*(_cameras(pairs, c) for c in each), strict=True)]
        for each in (one, two)
    )
    same, kind = (
        np.abs(a[:, None] - b[None]).sum(axis=2) for a, b in zip(first, second, strict=True)
    )
    i, j = np.unravel_index(int(np.argmin(same * 10_000 + kind)), same.shape)
    return [one[int(i)], two[int(j)]]


def _cameras(pairs: ObjectPairs, chosen: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Count, by bin, pairs of one camera model, and pairs of every two models."""
    models = int(pairs.tags[:, 1].max()) + 1
    a, b = pairs.tags[pairs.first[chosen], 1], pairs.tags[pairs.second[chosen], 1]
    bin_of = pairs.cell[chosen] // STEPS
    same = np.bincount(bin_of[a == b], minlength=3)
    low, high = np.minimum(a, b), np.maximum(a, b)
    kinds = np.bincount((bin_of * models + low) * models + high, minlength=3 * models * models)
    return same.astype(np.int64), kinds.astype(np.int64)


def audit(
    rows: Rows,
    partition: Mapping[str, str],
    views: Mapping[str, Annotation],
    quotas: Mapping[str, Mapping[str, int]],
) -> list[dict[str, Any]]:
    """Check every constraint on the finished lists.

    Lines are by (split, bin), `partition` is the split of every image, and quotas are pairs by
    object and bin. Returns ``constraint`` (a sentence), ``holds`` and ``measured`` of each.
    """
    splits = sorted({split for split, _ in rows})
    bins = list(dict.fromkeys(bin_name for _, bin_name in rows))
    used = {s: {image for b in bins for image in _ends(rows[s, b])} for s in splits}
    shared = set.intersection(*used.values())
    angles = {
        (b, name): [
            Counter(int(r.angle // STEP_DEG) for r in rows[s, b] if r.object == name)
            for s in splits
        ]
        for b in bins
        for name in quotas
    }
    counts = [(c.total(), quotas[name][b]) for (b, name), each in angles.items() for c in each]
    in_bin = [Counter(_ends(listed)) for listed in rows.values()]
    overall = [sum((Counter(_ends(rows[s, b])) for b in bins), Counter()) for s in splits]
    most_in_bin, most = (
        max(max(counter.values(), default=0) for counter in each) for each in (in_bin, overall)
    )
    swapped = {f"{s} {b}": sum(r.swapped for r in rows[s, b]) for s in splits for b in bins}
    unique = [{frozenset((r.first, r.second)) for r in listed} for listed in rows.values()]
    twice = sum(map(len, rows.values())) - sum(map(len, unique))
    uneven = _imbalance(partition, views, lambda _: "")
    tag = _imbalance(partition, views, lambda view: view.split)
    findings = [
        ("no image is in both splits", not shared, len(shared)),
        (
            "every pair has both images in the pool of its split",
            all(partition[i] == s for (s, _), listed in rows.items() for i in _ends(listed)),
            {s: len(images) for s, images in used.items()},
        ),
        (
            "objects have their number of pairs in every bin of both splits",
            all(number == quota for number, quota in counts),
            dict(Counter(number for number, _ in counts)),
        ),
        (
            "by object and bin the splits have equal histograms of the angle in steps of 5 degrees",
            all(len({frozenset(h.items()) for h in each}) == 1 for each in angles.values()),
            len(angles),
        ),
        ("no pair is there twice in a list", twice == 0, twice),
        (
            f"an image is used at most {REUSE_BIN} times in a bin",
            most_in_bin <= REUSE_BIN,
            most_in_bin,
        ),
        (f"an image is used at most {REUSE_ALL} times in a split", most <= REUSE_ALL, most),
        (
            "half of the pairs of every list are swapped, of an odd number one less",
            all(sum(r.swapped for r in listed) == len(listed) // 2 for listed in rows.values()),
            swapped,
        ),
        ("the pools of an object differ by at most one image", uneven <= 1, uneven),
        ("the pools of an object differ by at most one image of a training tag", tag <= 1, tag),
    ]
    return [
        {"constraint": sentence, "holds": bool(holds), "measured": value}
        for sentence, holds, value in findings
    ]


def balance(
    rows: Rows, partition: Mapping[str, str], views: Mapping[str, Annotation]
) -> dict[str, Any]:
    """Measure what is only made as equal as the constraints allow."""
    model = {image: view.camera_model for image, view in views.items()}
    size = _imbalance(partition, views, lambda view: f"{view.height} x {view.width}")
    return {
        "largest difference of an object's pools in images of a camera model": _imbalance(
            partition, views, lambda view: view.camera_model
        ),
        "largest difference of an object's pools in images of a size": size,
        "pairs of one camera model": {
            f"{split} {bin_name}": sum(model[row.first] == model[row.second] for row in listed)
            for (split, bin_name), listed in rows.items()
        },
    }


def _ends(rows: list[Row]) -> list[str]:
    return [image for row in rows for image in (row.first, row.second)]


def _imbalance(partition: Mapping[str, str], views: Mapping[str, Annotation], key: Any) -> int:
    """Return the largest difference between an object's pools in the number of images of a kind."""
    first = min(partition.values())
    sums: Counter[tuple[str, Any]] = Counter()
    for image, split in partition.items():
        sums[PurePosixPath(image).parts[0], key(views[image])] += 1 if split == first else -1
    return max(abs(value) for value in sums.values())

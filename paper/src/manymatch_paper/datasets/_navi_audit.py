"""Counting again whether a split of NAVI-Wild is what it should be."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from manymatch_paper.datasets._navi_pools import REUSE_ALL, REUSE_BIN, STEP_DEG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from manymatch_paper.datasets.navi_annotations import Annotation

    Rows = Mapping[tuple[str, str], list["Row"]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a list.

    Attributes
    ----------
    first, second : str
        Images in the order of the line.
    angle, text : float and str
        Degrees, and as they were written.
    size1, size2 : (int, int)
        Height and width of the images.
    swapped : bool
        Whether the images are in the other order than in the source.
    """

    first: str
    second: str
    angle: float
    text: str
    size1: tuple[int, int]
    size2: tuple[int, int]
    swapped: bool

    def swap(self) -> Row:
        """Return the pair the other way round."""
        return Row(
            self.second,
            self.first,
            self.angle,
            self.text,
            self.size2,
            self.size1,
            swapped=not self.swapped,
        )

    @property
    def object(self) -> str:
        """Name of the object."""
        return PurePosixPath(self.first).parts[0]


def audit(
    rows: Rows,
    partition: Mapping[str, str],
    views: Mapping[str, Annotation],
    quotas: Mapping[str, Mapping[str, int]],
) -> list[dict[str, Any]]:
    """Check every constraint on the finished lists.

    Parameters
    ----------
    rows : mapping
        Lines by (split, bin).
    partition : mapping
        Split of every image.
    views : mapping
        Annotation of every image.
    quotas : mapping
        Pairs by object and bin.

    Returns
    -------
    list of dict
        ``constraint`` (a sentence), ``holds`` and ``measured``.
    """
    splits = sorted({split for split, _ in rows})
    bins = list(dict.fromkeys(bin_name for _, bin_name in rows))
    used = {
        s: {image for b in bins for r in rows[s, b] for image in (r.first, r.second)}
        for s in splits
    }
    counts = {
        (s, b, name): sum(r.object == name for r in rows[s, b])
        for s in splits
        for b in bins
        for name in quotas
    }
    histograms = [
        {
            s: Counter(int(r.angle // STEP_DEG) for r in rows[s, b] if r.object == name)
            for s in splits
        }
        for b in bins
        for name in quotas
    ]
    in_bin = [Counter(_ends(rows[s, b])) for s in splits for b in bins]
    overall = [Counter(image for b in bins for image in _ends(rows[s, b])) for s in splits]
    swapped = {f"{s} {b}": sum(r.swapped for r in rows[s, b]) for s in splits for b in bins}
    twice = sum(
        len(listed) - len({frozenset((r.first, r.second)) for r in listed})
        for listed in rows.values()
    )
    tag = _imbalance(partition, views, lambda view: view.split)
    findings = [
        (
            "no image is in both splits",
            not set.intersection(*used.values()),
            len(set.intersection(*used.values())),
        ),
        (
            "every pair has both images in the pool of its split",
            all(partition[i] == s for (s, _), listed in rows.items() for i in _ends(listed)),
            {s: len(images) for s, images in used.items()},
        ),
        (
            "objects have their number of pairs in every bin of both splits",
            all(counts[s, b, name] == quotas[name][b] for s, b, name in counts),
            dict(Counter(counts.values())),
        ),
        (
            "by object and bin the splits have equal histograms of the angle in steps of 5 degrees",
            all(len({frozenset(h.items()) for h in cell.values()}) == 1 for cell in histograms),
            len(histograms),
        ),
        ("no pair is there twice in a list", twice == 0, twice),
        (
            f"an image is used at most {REUSE_BIN} times in a bin",
            all(max(c.values(), default=0) <= REUSE_BIN for c in in_bin),
            max(max(c.values(), default=0) for c in in_bin),
        ),
        (
            f"an image is used at most {REUSE_ALL} times in a split",
            all(max(c.values(), default=0) <= REUSE_ALL for c in overall),
            max(max(c.values(), default=0) for c in overall),
        ),
        (
            "half of the pairs of every list are swapped, of an odd number one less",
            all(sum(r.swapped for r in listed) == len(listed) // 2 for listed in rows.values()),
            swapped,
        ),
        (
            "the pools of an object differ by at most one image",
            _imbalance(partition, views, lambda _: "") <= 1,
            _imbalance(partition, views, lambda _: ""),
        ),
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

    def same(row: Row) -> bool:
        return views[row.first].camera_model == views[row.second].camera_model

    return {
        "largest difference of an object's pools in images of a camera model": _imbalance(
            partition, views, lambda view: view.camera_model
        ),
        "largest difference of an object's pools in images of a size": _imbalance(
            partition, views, lambda view: f"{view.height} x {view.width}"
        ),
        "pairs of one camera model": {
            f"{split} {bin_name}": sum(same(row) for row in listed)
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

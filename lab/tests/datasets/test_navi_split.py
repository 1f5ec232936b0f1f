import collections
import csv
import itertools
import json

import numpy as np
import pytest

from manymatch_lab import datasets
from manymatch_lab.datasets.navi import Annotations
from manymatch_lab.datasets.navi_split import SPLITS, Row, _listed, audit, make_navi_split
from tests.support.synthetic_trees import BINS, make_navi_objects, write_image

COUNTS = {"cup": 29, "duck": 32, "bus": 36}
#: Three objects, eight pairs of each bin: 3, 3 and 2.
PAIRS = 8


def rows_of(out):
    rows = {}
    for split, bin_name in itertools.product(SPLITS, BINS):
        with (out / split / f"pairs_wildset_{bin_name}.csv").open(newline="") as file:
            rows[split, bin_name] = list(csv.DictReader(file))
    return rows


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    root = tmp_path_factory.mktemp("navi")
    make_navi_objects(root, COUNTS)
    manifest = make_navi_split(root, root / "splits" / "navi", pairs=PAIRS)
    return root, manifest, rows_of(root / "splits" / "navi")


def test_constraints_hold_counted_by_hand(lists):
    root, manifest, rows = lists
    source = {}
    for line in (root / "pairs-wild_set.txt").read_text().splitlines():
        a, b, angle = line.split()
        source[a, b] = angle
    images = {split: set() for split in SPLITS}
    shares = collections.defaultdict(list)
    for (split, bin_name), listed in rows.items():
        low, high = (float(end) for end in bin_name.split("-"))
        uses, swapped, seen = collections.Counter(), 0, set()
        for row in listed:
            pair = row["image_1"], row["image_2"]
            assert (pair in source) != (pair[::-1] in source)
            swapped += pair[::-1] in source
            # The angle is written as the list has it, to the last digit.
            assert row["angular_distance_degrees"] == source.get(pair, source.get(pair[::-1]))
            assert low <= float(row["angular_distance_degrees"]) < high
            uses.update(pair)
            seen.add(frozenset(pair))
        assert swapped == PAIRS // 2
        assert len(seen) == PAIRS
        assert max(uses.values()) <= 4
        images[split] |= set(uses)
        shares[bin_name].append(collections.Counter(row["image_1"].split("/")[0] for row in listed))
    assert not images["estimation"] & images["correspondence"]
    fewer = set()
    for bin_name in BINS:
        one, two = shares[bin_name]
        assert one == two
        assert sorted(one.values()) == [2, 3, 3]
        fewer |= {name for name, count in one.items() if count == 2}
    # The remainder goes to other objects in each bin.
    assert fewer == set(COUNTS)
    for split in SPLITS:
        uses = collections.Counter()
        for bin_name in BINS:
            for row in rows[split, bin_name]:
                uses.update((row["image_1"], row["image_2"]))
        assert max(uses.values()) <= 6
    for bin_name, name in itertools.product(BINS, COUNTS):
        histograms = [
            collections.Counter(
                float(row["angular_distance_degrees"]) // 5
                for row in rows[split, bin_name]
                if row["image_1"].startswith(f"{name}/")
            )
            for split in SPLITS
        ]
        assert histograms[0] == histograms[1]
    assert all(finding["holds"] for finding in manifest["audit"])


def test_the_loader_reads_the_lists(lists):
    root, _, rows = lists
    dataset = datasets.load("navi-wild", root)
    assert len(dataset) == 3 * PAIRS
    assert dataset[0].name0 == rows["estimation", "0-40"][0]["image_1"]
    other = datasets.load("navi-wild-diagnostic", root)
    names = [{n for p in d for n in (p.name0, p.name1)} for d in (dataset, other)]
    assert not names[0] & names[1]
    # Angles of the lists are those of the relative rotations, which is how the test made them.
    for pair in dataset:
        angle = np.degrees(np.arccos((np.trace(pair.R) - 1) / 2))
        assert angle == pytest.approx(pair.extra["angle_deg"], abs=1e-6)


def test_same_seed_same_files(lists, tmp_path):
    root, manifest, _ = lists
    again = make_navi_split(root, tmp_path / "a", pairs=PAIRS)
    assert again["files"] == manifest["files"]
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["files"] == again["files"]
    other = make_navi_split(root, tmp_path / "b", pairs=PAIRS, seed=1)
    assert other["files"] != manifest["files"]
    assert all(finding["holds"] for finding in other["audit"])


def test_without_the_list_all_unoccluded_pairs_count(tmp_path):
    make_navi_objects(tmp_path, {"cup": 24}, with_list=False)
    manifest = make_navi_split(tmp_path, tmp_path / "out", pairs=3)
    assert "all pairs of unoccluded" in manifest["source"]["list"]
    assert manifest["images"] == {"estimation": 12, "correspondence": 11}
    assert "023.jpg" not in (tmp_path / "out" / "image_partition.csv").read_text()
    # An odd number: one pair less than half is swapped.
    assert [f["measured"] for f in manifest["audit"] if "swapped" in f["constraint"]] == [
        {f"{split} {bin_name}": 1 for split in sorted(SPLITS) for bin_name in BINS}
    ]


def test_too_few_images_are_named(tmp_path):
    make_navi_objects(tmp_path, {"cup": 30, "pin": 7})
    with pytest.raises(ValueError, match=r"pairs of pin .* the bin (0-40|40-80|80-120)") as caught:
        make_navi_split(tmp_path, tmp_path / "out", pairs=16)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a/x.jpg b/x.jpg 3", "line 1: it must name two images of one object"),
        ("a/x.jpg a/x.jpg 3", "line 1: it must name two images"),
        ("a/x.jpg a/y.jpg", "line 1: it must have two images and an angle, got 2"),
        ("a/x.jpg a/y.jpg 181", "the angle must be"),
        ("a/x.jpg a/y.jpg nan", "the angle must be"),
        ("a/x.jpg a/y.jpg z", "could not convert"),
    ],
)
def test_damaged_lists(tmp_path, text, says):
    path = tmp_path / "pairs-wild_set.txt"
    path.write_text(text + "\n")
    with pytest.raises(ValueError, match=says) as caught:
        _listed(path)
    assert str(caught.value).startswith("path must be NAVI's list")


def test_sizes_are_compared_with_the_images(tmp_path):
    make_navi_objects(tmp_path, {"cup": 24})
    for k in range(24):
        write_image(tmp_path / "cup" / "wild_set" / "images" / f"{k:03d}.jpg", (50, 50))
    with pytest.raises(ValueError, match="as the annotations say, got 50 x 50"):
        make_navi_split(tmp_path, tmp_path / "out", pairs=3)


def test_the_audit_can_fail(lists):
    root, _, rows = lists
    annotations = Annotations(root)
    with (root / "splits/navi/image_partition.csv").open(newline="") as file:
        partition = {row["image"]: row["split"] for row in csv.DictReader(file)}
    views = {image: annotations.image(image) for image in partition}
    lines = (root / "pairs-wild_set.txt").read_text().splitlines()
    order = {tuple(line.split()[:2]) for line in lines}

    def as_row(r):
        ends, angle = (r["image_1"], r["image_2"]), float(r["angular_distance_degrees"])
        return Row(*ends, angle, "", (1, 1), (1, 1), swapped=ends not in order)

    lists = {key: list(map(as_row, listed)) for key, listed in rows.items()}
    quotas = {
        name: {b: sum(r.object == name for r in lists["estimation", b]) for b in BINS}
        for name in COUNTS
    }

    def broken():
        return [i for i, f in enumerate(audit(lists, partition, views, quotas)) if not f["holds"]]

    assert broken() == []
    key = "estimation", "0-40"
    good = list(lists[key])
    lists[key] = [row.swap() for row in good]
    assert broken() == []
    lists[key] = [good[0].swap(), *good[1:]]
    assert broken() == [7]
    lists[key] = good[:-1]
    assert {2, 3} <= set(broken())
    lists[key] = [*good[:-1], good[0]]
    assert 4 in broken()
    lists[key] = [*good[:-1], lists["correspondence", "0-40"][0]]
    assert {0, 1} <= set(broken())
    lists[key] = [good[0]] * 8
    assert {4, 5, 6} <= set(broken())
    lists[key] = good
    partition = dict.fromkeys(partition, "estimation")
    assert {1, 8, 9} <= set(broken())

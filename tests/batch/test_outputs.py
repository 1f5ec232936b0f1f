"""Matches of a batch: one file per pair, and the files of hloc and COLMAP made of them."""

import csv
import dataclasses
import json
import os
import re
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from manymatch import Camera, read_matches
from manymatch.batch import outputs
from manymatch.batch.batch import run_batch
from manymatch.batch.outputs import checked_formats
from manymatch.batch.parts import Run, cut, open_run
from manymatch.batch.work import VERDICTS, pair_file
from manymatch.io import load_graph, read_hloc, read_matches_npz
from manymatch.io.pairs import Pair, exhaustive_pairs
from manymatch.matcher.matcher import Matcher
from tests.support.pair_matches import same
from tests.support.small_batch import CONFIG, rows
from tests.support.synthetic_alternatives import with_alternatives
from tests.support.synthetic_images import HEIGHT, WIDTH, make_images

pytest.importorskip("cv2")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_matches_are_written(done, pairs, tmp_path):
    run_batch(pairs, None, tmp_path, CONFIG, limit=3, formats=["npz"])
    files = sorted((tmp_path / "matches").iterdir())
    assert files[0].name == "000000_view000.png_view001.png.npz"
    for path, row in zip(files, rows(tmp_path), strict=True):
        graph = load_graph(path)
        assert graph.num_edges == int(row["matches"])
        # Single precision is what such files hold.
        assert graph.similarity.mean() == pytest.approx(float(row["mean_probability"]), rel=1e-5)
    assert rows(tmp_path) == rows(done[0])[:3]


def test_strange_names_make_plain_files(images, tmp_path):
    pair = Pair("../a b/\u00e4?" + "x" * 300, "c", images / "view000.png", images / "view001.png")
    run_batch([pair], None, tmp_path, CONFIG, formats=["npz"])
    (path,) = (tmp_path / "matches").iterdir()
    assert path.parent == tmp_path / "matches"
    assert path.name.startswith("000000_")


def test_names_that_are_not_utf8_are_escaped(images, tmp_path):
    """File systems take any bytes; tables do not."""
    content = (images / "view000.png").read_bytes()
    for name in (b"\xff.png", b"\xfe.png"):
        (tmp_path / os.fsdecode(name)).write_bytes(content)
    summary = run_batch(exhaustive_pairs(tmp_path), None, tmp_path / "out", CONFIG, formats=["npz"])
    assert len(summary.files) == 2
    assert summary.counts["error"] == 0
    assert rows(tmp_path / "out")[0]["name0"] == "\\udcfe.png"


def refuse(*_):
    raise ValueError


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("at", [0, 3])
def test_full_disk_ends_the_run(pairs, tmp_path, monkeypatch, at):
    """Parts that were written before stay."""
    plain = Run.write

    def write(run, block, found):
        if block >= at:
            full()
        plain(run, block, found)

    monkeypatch.setattr(Run, "write", write)
    with pytest.raises(OSError, match="No space left"):
        run_batch(pairs, None, tmp_path, CONFIG, formats=["npz"], workers=1)
    monkeypatch.undo()
    again = run_batch(pairs, None, tmp_path, CONFIG, formats=["npz"])
    assert again.computed == len(pairs) - at
    assert len(list((tmp_path / "matches").iterdir())) == len(pairs)


def test_files_that_cannot_be_written_can_be_made_later(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("manymatch.io.matches.PairMatches.write_npz", full)
    with pytest.raises(OSError, match="No space left"):
        run_batch(pairs, None, tmp_path, CONFIG, formats=["npz"], limit=3)
    monkeypatch.undo()
    assert run_batch(pairs, None, tmp_path, CONFIG, formats=["npz"], limit=3).computed == 0
    assert len(list((tmp_path / "matches").iterdir())) == 3


def colmap_pairs(path):
    """Matches of a text for COLMAP's importer, by names; none may be there twice."""
    found = {}
    for block in path.read_text().split("\n\n")[:-1]:
        first, *lines = block.split("\n")
        names = tuple(first.split(" "))
        assert names not in found
        found[names] = [tuple(map(int, line.split())) for line in lines]
    return found


def test_all_formats_hold_the_matches_of_every_pair(done, pairs, tmp_path):
    h5py = pytest.importorskip("h5py")
    summary = run_batch(pairs, None, tmp_path, CONFIG, formats=["h5", "colmap", "npz"], workers=2)
    features, matches = tmp_path / "features.h5", tmp_path / "matches.h5"
    assert summary.files[-3:] == (features, matches, tmp_path / "colmap" / "matches.txt")
    text = colmap_pairs(summary.files[-1])
    assert list(text) == [(pair.name0, pair.name1) for pair in pairs]
    for index, pair in enumerate(pairs):
        expected = read_matches_npz(pair_file(done[0] / "matches", index, pair, "npz"))
        graph = read_hloc(matches, features, pair.name0, pair.name1)
        assert sorted(map(tuple, graph.edges.tolist())) == sorted(
            map(tuple, expected.matches.tolist())
        )
        assert text[pair.name0, pair.name1] == list(map(tuple, expected.matches.tolist()))
    with h5py.File(features) as file:
        assert sorted(file) == sorted({p.name0 for p in pairs} | {p.name1 for p in pairs})
        assert file["view000.png/image_size"][()].tolist() == [WIDTH, HEIGHT]
        lines = (tmp_path / "colmap" / "view000.png.txt").read_text().splitlines()
        points = np.array([line.split()[:2] for line in lines[1:]], dtype=float)
        np.testing.assert_allclose(points - 0.5, file["view000.png/keypoints"][()], atol=1e-4)
    assert rows(tmp_path) == rows(done[0])


def test_files_are_made_anew_with_every_pair_once(pairs, tmp_path):
    """Files that are there, whole or not, are replaced by files of all parts."""
    how = {"formats": ["h5", "colmap"]}
    run_batch(pairs, None, tmp_path, CONFIG, limit=2, **how)
    assert len(colmap_pairs(tmp_path / "colmap" / "matches.txt")) == 2
    for name in ("matches.h5", "features.h5", "colmap/matches.txt"):
        (tmp_path / name).write_bytes(b"half")
    run_batch(pairs, None, tmp_path, CONFIG, limit=5, **how)
    again = run_batch(pairs, None, tmp_path, CONFIG, limit=5, **how)
    assert again.computed == 0
    text = colmap_pairs(tmp_path / "colmap" / "matches.txt")
    assert list(text) == [(pair.name0, pair.name1) for pair in pairs[:5]]
    for pair in pairs[:5]:
        found = read_hloc(tmp_path / "matches.h5", tmp_path / "features.h5", pair.name0, pair.name1)
        assert found.num_edges == len(text[pair.name0, pair.name1])


def test_names_with_folders(pairs, tmp_path):
    named = [dataclasses.replace(pairs[0], name0="deep/a", name1="b")]
    run_batch(named, None, tmp_path, CONFIG, formats=["colmap"])
    found = [str(p.relative_to(tmp_path / "colmap")) for p in (tmp_path / "colmap").rglob("*.*")]
    assert sorted(found) == ["b.txt", "deep/a.txt", "matches.txt"]


def test_pairs_that_could_not_be_tried_are_left_out(tmp_path):
    make_images(tmp_path / "views", 3)
    pairs = exhaustive_pairs(tmp_path / "views")
    (tmp_path / "views" / "view002.png").write_bytes(b"no image")
    summary = run_batch(pairs, None, tmp_path / "out", CONFIG, formats=["colmap"])
    assert summary.counts["error"] == 2
    text = colmap_pairs(tmp_path / "out" / "colmap" / "matches.txt")
    assert list(text) == [("view000.png", "view001.png")]


def renamed(pair, name):
    return dataclasses.replace(pair, name0=name)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: [renamed(p[0], "../a")], 'without leading "/", "." and ".."'),
        (lambda p: [renamed(p[0], "/etc/a")], 'without leading "/", "." and ".."'),
        (lambda p: [renamed(p[0], "a b")], "have no spaces, which COLMAP splits at, got 'a b'"),
        (lambda p: [renamed(p[0], "matches")], "leave the file matches.txt to the matches"),
        (lambda p: [renamed(p[0], "語" * 84)], "leave room for .txt in a file name of 255 bytes"),
        (lambda p: [renamed(p[0], os.fsdecode(b"\xff"))], "a name that is text"),
        (lambda p: [p[0], renamed(p[8], "view000.png")], "one file and one quarter turn by the"),
        (lambda p: [p[0], dataclasses.replace(p[1], rot0=1)], "one file and one quarter turn"),
        (
            lambda p: [p[0], dataclasses.replace(p[0], name1=p[0].name0, path1=p[0].path0)],
            "two images to be .*'view000.png' twice",
        ),
    ],
)
def test_pairs_that_a_format_cannot_hold_are_refused(pairs, tmp_path, change, says):
    chosen = change(pairs)
    with pytest.raises(ValueError, match=f"^pairs must .*{says}"):
        run_batch(chosen, None, tmp_path / "out", CONFIG, formats=["npz", "colmap"])
    assert not (tmp_path / "out").exists()
    assert checked_formats(["npz"], chosen) == ("npz",)


K = Camera("PINHOLE", WIDTH, HEIGHT, [130, 130, 59.5, 44.5])
SKEWED = Camera("PINHOLE", WIDTH, HEIGHT, [130, 130, 59.5, 44.5], 2.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda p: [dataclasses.replace(p[0], camera0=K), p[1]],
            "^pairs must have one camera of 'view000.png' to be .*, got None after Camera",
        ),
        (
            lambda p: [dataclasses.replace(p[0], camera0=SKEWED)],
            "^camera must have no skew",
        ),
        (
            lambda p: [renamed(p[0], "a/b"), renamed(p[0], "a-b")],
            "^pairs must have names that differ where hloc has - for / .*'a-b' after 'a/b'",
        ),
    ],
)
def test_pairs_that_a_database_cannot_hold_are_refused(pairs, tmp_path, change, says):
    for name in ("h5py", "pycolmap"):
        pytest.importorskip(name)
    with pytest.raises(ValueError, match=says):
        run_batch(change(pairs), None, tmp_path / "out", CONFIG, formats=["h5", "colmap-db"])
    assert not (tmp_path / "out").exists()


def test_two_images_that_are_paired_twice_are_there_once(pairs, tmp_path):
    """The first pair stays, as lists for retrieval have every pair in both orders."""
    back = dataclasses.replace(
        pairs[0],
        name0=pairs[0].name1,
        name1=pairs[0].name0,
        path0=pairs[0].path1,
        path1=pairs[0].path0,
    )
    summary = run_batch(
        [pairs[0], back, pairs[1], pairs[0]], None, tmp_path, CONFIG, formats=["colmap", "npz"]
    )
    assert summary.computed == 4
    text = colmap_pairs(tmp_path / "colmap" / "matches.txt")
    assert list(text) == [(pair.name0, pair.name1) for pair in pairs[:2]]
    first = read_matches_npz(pair_file(tmp_path / "matches", 0, pairs[0], "npz"))
    assert text[pairs[0].name0, pairs[0].name1] == list(map(tuple, first.matches.tolist()))


@pytest.mark.parametrize(
    ("verdict", "shared", "trusted"),
    [
        ("solved", False, True),
        ("likely", False, True),
        ("degenerate", False, True),
        ("uncertain", True, False),
        ("ambiguous", False, False),
        # The second pose of a plane: whichever is right, the matches are.
        ("ambiguous", True, True),
    ],
)
def test_untrusted_pose_is_not_given_to_mappers(tmp_path, monkeypatch, verdict, shared, trusted):
    """Its matches are, as raw ones; by a batch and by a single result."""
    pycolmap = pytest.importorskip("pycolmap")
    make_images(tmp_path / "views", 2)
    [pair] = exhaustive_pairs(tmp_path / "views")
    plain = Matcher.match_features

    def judged(self, *arguments, **settings):
        result = plain(self, *arguments, **settings)
        estimate = with_alternatives(result.estimate, (0.4, 0.01))
        if shared:
            first = dataclasses.replace(estimate.alternatives[0], matches=estimate.matches)
            estimate = dataclasses.replace(
                estimate, alternatives=(first, *estimate.alternatives[1:])
            )
        confidence = dataclasses.replace(result.confidence, verdict=verdict)
        return dataclasses.replace(result, estimate=estimate, confidence=confidence)

    monkeypatch.setattr(Matcher, "match_features", judged)
    out = tmp_path / "batch"
    summary = run_batch([pair], None, out, CONFIG, formats=["colmap-db"])
    assert summary.counts == {name: int(name == verdict) for name in VERDICTS}
    assert rows(out)[0]["trusted"] == str(trusted).lower()
    result = Matcher(CONFIG).match(pair.path0, pair.path1)
    result.save(tmp_path / "one", ["colmap-db"], picture=False, report=False)
    kinds = pycolmap.TwoViewGeometryConfiguration
    for folder in (out, tmp_path / "one"):
        with pycolmap.Database.open(folder / "database.db") as database:
            geometry = database.read_two_view_geometry(1, 2)
            assert bool(len(geometry.inlier_matches)) == trusted
            wanted = kinds.UNCALIBRATED if trusted else kinds.DEGENERATE
            assert geometry.config == wanted.value
            assert len(database.read_matches(1, 2)) > 5


def test_other_formats_can_be_asked_for_later(pairs, tmp_path):
    run_batch(pairs, None, tmp_path, CONFIG, limit=3, formats=["npz"])
    summary = run_batch(pairs, None, tmp_path, CONFIG, limit=3, formats=["colmap"])
    assert summary.computed == 0
    assert len(colmap_pairs(tmp_path / "colmap" / "matches.txt")) == 3


def test_matches_are_read_by_pair(done, pairs):
    with read_matches(done[0]) as store:
        assert list(store) == list(range(len(pairs)))
        assert 3 in store
        assert 99 not in store
        for index, name0, name1, found in store.items():
            assert (name0, name1) == (pairs[index].name0, pairs[index].name1)
            path = pair_file(done[0] / "matches", index, pairs[index], "npz")
            expected = read_matches_npz(path)
            same(found, expected)
        same(store.by_names("view001.png", "view003.png"), store[7])
        for missing in (lambda: store[99], lambda: store.by_names("view003.png", "view001.png")):
            with pytest.raises(KeyError):
                missing()


def test_parts_are_plain_tables(done, pairs):
    """Any tool that reads Parquet finds the rows and the matches."""
    table = parquet.read_table(done[0] / "parts")
    assert len(table) == len(pairs)
    with read_matches(done[0]) as store:
        for row in table.to_pylist():
            found = store[row["index"]]
            assert row["match_indices"] == found.matches.ravel().tolist()
            assert row["points1"] == found.keypoints1.ravel().tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"matches": False}, "its batch did not keep the matches, which --format does"),
        ({"format": 5}, "it has format 5, and this version reads 9"),
        ({"parts": 3}, "'parts' must be a text"),
        ({"provenance": None}, "'provenance' must be a dict"),
    ],
)
def test_folders_without_matches_are_refused(done, tmp_path, change, says):
    known = json.loads((done[0] / "run.json").read_text())
    del known["checksum"]
    (tmp_path / "run.json").write_text(json.dumps(known | change))
    with pytest.raises(ValueError, match=says):
        read_matches(tmp_path)
    with pytest.raises(ValueError, match="path must be the folder of a batch that keeps"):
        read_matches(tmp_path / "nowhere")


def test_part_that_expands_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    columns = {"index": "int64", "x0": pyarrow.list_(pyarrow.float64())}
    run = open_run(tmp_path, {}, cut([0], 1), columns)
    run.write(0, [{"index": 0, "x0": np.zeros(1_000_000)}])
    assert run.path(0).stat().st_size < 5000
    assert len(run.read(0)["x0"][0]) == 1_000_000
    monkeypatch.setenv("MANYMATCH_MAX_ARRAY_MB", "7")
    with pytest.raises(ValueError, match="MANYMATCH_MAX_ARRAY_MB"):
        run.read(0)


def test_long_tables_come_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "_CHUNK", 3)
    table = [{"index": i, "seed": 2**64 - 1, "name0": 'a,"b"\n'} for i in range(8)]
    columns = {"index": "int64", "seed": "uint64", "name0": "string", "chance": "float64"}
    outputs.write_tables(tmp_path, columns, lambda: iter(table), {})
    whole = [{**row, "chance": None} for row in table]
    assert parquet.read_table(tmp_path / "pairs.parquet").to_pylist() == whole
    with (tmp_path / "pairs.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert [row["name0"] for row in texts] == [row["name0"] for row in table]
    assert texts[0]["seed"] == str(2**64 - 1)


def test_sentences_that_differ_in_names_and_numbers_are_one_reason():
    sentences = [
        "image must be an image file, got 'a.jpg' (there is no such file)",
        "no keypoints in image 0",
        "image must be an image file, got 'b 2.jpg' (there is no such file)",
        "camera0 must be 320 x 240, got 1,640 x 480?",
        "camera0 must be 320 x 240, got 1,641 x 481?",
        "image must be an image file, got 'c.jpg' (it is empty)",
        "image must be an image file, got 'd.jpg' (there is no such file)",
    ]
    found = outputs.count_reasons(sentences)
    assert [(reason.sentence, reason.count) for reason in found] == [
        (f"{sentences[0]} (and others alike)", 3),
        (f"{sentences[3]} (and others alike)", 2),
        (sentences[1], 1),
        (sentences[5], 1),
    ]
    assert outputs.reasons_sentence(found, "could not be run", 1200) == (
        f"7 of 1,200 pairs could not be run; 3 pairs: {sentences[0]} (and others alike); "
        f"2 pairs: {sentences[3]} (and others alike); 1 pair: {sentences[1]}; "
        f"1 pair: {sentences[5]}."
    )
    one = outputs.count_reasons(["is it so?"])
    assert outputs.reasons_sentence(one, "failed", 1, "trial") == "1 of 1 trial failed: is it so?"
    assert outputs.count_reasons([]) == []


def test_rows_of_many_parts_come_in_the_order_of_the_pairs(tmp_path, monkeypatch):
    """They are sorted in stretches, of which some wait in files."""
    monkeypatch.setattr(outputs, "_STRETCH", 7)
    monkeypatch.setattr(outputs, "_CHUNK", 3)
    order = np.random.default_rng(0).permutation(40)
    run = open_run(tmp_path, {}, cut(order, 4), {"index": "int64", "name0": "string"})
    for block, items in enumerate(run.blocks):
        run.write(block, [{"index": int(i), "name0": f"{i}.jpg"} for i in items])
    found = list(outputs.rows_in_order(run, ["name0"]))
    assert found == [{"index": i, "name0": f"{i}.jpg"} for i in range(40)]


def test_page_shows_pairs_by_verdict_with_pictures(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr("manymatch.batch.outputs._MOST_PAIRS", 8)
    name = "<script>alert(1)</script>&\"'.png"
    listed = [dataclasses.replace(pairs[0], name0=name), *pairs[1:]]
    listed.append(Pair("a", "b", tmp_path / "a", tmp_path / "b"))
    summary = run_batch(listed, None, tmp_path, CONFIG, formats=["html"])
    assert summary.files[-1] == tmp_path / "index.html"
    page = summary.files[-1].read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#|pictures/)""", page)
    heads = re.findall(r"<h2>(.+): (\d+)</h2>", page)
    assert dict(heads) == {name: str(number) for name, number in summary.counts.items() if number}
    assert [head for head, _ in heads] == [name for name in VERDICTS if summary.counts[name]]
    links = [unquote(link) for link in re.findall(r'href="(pictures/[^"]+)"', page)]
    assert 0 < len(links) <= 8
    assert sorted(links) == sorted(f"pictures/{p.name}" for p in (tmp_path / "pictures").iterdir())
    for link in links:
        with Image.open(tmp_path / link) as picture:
            assert picture.height == 400
    assert "there is no such file" in page
    # An image that was removed since has no picture.
    monkeypatch.setattr("manymatch.batch.outputs.load_image", refuse)
    assert run_batch(listed, None, tmp_path, CONFIG, formats=["html"]).computed == 0
    assert "pictures/" not in (tmp_path / "index.html").read_text()

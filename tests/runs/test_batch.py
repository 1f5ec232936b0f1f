"""Batches: rows, failures, resuming, order, memory."""

import csv
import hashlib
import json
import os
import threading
import weakref

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch.cli.app import app
from manymatch.datasets import Pair, exhaustive_pairs, read_pairs
from manymatch.evaluate import pose_auc
from manymatch.features.extractor import Extractor
from manymatch.geometry.camera import Camera
from manymatch.io import load_graph, load_image
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.runs import batch
from manymatch.runs import tables as _batch_tables
from manymatch.runs.batch import run_batch
from manymatch.runs.rows import COLUMNS, TIMING_COLUMNS
from manymatch.runs.views import Views, turned_back
from tests.support.synthetic_images import HEIGHT, WIDTH, make_images, texture

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cv2")

CONFIG = MatcherConfig.of(
    "classic", max_keypoints=150, longest=160, min_iterations=100, max_iterations=300
)
FLAGS = ["--preset", "classic", "--max-keypoints", "150", "--set", "longest=160"]
FLAGS += ["--set", "min_iterations=100", "--set", "max_iterations=300"]
FOCAL = 130.0
K = f"{FOCAL} 0 {(WIDTH - 1) / 2} 0 {FOCAL} {(HEIGHT - 1) / 2} 0 0 1"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    make_images(folder, 7)
    return folder


@pytest.fixture(scope="module")
def pairs(images):
    return exhaustive_pairs(images)


def rows(folder, timing=False):
    with (folder / "pairs.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    if not timing:
        for row in found:
            for name in TIMING_COLUMNS:
                del row[name]
    return found


@pytest.fixture(scope="module")
def done(pairs, tmp_path_factory):
    """A run from beginning to end, in one thread."""
    folder = tmp_path_factory.mktemp("done")
    summary = run_batch(CONFIG, pairs, folder, workers=1)
    return folder, summary


def test_every_pair_is_a_row(done, pairs):
    folder, summary = done
    table = rows(folder, timing=True)
    assert [(row["name0"], row["name1"]) for row in table] == [(p.name0, p.name1) for p in pairs]
    assert [row["index"] for row in table] == [str(i) for i in range(len(pairs))]
    assert list(table[0]) == list(COLUMNS)
    assert summary.finished == summary.total == summary.computed == len(pairs)
    assert sum(summary.counts.values()) == len(pairs)
    assert summary.with_pose == sum(row["success"] == "true" for row in table) > 0
    assert summary.auc is None
    assert {row["camera0_source"] for row in table} == {"guessed"}
    assert summary.notes[0].startswith("In 21 of 21 pairs a focal length is guessed")


def test_rows_are_what_the_matcher_says(done, pairs):
    row = rows(done[0])[3]
    result = Matcher(CONFIG).match(pairs[3].path0, pairs[3].path1)
    assert row["verdict"] == result.confidence.verdict
    assert row["reason"] == result.confidence.reason
    assert int(row["candidates"]) == result.graph.num_edges
    assert int(row["inliers"]) == result.estimate.num_inliers
    assert int(row["matches"]) == len(result.estimate.matches)
    assert float(row["hcm"]) == result.estimate.hcm
    assert float(row["mean_probability"]) == result.estimate.match_probability.mean()
    R = [float(row[f"R{i}{j}"]) for i in range(3) for j in range(3)]
    assert result.estimate.pose.R.ravel().tolist() == R
    assert [float(row[f"t{i}"]) for i in range(3)] == result.estimate.pose.t.tolist()


def test_parquet_holds_the_same(done):
    folder, summary = done
    table = parquet.read_table(folder / "pairs.parquet")
    assert table.column_names == list(COLUMNS)
    for row, other in zip(table.to_pylist(), rows(folder, timing=True), strict=True):
        for name, kind in COLUMNS.items():
            text = other[name]
            if text == "":
                assert row[name] is None
            elif kind is bool:
                assert row[name] is (text == "true")
            else:
                assert row[name] == kind(text)
    header = json.loads(table.schema.metadata[b"manymatch"])
    assert header["config"]["features"]["max_keypoints"] == 150
    assert header["versions"]["manymatch"]
    assert summary.files == (folder / "pairs.csv", folder / "pairs.parquet")


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_do_not_matter(done, pairs, tmp_path, workers):
    run_batch(CONFIG, pairs, tmp_path, workers=workers)
    assert rows(tmp_path) == rows(done[0])


def test_a_batch_in_parts_is_the_same(done, pairs, tmp_path):
    seen = []
    for limit in (1, 4, 11, None, None):
        summary = run_batch(CONFIG, pairs, tmp_path, workers=2, limit=limit, progress=seen.append)
        assert summary.finished == summary.total == (limit or len(pairs))
    assert summary.computed == 0
    assert rows(tmp_path) == rows(done[0])
    journal = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["index"] for line in journal[1:]) == list(range(len(pairs)))
    assert [p.finished for p in seen if p.seconds_left is None] == [0, 1, 4, 11]
    assert all(p.seconds_left >= 0 for p in seen if p.seconds_left is not None)
    assert seen[-1].finished == len(pairs)


def test_a_bad_pair_is_a_row(tmp_path):
    folder = tmp_path / "views"
    make_images(folder, 2)
    (folder / "text.png").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    import PIL.Image

    PIL.Image.new("L", (1, 1)).save(folder / "dot.png")
    (tmp_path / "list.txt").write_text(
        "view000.png missing.png\ntext.png view000.png\nview000.png empty.png\n"
        "view000.png dot.png\ndot.png dot.png\nview000.png view001.png\n"
        f"view000.png view001.png 0 0 {K.replace('59.5', '4000')} {K} "
        "1 0 0 1 0 1 0 0 0 0 1 0 0 0 0 1\n"
    )
    pairs = read_pairs(tmp_path / "list.txt", folder)
    summary = run_batch(CONFIG, pairs, tmp_path / "out", workers=2, compare=True)
    table = rows(tmp_path / "out")
    assert [row["verdict"] == "error" for row in table] == [1, 1, 1, 0, 0, 0, 1]
    assert summary.counts["error"] == 4
    for row, words in zip(
        table, ["no such file", "no format", "empty", None, None, None, "camera0"], strict=True
    ):
        if words is None:
            assert row["error"] == ""
        else:
            assert words in row["error"]
            assert row["success"] == "false"
    for row in table[3:5]:
        assert (row["verdict"], row["success"]) == ("failed", "false")
        assert row["failure"]
    # A pair that could not be tried counts as missed where the pose is known.
    assert float(table[6]["pose_error_deg"]) == 180
    assert summary.auc == (0, 0, 0)


def test_errors_can_be_tried_again(tmp_path):
    folder = tmp_path / "views"
    names = make_images(folder, 3)
    (tmp_path / "list.txt").write_text(f"{names[0]} {names[1]}\n{names[0]} {names[2]}\n")
    pairs = read_pairs(tmp_path / "list.txt", folder)
    content = pairs[0].path1.read_bytes()
    pairs[0].path1.unlink()
    out = tmp_path / "out"
    assert run_batch(CONFIG, pairs, out).counts["error"] == 1
    pairs[0].path1.write_bytes(content)
    assert run_batch(CONFIG, pairs, out).computed == 0
    summary = run_batch(CONFIG, pairs, out, retry_errors=True)
    assert (summary.computed, summary.counts["error"]) == (1, 0)
    run_batch(CONFIG, pairs, tmp_path / "fresh")
    assert rows(out) == rows(tmp_path / "fresh")


def test_known_poses_are_compared(images, tmp_path):
    T = "1 0 0 -1 0 1 0 -0.5 0 0 1 0 0 0 0 1"
    (tmp_path / "list.txt").write_text(
        f"view000.png view002.png 0 0 {K} {K} {T}\nview001.png view002.png\n"
        f"view001.png view003.png 0 0 {K} {K} {T}\n"
    )
    pairs = read_pairs(tmp_path / "list.txt", images)
    summary = run_batch(CONFIG, pairs, tmp_path / "out", compare=True)
    table = rows(tmp_path / "out")
    assert [row["camera0_source"] for row in table] == ["given", "guessed", "given"]
    errors = [float(table[i]["pose_error_deg"]) for i in (0, 2)]
    assert table[1]["pose_error_deg"] == ""
    assert summary.auc == tuple(pose_auc(errors))
    assert summary.rank_one_auc is not None
    for row in (table[0], table[2]):
        parts = float(row["rotation_error_deg"]), float(row["translation_error_deg"])
        assert float(row["pose_error_deg"]) == max(parts)
        assert row["rank_one_matches"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": MatcherConfig.of(CONFIG, k=3)}, r"config\.association\.k was 5 and is 3 now"),
        ({"config": MatcherConfig.of(CONFIG, seed=1)}, r"config\.estimation\.seed was 0 and is 1"),
        ({"config": MatcherConfig.of(CONFIG, method="cm")}, r'method was "auto" and is "cm" now'),
        ({"config": MatcherConfig.of(CONFIG, without=["ranks"])}, r'without was null and is \["ra'),
        ({"pairs": slice(0, 5)}, "pair_count was 21 and is 5 now"),
        ({"pairs": slice(None, None, -1)}, "the pair list was another one"),
        ({"compare": True}, "compare was false and is true now"),
        ({"cameras": "130,130,59.5,44.5"}, "cameras was null"),
    ],
)
def test_another_batch_is_refused(done, pairs, change, says):
    before = (done[0] / "journal.jsonl").read_bytes()
    chosen = pairs[change.pop("pairs", slice(None))]
    config = change.pop("config", CONFIG)
    with pytest.raises(ValueError, match=says):
        run_batch(config, chosen, done[0], **change)
    assert (done[0] / "journal.jsonl").read_bytes() == before


def test_the_same_names_elsewhere_are_refused(done, pairs, tmp_path):
    moved = [Pair(p.name0, p.name1, tmp_path / p.name0, tmp_path / p.name1) for p in pairs]
    with pytest.raises(ValueError, match="the image folder was another one"):
        run_batch(CONFIG, moved, done[0])


def test_threads_and_labels_are_no_other_batch(done, pairs):
    import dataclasses

    config = dataclasses.replace(MatcherConfig.of(CONFIG, threads=2), preset="mine")
    assert run_batch(config, pairs, done[0]).computed == 0


def test_what_the_method_wants_may_be_said(done, pairs):
    config = MatcherConfig.of(CONFIG, method="auto", gms=False, keep=None)
    assert run_batch(config, pairs, done[0]).computed == 0


def as_before_auto(folder):
    """Give the journal of a batch the header that such a batch had before there was "auto"."""
    path = folder / "journal.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    header = json.loads(first)
    options = MatcherConfig.of(CONFIG).options.to_dict()
    del options["threads"], options["without"]
    header["config"] = {
        "features": header["config"]["features"],
        "association": {
            "k": 5, "operator": "mutual", "max_edges": 2048, "gms": True, "keep": 1024,
        },
        "estimation": {"method": "hcm-mcm", **options},
    }  # fmt: skip
    text = json.dumps(header["config"], sort_keys=True).encode() + b"\n"
    header["config_hash"] = hashlib.sha256(text).hexdigest()
    rows = [json.loads(line) for line in others]
    for row in rows:
        assert row.pop("mean_probability", None) is None
    path.write_text("".join(json.dumps(entry) + "\n" for entry in (header, *rows)))


def test_a_batch_of_before_auto_goes_on_with_its_method(pairs, tmp_path):
    paper = MatcherConfig.of(CONFIG, method="hcm-mcm")
    run_batch(paper, pairs, tmp_path, limit=2)
    as_before_auto(tmp_path)
    with pytest.raises(ValueError, match=r'estimation\.method was "hcm-mcm" and is "auto" now'):
        run_batch(CONFIG, pairs, tmp_path, limit=3)
    assert run_batch(paper, pairs, tmp_path, limit=3).computed == 1
    assert [row["mean_probability"] for row in rows(tmp_path)] == ["", "", ""]


def test_cameras_for_all(pairs, tmp_path):
    run_batch(CONFIG, pairs, tmp_path, limit=2, cameras="130,130,59.5,44.5")
    for row in rows(tmp_path):
        assert (row["camera0_source"], row["focal1_px"]) == ("given", "130.0")


def test_a_camera_that_does_not_fit_is_a_row(pairs, tmp_path):
    camera = Camera("PINHOLE", 640, 480, [500, 500, 320, 240])
    with_own = Pair("a", "b", pairs[0].path0, pairs[0].path1, *[Camera.from_matrix(_matrix())] * 2)
    run_batch(CONFIG, [*pairs[:1], with_own], tmp_path, cameras=camera)
    table = rows(tmp_path)
    assert "640" in table[0]["error"]
    assert table[1]["error"] == ""


def _matrix():
    return [[FOCAL, 0, 59.5], [0, FOCAL, 44.5], [0, 0, 1]]


def test_matches_are_written(done, pairs, tmp_path):
    run_batch(CONFIG, pairs, tmp_path, limit=3, matches=True)
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
    run_batch(CONFIG, [pair], tmp_path, matches=True)
    (path,) = (tmp_path / "matches").iterdir()
    assert path.parent == tmp_path / "matches"
    assert path.name.startswith("000000_")


def test_names_that_are_no_text(images, tmp_path):
    """File systems take any bytes; tables do not."""
    content = (images / "view000.png").read_bytes()
    for name in (b"\xff.png", b"\xfe.png"):
        (tmp_path / os.fsdecode(name)).write_bytes(content)
    summary = run_batch(CONFIG, exhaustive_pairs(tmp_path), tmp_path / "out", matches=True)
    assert len(summary.files) == 2
    assert summary.counts["error"] == 0
    assert rows(tmp_path / "out")[0]["name0"] == "\\udcfe.png"


def test_each_image_is_read_once(pairs, tmp_path, monkeypatch):
    calls = []
    original = Extractor.extract
    monkeypatch.setattr(
        Extractor,
        "extract",
        lambda self, image, **how: calls.append(1) or original(self, image, **how),
    )
    run_batch(CONFIG, pairs, tmp_path, workers=3)
    assert len(calls) == 7


def test_features_are_found_again_on_disk(done, pairs, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    for _ in range(2):
        run_batch(CONFIG, pairs, tmp_path / "out", limit=3, cache=tmp_path / "cache")
        assert rows(tmp_path / "out") == rows(done[0])[:3]
        (tmp_path / "out" / "journal.jsonl").unlink()
        monkeypatch.setattr(Extractor, "_detect", None)


def test_memory_is_bounded(tmp_path, monkeypatch):
    """Without a budget only the features of the pairs in work are alive."""
    make_images(tmp_path / "views", 8)
    alive, most, lock = set(), [0], threading.Lock()
    original = Extractor.extract

    def extract(self, image):
        features = original(self, image)
        # Descriptors are handed on as they are, whatever wraps them.
        key = object()
        with lock:
            alive.add(key)
            most[0] = max(most[0], len(alive))
        weakref.finalize(features.descriptors, alive.discard, key)
        return features

    monkeypatch.setattr(Extractor, "extract", extract)
    pairs = exhaustive_pairs(tmp_path / "views")
    assert len(pairs) == 28
    run_batch(CONFIG, pairs, tmp_path / "out", workers=2, memory_mb=0)
    # Two images a worker, and one that is just being replaced.
    assert most[0] <= 6
    assert not alive


def test_kept_features_stay_within_their_budget(pairs):
    matcher = Matcher(CONFIG)
    size = Views(matcher, 0).get(pairs[0].path0, 0).nbytes
    views = Views(matcher, int(2.5 * size))
    paths = sorted({pair.path0 for pair in pairs})
    references = {path: weakref.ref(views.get(path, 0)) for path in paths}
    assert sum(reference() is not None for reference in references.values()) <= 3
    latest = views.get(paths[-1], 0)
    assert views.get(paths[-1], 0) is latest


def test_tiles_keep_images_together(tmp_path):
    """Going through all pairs, few images come in however small the memory is."""
    paths = [tmp_path / str(i) for i in range(90)]
    pairs = [Pair(str(i), str(j), paths[i], paths[j]) for i in range(90) for j in range(i + 1, 90)]

    def loads(order, kept=60):
        recent, count = {}, 0
        for index in order:
            for path in (pairs[index].path0, pairs[index].path1):
                count += path not in recent
                recent.pop(path, None)
                recent[path] = None
                if len(recent) > kept:
                    del recent[next(iter(recent))]
        return count

    order = batch.tiled(range(len(pairs)), pairs)
    assert sorted(order) == list(range(len(pairs)))
    assert loads(order) <= 240 < loads(range(len(pairs))) / 5


@pytest.mark.parametrize("turns", range(4))
def test_turned_back_undoes_rot90(turns):
    image = np.arange(5 * 7).reshape(5, 7)
    turned = np.rot90(image, turns)
    y, x = np.mgrid[: turned.shape[0], : turned.shape[1]]
    points = np.column_stack([x.ravel(), y.ravel()]).astype(float)
    back = turned_back(points, turns, (7, 5)).astype(int)
    assert np.array_equal(image[back[:, 1], back[:, 0]], turned.ravel())


def test_quarter_turns_change_the_features_not_the_frame(tmp_path):
    """An image stored on its side: turning it upright finds the pose of the image as stored."""
    from PIL import Image

    from manymatch.evaluate import rotation_error_deg

    # Wide enough apart that a pose is well defined, and in a plane that is not parallel.
    upright = texture(3, 200, 150)
    Image.fromarray(upright).save(tmp_path / "a.png")
    # Stored turned clockwise, so one counter-clockwise turn puts it upright.
    Image.fromarray(np.rot90(upright, 3)).save(tmp_path / "b.png")
    focal = 200.0
    camera0 = Camera("PINHOLE", 200, 150, [focal, focal, 99.5, 74.5])
    camera1 = Camera("PINHOLE", 150, 200, [focal, focal, 74.5, 99.5])
    paths = tmp_path / "a.png", tmp_path / "b.png"
    config = MatcherConfig.of("classic", max_keypoints=300, longest=0, gms=False)
    found = []
    for turns in (0, 1):
        pair = Pair("a", "b", *paths, camera0, camera1, rot1=turns)
        run_batch(config, [pair], tmp_path / f"out{turns}", matches=True)
        (path,) = (tmp_path / f"out{turns}" / "matches").iterdir()
        found.append(load_graph(path))
        (row,) = rows(tmp_path / f"out{turns}")
        # In the frames as stored the second camera is turned by 90 degrees, whatever is matched.
        R = np.array([float(row[f"R{i}{j}"]) for i in range(3) for j in range(3)]).reshape(3, 3)
        clockwise = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
        assert rotation_error_deg(R, clockwise) < 2
    graph = found[1]
    matched0 = graph.points0[graph.edges[:, 0]]
    matched1 = graph.points1[graph.edges[:, 1]]
    assert len(matched0) > 50
    # Exactly the same keypoints, as the turned image is the upright one; but for a few, since a
    # camera that only turns leaves the direction of its epipolar lines open.
    expected = np.column_stack([149 - matched0[:, 1], matched0[:, 0]])
    assert np.mean(np.abs(matched1 - expected).max(axis=1) < 1e-6) > 0.9
    assert load_image(paths[1]).shape == (200, 150, 3)


def test_without_pyarrow_there_is_csv(pairs, tmp_path, monkeypatch):
    def absent():
        raise ModuleNotFoundError('a Parquet table needs pyarrow: pip install "manymatch[tables]"')

    monkeypatch.setattr(batch, "require_pyarrow", absent)
    summary = run_batch(CONFIG, pairs, tmp_path, limit=1)
    assert summary.files == (tmp_path / "pairs.csv",)
    assert "manymatch[tables]" in summary.notes[0]
    assert not (tmp_path / "pairs.parquet").exists()


def test_long_tables_come_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(_batch_tables, "_CHUNK", 3)
    table = [{"index": i, "seed": 2**64 - 1, "name0": 'a,"b"\n'} for i in range(8)]
    columns = {"index": int, "seed": int, "name0": str, "chance": float}
    _batch_tables.write_parquet(tmp_path / "t.parquet", columns, lambda: iter(table), {})
    _batch_tables.write_csv(tmp_path / "t.csv", columns, lambda: iter(table))
    whole = [{**row, "chance": None} for row in table]
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == whole
    with (tmp_path / "t.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert [row["name0"] for row in texts] == [row["name0"] for row in table]
    assert texts[0]["seed"] == str(2**64 - 1)


def test_a_full_disk_ends_the_run(pairs, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("manymatch.runs.batch.write_matches_npz", full)
    with pytest.raises(OSError, match="No space left"):
        run_batch(CONFIG, pairs, tmp_path, matches=True, workers=2)
    # Nothing was finished, so nothing is missing when it goes on.
    monkeypatch.undo()
    assert run_batch(CONFIG, pairs, tmp_path, matches=True, limit=2).computed == 2


@pytest.mark.parametrize(
    "change",
    [{"pairs": []}, {"pairs": ["a"]}, {"workers": -1}, {"limit": 0}, {"memory_mb": -1}],
)
def test_bad_arguments(pairs, tmp_path, change):
    chosen = change.pop("pairs", pairs)
    with pytest.raises(ValueError, match=r"^(pairs|workers|limit|memory_mb) must be"):
        run_batch(CONFIG, chosen, tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def command(*arguments):
    return CliRunner().invoke(app, ["batch", *map(str, arguments)])


def test_command_over_a_folder(done, images, tmp_path):
    result = command(images, "--out", tmp_path, *FLAGS, "--limit", 6)
    assert result.exit_code == 0, result.output
    assert "6 of 6 pairs" in result.stdout
    assert "6/6 pairs" in result.stderr
    assert rows(tmp_path) == rows(done[0])[:6]
    again = command(images, "--out", tmp_path, *FLAGS, "--limit", 7, "--json")
    record = json.loads(again.stdout)
    assert (record["finished"], record["computed"], record["interrupted"]) == (7, 1, False)
    assert json.loads((tmp_path / "summary.json").read_text())["config"]["features"]["longest"]


def test_command_with_a_list(images, tmp_path):
    T = "1 0 0 -1 0 1 0 -0.5 0 0 1 0 0 0 0 1"
    (tmp_path / "list.txt").write_text(f"view000.png view002.png 0 0 {K} {K} {T}\n")
    arguments = (tmp_path / "list.txt", "--images", images, "--out", tmp_path / "out", *FLAGS)
    result = command(*arguments, "--compare", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "pose AUC" in result.stdout
    assert "rank-one" in result.stdout


def test_command_without_a_single_pose(tmp_path):
    (tmp_path / "list.txt").write_text("a.png b.png\n")
    result = command(tmp_path / "list.txt", "--out", tmp_path / "out", *FLAGS)
    assert result.exit_code == 1
    assert "1 error" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.txt"], "there is no such file"),
        (["views", "--images", "views"], "--images must be left out"),
        (["views", "--k", "0"], "k must be"),
        (["views", "--set", "nonsense=3"], "settings must be among"),
        (["views", "--set", "device=cpu"], "--set must name a setting"),
        (["views", "--set", "q"], "--set must be followed by name=value"),
        (["views", "--config", "c.toml"], "--preset and --config"),
        (["empty"], "at least two images"),
        (["views", "--out", "file"], "out must be a folder"),
    ],
)
def test_command_with_bad_input(images, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "views").symlink_to(images)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    result = command(*arguments, "--preset", "classic")
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()

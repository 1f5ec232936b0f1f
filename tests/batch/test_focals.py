"""One focal length for each camera of a run: groups, combination, two passes, resuming."""

import dataclasses
import math
import shutil
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manymatch.matcher.matcher as matcher_module
from manymatch import Camera
from manymatch.batch import CAMERA_PER
from manymatch.batch.batch import run_batch
from manymatch.batch.focals import (
    FirstPass,
    camera_group,
    combined,
    focal_row,
    is_shared,
    shared_focals,
)
from manymatch.batch.parts import RunInterrupted
from manymatch.io.pairs import exhaustive_pairs
from tests.support.small_batch import CONFIG, assert_same, rows
from tests.support.synthetic_images import make_images

WIDE, UPRIGHT = Camera.unknown(640, 480), Camera.unknown(480, 640)
ZOOMED = Camera.unknown(640, 480, 900, 0.05)
SAID = st.lists(
    st.tuples(st.floats(5.0, 8.0), st.floats(0.001, 0.3)), min_size=1, max_size=12, unique=True
)


# ---------------------------------------------------------------- which images have one camera


def test_groups():
    assert camera_group("image", "in/a.jpg", WIDE) == "in/a.jpg"
    assert camera_group("pair", "in/a.jpg", WIDE) == "in/a.jpg"
    for per in ("folder", "all"):
        group = camera_group(per, "in/a.jpg", WIDE)
        assert group == camera_group(per, "in/b.jpg", WIDE) == camera_group(per, "in/c", UPRIGHT)
        assert group != camera_group(per, "in/b.jpg", ZOOMED)
        assert group != camera_group(per, "in/b.jpg", Camera.unknown(640, 427, 640))
    assert camera_group("folder", "in/a.jpg", WIDE) != camera_group("folder", "b.jpg", WIDE)
    assert camera_group("all", "in/a.jpg", WIDE) == camera_group("all", "b.jpg", WIDE)
    for per in CAMERA_PER:
        assert camera_group(per, "a", WIDE.with_focal(500)) is None


def test_which_pairs_share():
    names = ("in/a.jpg", "in/b.jpg")
    assert is_shared("pair", names, (WIDE, WIDE)) is None
    assert is_shared("image", names, (WIDE, WIDE)) is False
    assert is_shared("folder", names, (WIDE, UPRIGHT)) is True
    assert is_shared("folder", names, (WIDE, ZOOMED)) is False
    assert is_shared("folder", ("in/a.jpg", "out/a.jpg"), (WIDE, WIDE)) is False
    assert is_shared("all", names, (WIDE, WIDE.with_focal(500))) is None


# ---------------------------------------------------------------- what pairs say together


def test_pairs_that_agree_are_averaged_by_their_variances():
    rng = np.random.default_rng(0)
    sigma = rng.uniform(0.01, 0.1, 400)
    said = list(zip(math.log(800.0) + sigma * rng.normal(size=400), sigma, strict=True))
    focal, deviation = combined(said)
    weight = 1.0 / (sigma**2 + 0.005**2)
    mean = math.exp(np.average([x for x, _ in said], weights=weight))
    assert focal == pytest.approx(mean, rel=0.002)
    assert focal == pytest.approx(800.0, rel=0.01)
    # Many pairs do not remove what all have in common.
    assert deviation / focal == pytest.approx(0.005, rel=0.2)


def test_a_few_wrong_pairs_hardly_count():
    rng = np.random.default_rng(1)
    right = [(math.log(800.0) + 0.02 * rng.normal(), 0.02) for _ in range(10)]
    wrong = [(math.log(1500.0), 0.01), (math.log(300.0), 0.01), (math.log(1700.0), 0.005)]
    assert combined(right + wrong)[0] == pytest.approx(800.0, rel=0.03)


def test_pairs_that_disagree_leave_a_larger_deviation():
    close = combined([(6.6, 0.01), (6.61, 0.01)])
    far = combined([(6.5, 0.01), (6.71, 0.01)])
    assert far[1] > 3 * close[1]


@given(SAID, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(said, random):
    focal, deviation = combined(said)
    random.shuffle(said)
    assert combined(said) == (focal, deviation)
    assert math.log(focal) <= max(x for x, _ in said) + 1e-9
    assert math.log(focal) >= min(x for x, _ in said) - 1e-9
    assert deviation > 0.0


def row(index=0, groups=("a", "a"), focal=900.0, sd=20.0, prior=640.0, sigma=0.5):
    """The row of a pair that determines the focal lengths of its images, as found."""
    own = {"camera": groups, "own_focal": focal, "sd": sd, "prior": prior, "sigma": sigma}
    columns = {"index": index, "success": True, "focal_determined": True}
    for side in (0, 1):
        columns |= {
            f"camera{side}_group": own["camera"][side],
            f"focal{side}_px": focal,
            f"focal{side}_sd_px": sd,
            f"own_focal{side}_px": focal,
            f"own_focal{side}_sd_px": sd,
            f"prior_focal{side}_px": prior,
            f"prior_sigma{side}": sigma,
        }
    return columns


def test_a_prior_counts_once():
    """Pairs that have seen a narrow prior do not repeat it."""
    prior, sigma, truth, noise = math.log(900.0), 0.05, math.log(1000.0), 0.04
    precision = 1 / noise**2 + 1 / sigma**2
    seen = math.exp((truth / noise**2 + prior / sigma**2) / precision)
    one = row(focal=seen, sd=seen / math.sqrt(precision), prior=900.0, sigma=sigma)
    found = shared_focals([one] * 100)["a"]
    assert found.focal_px == pytest.approx(1000.0, rel=0.005)
    assert seen < 970.0


def test_groups_that_no_pair_determines_are_left_out():
    said = row(groups=("a", "b"))
    silent = {name: said[name] for name in said if not name.startswith("own_")}
    assert shared_focals([silent]) == {}
    assert set(shared_focals([silent, said])) == {"a", "b"}
    # As uncertain as before: nothing was learnt.
    assert shared_focals([row(focal=640.0, sd=0.5 * 640.0)]) == {}


def test_a_pair_of_one_camera_counts_once():
    both = shared_focals([row(groups=("a", "a"))])["a"]
    one = shared_focals([{**row(groups=("a", "b"))}])["a"]
    assert both == one


def test_second_pass():
    first = [row(0, ("a", "b"), 900.0), row(1, ("a", "c"), 930.0), row(2, ("a", "c"), 915.0)]
    first.append(row(3, ("c", "c"), 920.0))
    passed = FirstPass.of({r["index"]: r for r in first})
    assert set(passed.focals) == {"a", "c"}
    assert all(passed.is_stale(r) for r in first)
    assert passed.camera("a", WIDE).focal == passed.focals["a"].focal_px
    # One pair is not enough.
    assert passed.camera("b", WIDE) == WIDE
    assert passed.camera(None, WIDE) == WIDE
    assert 900.0 < passed.focals["a"].focal_px < 930.0
    second = {"index": 1, "success": True, "focal0_px": passed.focals["a"].focal_px}
    second["focal1_px"] = passed.focals["c"].focal_px
    new = passed.updated(1, second)
    assert not passed.is_stale(new)
    assert new["own_focal0_px"] == 930.0
    assert new["focal0_sd_px"] == passed.focals["a"].sd_px
    # What pairs say by themselves is what it was, so that a run that is continued agrees.
    again = FirstPass.of({0: first[0], 1: new, 2: first[2], 3: first[3]})
    assert again.focals == passed.focals
    unknown = {"index": 4, "success": True, "focal0_px": 500.0, "focal1_px": 500.0}
    assert not passed.is_stale(unknown)


def test_pairs_that_disagree_are_left_alone():
    agreeing = [row(k, ("a", "a"), 900.0 + k) for k in range(3)]
    assert set(FirstPass.of(dict(enumerate(agreeing))).focals) == {"a"}
    assert FirstPass.of(dict(enumerate(agreeing[:2]))).focals == {}
    apart = [row(k, ("a", "a"), f, 40.0) for k, f in enumerate((400.0, 700.0, 1100.0, 1900.0))]
    assert shared_focals(apart)["a"].pairs == 4
    assert FirstPass.of(dict(enumerate(apart))).focals == {}


# ---------------------------------------------------------------- batches


@pytest.fixture
def listed(tmp_path):
    """All pairs of the four images of either of two folders."""
    pytest.importorskip("cv2")
    make_images(tmp_path / "images" / "one", 4)
    make_images(tmp_path / "images" / "two", 4)
    return list(exhaustive_pairs(tmp_path / "images" / "one")) + [
        dataclasses.replace(pair, name0=f"two/{pair.name0}", name1=f"two/{pair.name1}")
        for pair in exhaustive_pairs(tmp_path / "images" / "two")
    ]


@pytest.fixture
def determined(monkeypatch):
    """Planes say nothing of focal lengths; let every pair find one that depends on its graph."""
    plain = matcher_module.estimate_relative_pose

    def estimate(graph, camera0, camera1, *arguments, shared_focal=None, **settings):
        given = (camera0, camera1)
        rng = np.random.default_rng(graph.num_edges)
        shared = rng.normal()
        cameras = [
            camera
            if camera.known_focal
            else camera.with_focal(
                150.0 * math.exp(0.02 * (shared if shared_focal else rng.normal()))
            )
            for camera in given
        ]
        found = plain(graph, *cameras, *arguments, **settings)
        if all(camera.known_focal for camera in given) or not found.success:
            return found
        return dataclasses.replace(
            found,
            focal_sd_px=tuple(0.0 if c.known_focal else 3.0 for c in given),
            focal_determined=True,
        )

    monkeypatch.setattr(matcher_module, "estimate_relative_pose", estimate)
    monkeypatch.setattr("manymatch.batch.work.trusted", lambda *_: True)


def focals(folder):
    return [(float(r["focal0_px"]), float(r["focal1_px"])) for r in rows(folder)]


@pytest.mark.usefixtures("determined")
def test_pairs_of_a_batch_share_focal_lengths(listed, tmp_path):
    run_batch(listed, None, tmp_path / "pair", CONFIG, workers=1)
    alone = focals(tmp_path / "pair")
    assert len(set(alone)) > 2
    for per, number in (("image", 8), ("folder", 2), ("all", 1)):
        run_batch(listed, None, tmp_path / per, CONFIG, workers=1, camera_per=per)
        found = rows(tmp_path / per)
        by_group = {}
        for one in found:
            for side in (0, 1):
                value = one[f"focal{side}_px"], one[f"focal{side}_sd_px"]
                by_group.setdefault(one[f"camera{side}_group"], set()).add(value)
                assert one[f"own_focal{side}_px"]
        assert len(by_group) == number
        assert all(len(values) == 1 for values in by_group.values())
        spread = np.std(np.log([f for pair in focals(tmp_path / per) for f in pair]))
        assert spread < np.std(np.log([f for pair in alone for f in pair]))


@pytest.mark.usefixtures("determined")
def test_a_shared_batch_is_the_same_however_it_is_run(listed, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    summary = run_batch(
        listed, None, whole, CONFIG, workers=1, camera_per="folder", formats=["npz"]
    )
    assert summary.computed == len(listed)
    run_batch(listed, None, parts, CONFIG, workers=2, camera_per="folder", limit=2, formats=["npz"])
    few = focals(parts)
    run_batch(listed, None, parts, CONFIG, workers=3, camera_per="folder", formats=["npz"])
    assert rows(parts) == rows(whole)
    # More pairs say something else, and the first ones were done again.
    assert focals(parts)[:2] != few
    again = run_batch(listed, None, whole, CONFIG, camera_per="folder", formats=["npz"])
    assert again.computed == 0
    with pytest.raises(ValueError, match='camera_per was "folder" and is "all" now'):
        run_batch(listed, None, whole, CONFIG, camera_per="all", formats=["npz"])
    with pytest.raises(ValueError, match=r"^camera_per must be one of 'pair', .*, got 'each'"):
        run_batch(listed, None, whole, CONFIG, camera_per="each")


@pytest.fixture
def sampled(monkeypatch):
    """Let every second pair decide about focal lengths."""
    monkeypatch.setattr("manymatch.batch.batch._SAMPLE", 6)
    monkeypatch.setattr("manymatch.batch.batch._SAMPLE_SIGMA", 0.05)


@pytest.mark.usefixtures("determined", "sampled")
def test_a_sample_of_many_pairs_decides_about_their_focal_length(listed, tmp_path):
    how = {"camera_per": "all", "block": 1}
    run_batch(listed, None, tmp_path / "whole", CONFIG, workers=1, **how)
    found = rows(tmp_path / "whole")
    assert len({value for pair in focals(tmp_path / "whole") for value in pair}) == 1
    assert sum(one["own_focal0_px"] != "" for one in found) == 6
    assert len({one["camera0_group"] for one in found}) == 1
    assert len(list((tmp_path / "whole" / "parts").glob("*.parquet"))) == 6

    def stop(progress):
        if progress.finished == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(RunInterrupted):
        run_batch(listed, None, tmp_path / "parts", CONFIG, workers=1, progress=stop, **how)
    for _ in range(2):
        summary = run_batch(listed, None, tmp_path / "parts", CONFIG, workers=2, **how)
    assert summary.computed == 0
    assert_same(tmp_path / "parts", tmp_path / "whole")
    next((tmp_path / "parts").glob("parts-*/000000.parquet")).unlink()
    summary = run_batch(listed, None, tmp_path / "parts", CONFIG, workers=2, **how)
    assert summary.computed == 1


@pytest.mark.usefixtures("determined")
@pytest.mark.parametrize("reason", ["inexact", "unseen camera"])
def test_all_pairs_decide_where_a_sample_is_not_enough(listed, tmp_path, monkeypatch, reason):
    how = {"workers": 1, "camera_per": "folder", "block": 1}
    run_batch(listed, None, tmp_path / "whole", CONFIG, **how)
    if reason == "inexact":
        monkeypatch.setattr("manymatch.batch.batch._SAMPLE", 6)
    else:
        first = [place for place, one in enumerate(listed) if "two/" not in one.name0][:4]
        monkeypatch.setattr("manymatch.batch.batch._SAMPLE_SIGMA", 0.05)
        monkeypatch.setattr("manymatch.batch.batch._Batch._sample", lambda _: first)
    run_batch(listed, None, tmp_path / "sampled", CONFIG, **how)
    assert rows(tmp_path / "sampled") == rows(tmp_path / "whole")


@pytest.mark.usefixtures("determined")
def test_shards_share_focal_lengths(listed, tmp_path):
    """They are run and joined twice, as all pairs decide about focal lengths."""
    whole, joined = tmp_path / "whole", tmp_path / "joined"
    how = {"camera_per": "folder", "formats": ["npz"]}
    run_batch(listed, None, whole, CONFIG, workers=1, **how)
    for repeated in (False, True):
        for number in (2, 1, 3):
            out = tmp_path / f"{number}"
            if repeated:
                shutil.copytree(joined, out, dirs_exist_ok=True)
            summary = run_batch(listed, None, out, CONFIG, shard=f"{number}/3", **how)
            assert summary.computed == 4
            told = any(note.startswith("All pairs decide about") for note in summary.notes)
            assert told is not repeated
        for number in (1, 2, 3):
            shutil.copytree(tmp_path / f"{number}", joined, dirs_exist_ok=True)
    assert run_batch(listed, None, joined, CONFIG, **how).computed == 0
    assert_same(joined, whole)


@pytest.mark.usefixtures("determined")
def test_interrupted_second_pass_is_continued(listed, tmp_path):
    run_batch(listed, None, tmp_path / "whole", CONFIG, workers=1, camera_per="all")

    def stop(progress):
        if progress.label and progress.finished == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(RunInterrupted):
        run_batch(
            listed, None, tmp_path / "parts", CONFIG, workers=1, camera_per="all", progress=stop
        )
    summary = run_batch(listed, None, tmp_path / "parts", CONFIG, workers=1, camera_per="all")
    assert 0 < summary.computed < len(listed)
    assert_same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.usefixtures("determined")
def test_a_database_has_one_camera_for_each_image_or_group(listed, tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    for per, number in (("pair", 8), ("image", 8), ("folder", 2), ("all", 1)):
        out = tmp_path / per
        run_batch(listed, None, out, CONFIG, workers=1, camera_per=per, formats=["colmap-db"])
        database = pycolmap.Database.open(str(out / "database.db"))
        cameras = database.read_all_cameras()
        assert len(cameras) == number
        assert not any(camera.has_prior_focal_length for camera in cameras)
        used = {round(camera.params[0], 6) for camera in cameras}
        if per != "pair":
            assert used == {round(f, 6) for pair in focals(out) for f in pair}
        # Of a pair by itself the geometry has its own focal length.
        for one in rows(out):
            images = [database.read_image_with_name(one[f"name{side}"]) for side in (0, 1)]
            geometry = database.read_two_view_geometry(*(image.image_id for image in images))
            K0, K1 = (
                Camera("SIMPLE_PINHOLE", 120, 90, [float(one[f"focal{s}_px"]), 60, 45]).K
                for s in (0, 1)
            )
            E = K1.T @ geometry.F @ K0
            np.testing.assert_allclose(
                np.abs(E / np.linalg.norm(E)),
                np.abs(geometry.E / np.linalg.norm(geometry.E)),
                atol=1e-9,
            )
        database.close()


def test_rows_without_unknown_cameras_have_no_columns_of_focal_lengths():
    known = WIDE.with_focal(500)
    assert focal_row("all", ("a", "b"), (known, known), None) == {}

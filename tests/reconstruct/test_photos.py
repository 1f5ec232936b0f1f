"""Which photographs are found, and which pairs of them are matched."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manymatch import AbsolutePose
from manymatch.features.extractor import Features
from manymatch.reconstruct.mapping import Model
from manymatch.reconstruct.pair_graph import by_number
from manymatch.reconstruct.photos import Photos, choose_pairs, find_photos, suggested_pairs
from tests.support.scenes import looking_at

cv2 = pytest.importorskip("cv2")


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


@example(["9", "010", "01"])
@given(st.lists(st.text("ab019²/-.", max_size=6), max_size=8))
def test_any_names_are_ordered_and_numbers_by_their_size(names):
    ordered = sorted(names, key=by_number)
    backwards = names[::-1]
    assert sorted(backwards, key=by_number) == ordered
    numbers = [int(name) for name in ordered if name.isascii() and name.isdigit()]
    assert numbers == sorted(numbers)


def test_images_of_folders_below_are_found_in_order(tmp_path):
    put(tmp_path, "b/10.jpg", "a.PNG", "b/9.jpg", "notes.txt", ".hidden.jpg", ".cache/3.jpg")
    (tmp_path / "link.jpg").symlink_to(tmp_path / "a.PNG")
    found = find_photos(tmp_path, tmp_path / "frames")
    assert found.names == ("a.PNG", "b/9.jpg", "b/10.jpg")
    assert not found.sequence


@pytest.mark.parametrize(
    ("names", "sequence"),
    [
        ([f"frame_{k:04d}.jpg" for k in range(12)], True),
        ([f"IMG_{3 * k}.jpg" for k in range(100, 120)], True),
        ([f"frame{k}.jpg" for k in range(1, 26)], True),
        (["a.jpg", "b.jpg", "c.jpg"], False),
        (["1.jpg", "500.jpg", "900.jpg", "4000.jpg"], False),
    ],
)
def test_numbered_names_are_a_sequence(tmp_path, names, sequence):
    assert find_photos(put(tmp_path, *names), tmp_path / "frames").sequence is sequence


@pytest.mark.parametrize(("names", "words"), [(["a.jpg"], "1 image"), (["a.jpg", "b.JPG"], "2 im")])
def test_folder_with_fewer_images_than_a_model_has_is_refused(tmp_path, names, words):
    with pytest.raises(ValueError, match=f"photos must have at least 3 images, got {words}"):
        find_photos(put(tmp_path, *names), tmp_path / "frames")


def test_photos_at_an_address_are_refused(tmp_path):
    with pytest.raises(ValueError, match="photos must be on this machine, got 'memory://photos'"):
        find_photos("memory://photos", tmp_path / "frames")


@pytest.mark.parametrize("name", ["missing", "notes.txt"])
def test_what_is_neither_folder_nor_video_is_refused(tmp_path, name):
    put(tmp_path, "notes.txt")
    with pytest.raises(ValueError, match="photos must be a folder of images or a video"):
        find_photos(tmp_path / name, tmp_path / "frames")


def test_file_that_is_no_video_is_refused(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"not a video")
    with pytest.raises(ValueError, match="photos must be a video that OpenCV can read"):
        find_photos(tmp_path / "a.mp4", tmp_path / "frames")


def write_video(path, frames, rate=10):
    height, width = frames[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), rate, (width, height))
    if not writer.isOpened():
        pytest.skip("this OpenCV writes no video")
    for frame in frames:
        writer.write(frame)
    writer.release()


def test_sharpest_frame_of_each_stretch_of_a_video_is_taken(tmp_path):
    rng = np.random.default_rng(0)
    sharp = rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)
    frames = []
    for stretch in range(4):
        for k in range(5):
            frame = sharp if k == stretch % 5 else cv2.GaussianBlur(sharp, (0, 0), 3)
            frame = frame.copy()
            frame[:40, :] = 60 * stretch  # says which stretch it is
            frames.append(frame)
    write_video(tmp_path / "walk.avi", frames)
    said = []
    found = find_photos(
        tmp_path / "walk.avi", tmp_path / "frames", progress=lambda *step: said.append(step)
    )
    assert len(found.names) == 4
    assert found.sequence
    assert said[-1] == (20, 20)
    for stretch, name in enumerate(found.names):
        frame = cv2.imread(str(found.folder / name))
        assert abs(int(frame[20, 80, 0]) - 60 * stretch) < 12
        assert cv2.Laplacian(frame[60:, :, 0], cv2.CV_64F).var() > 1000
    before = (found.folder / found.names[0]).stat().st_mtime_ns
    find_photos(tmp_path / "walk.avi", tmp_path / "frames")
    # Another video does not replace the frames that a model was made of.
    write_video(tmp_path / "other.avi", frames[::-1])
    with pytest.raises(ValueError, match="holds the frames of another video"):
        find_photos(tmp_path / "other.avi", tmp_path / "frames")
    assert (found.folder / found.names[0]).stat().st_mtime_ns == before


def test_long_video_has_at_most_the_wanted_number_of_frames(tmp_path):
    rng = np.random.default_rng(0)
    write_video(
        tmp_path / "a.avi", [rng.integers(0, 256, (64, 64, 3), np.uint8) for _ in range(60)]
    )
    found = find_photos(tmp_path / "a.avi", tmp_path / "frames", most_frames=3)
    assert len(found.names) == 3


# ------------------------------------------------------------------------------------ pairs


def photos(tmp_path, number, sequence=False):
    return Photos(tmp_path, tuple(f"{k:04d}.jpg" for k in range(number)), sequence)


def groups(number, size):
    """Features of images of which each run of `size` has descriptors of its own."""
    rng = np.random.default_rng(0)
    for group in range(number // size):
        own = rng.normal(size=(40, 16)).astype(np.float32)
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        for _ in range(size):
            points = rng.uniform(0, 100, (40, 2))
            yield (Features(points, np.ones(40, np.float32), own, (100, 100)),)
        del group


def no_features():
    pytest.fail("no features are needed")


def test_few_photographs_are_matched_all_with_all(tmp_path):
    found = choose_pairs(photos(tmp_path, 30), "auto", no_features, 20)
    assert found.tolist() == [list(pair) for pair in itertools.combinations(range(30), 2)]


def test_look_alikes_are_images_of_the_same_group(tmp_path):
    found = choose_pairs(photos(tmp_path, 100), "auto", lambda: groups(100, 5), 4)
    assert {(i // 5, j // 5) for i, j in found.tolist()} == {(k, k) for k in range(20)}
    assert len(found) == 20 * 10


def test_sequence_has_its_neighbours_and_closes_loops(tmp_path):
    def loop():
        order = list(groups(70, 2))
        return [*order, *order]  # the second half is the first one again

    found = {
        tuple(p)
        for p in choose_pairs(photos(tmp_path, 140, sequence=True), "auto", loop, 3).tolist()
    }
    assert {(k, k + step) for step in range(1, 11) for k in range(140 - step)} <= found
    assert {(k, k + 20) for k in range(120)} <= found
    assert {(k, k + 70) for k in range(70)} <= found
    assert len(found) < 140 * 20


def test_pairs_are_ordered_and_unique(tmp_path):
    found = choose_pairs(photos(tmp_path, 100), "look-alikes", lambda: groups(100, 10), 6)
    assert (found[:, 0] < found[:, 1]).all()
    assert len(np.unique(found, axis=0)) == len(found)


def ring(number):
    angles = 2 * np.pi * np.arange(number) / number
    centres = np.column_stack([np.sin(angles), np.zeros(number), -np.cos(angles)])
    return {
        f"{k:04d}.jpg": AbsolutePose(*looking_at(5 * c, [0, 0, 0])) for k, c in enumerate(centres)
    }


def test_model_suggests_cameras_that_stand_close_and_look_the_same_way(tmp_path):
    model = Model(tmp_path, ring(24), 100, 0.3, 3.0)
    names = photos(tmp_path, 24).names
    tried = np.column_stack([np.arange(23), np.arange(1, 24)])
    found = suggested_pairs(names, tried, [model], 4)
    apart = [min(j - i, 24 - (j - i)) for i, j in found.tolist()]
    assert sorted(set(apart)) == [1, 2]
    assert (0, 23) in {tuple(pair) for pair in found.tolist()}
    assert len(found) == 25


def test_only_what_no_third_photograph_joins_is_suggested(tmp_path):
    model = Model(tmp_path, ring(24), 100, 0.3, 3.0)
    names = photos(tmp_path, 24).names
    tried = np.column_stack([np.arange(23), np.arange(1, 24)])
    accepted = [(names[one], names[two]) for one, two in tried.tolist()]
    found = suggested_pairs(names, tried, [model], 4, accepted)
    # Of 25 pairs those remain that close the ring.
    assert found.tolist() == [[0, 22], [0, 23], [1, 23]]

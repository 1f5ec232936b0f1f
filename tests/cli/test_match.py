"""``manymatch match`` on what people give it: results, or one sentence and the right exit code."""

import errno
import json
import struct
import zlib

import pytest

from manymatch import _files
from manymatch.matcher.matcher import Matcher
from tests.support import command
from tests.support.command import one_sentence
from tests.support.synthetic_views import image_pair

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

QUICK = ("--preset", "classic", "--max-keypoints", "300", "--longest", "360",
         "--max-iterations", "3000")  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    pair = image_pair(size=(360, 270))
    for name, image in (("a.png", pair.image0), ("b.png", pair.image1)):
        Image.fromarray(image).save(folder / name)
    f, cx, cy = pair.camera.fx, pair.camera.cx, pair.camera.cy
    return folder, f"{f},{f},{cx},{cy}"


def run(*arguments):
    return command.run("match", *arguments)


def test_a_pair_is_printed_and_written(photos, tmp_path):
    folder, camera = photos
    out = tmp_path / "out"
    result = run(folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera,
                 "--out", out, "--with-rank-one", "--format", "npz,colmap", *QUICK)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Camera 1 is turned" in result.stdout
    assert "rank-one, plain consensus" in result.stdout
    names = {path.name for path in out.iterdir()}
    assert names == {
        "result.json", "config.toml", "matches.npz", "matches.txt", "a.png.txt", "b.png.txt",
        "matches.png", "report.html",
    }  # fmt: skip
    again = run(folder / "a.png", folder / "b.png", "--camera0", camera, "--camera1", camera,
                "--out", tmp_path / "two", "--config", out / "config.toml", "--json",
                "--no-picture", "--no-report")  # fmt: skip
    record = json.loads(again.stdout)
    assert record["pose"] == json.loads((out / "result.json").read_text())["pose"]
    assert record["config"]["features"]["max_keypoints"] == 300
    assert set(record["files"]) == {"json", "config", "npz"}


def test_guessed_cameras_are_called_guessed(photos, tmp_path):
    folder, _ = photos
    result = run(folder / "a.png", folder / "b.png", "--out", tmp_path, "--no-picture", *QUICK)
    assert result.stdout.count("is guessed") == 2


def _png(width, height):
    """A PNG that only claims its size."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such file"),
        (b"", "it is empty"),
        (b"not an image at all", "in no format"),
        (_png(100_000, 100_000), "pixels"),
    ],
)
def test_files_that_are_no_images(photos, tmp_path, content, words):
    bad = tmp_path / "bad.png"
    if content is not None:
        bad.write_bytes(content)
    for images, name in (
        ((bad, photos[0] / "a.png"), "image0"),
        ((photos[0] / "a.png", bad), "image1"),
    ):
        sentence = one_sentence(run(*images, "--out", tmp_path / "out", *QUICK))
        assert name in sentence
        assert words in sentence
        assert "bad.png" in sentence
    assert not (tmp_path / "out").exists()


def test_a_single_pixel_is_a_pair_without_a_pose(tmp_path):
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    result = run(tmp_path / "dot.png", tmp_path / "dot.png", "--out", tmp_path / "o", *QUICK)
    assert result.exit_code == 1
    assert "Failed" in result.stdout
    assert (tmp_path / "o" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--camera0", "PINHOLE,64,64,50,50,32,32"), "camera0"),
        (("--camera1", "800,800"), "camera1 must be"),
        (("--format", "xml"), "formats must be"),
        (("--detector", "harris"), "detector must be one of"),
        (("--descriptor", "resnet"), "backbone must be one of"),
        (("--config", "nowhere.toml"), "must not be given together"),
        (("--device", "abacus", "--descriptor", "efficientnet-lite0"), "device must be"),
    ],
)
def test_bad_flags_are_named(photos, tmp_path, arguments, words):
    folder, _ = photos
    out = tmp_path / "out"
    sentence = one_sentence(
        run(folder / "a.png", folder / "b.png", "--out", out, *QUICK, *arguments)
    )
    assert words in sentence
    assert not out.exists()


def test_no_space_left(photos, tmp_path, monkeypatch):
    folder, _ = photos

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_files.os, "fsync", full)
    out = tmp_path / "out"
    sentence = one_sentence(run(folder / "a.png", folder / "b.png", "--out", out, *QUICK))
    assert "No space left on device" in sentence
    assert list(out.iterdir()) == []


def test_ctrl_c(photos, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Matcher, "match", interrupted)
    out = tmp_path / "out"
    sentence = one_sentence(
        run(photos[0] / "a.png", photos[0] / "b.png", "--out", out, *QUICK), 130
    )
    assert "stopped" in sentence
    assert not out.exists()


def test_a_folder_that_cannot_be_made(photos, tmp_path):
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "out"
    assert "file" in one_sentence(
        run(photos[0] / "a.png", photos[0] / "b.png", "--out", out, *QUICK)
    )

"""Images from anywhere: every kind of pixel, the right way up, and one sentence for the rest."""

import gc
import io
import math
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest

from manymatch.io.image import exif_focal, load_image

Image = pytest.importorskip("PIL.Image")
from PIL import ImageFile, ImageOps  # noqa: E402

RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (7, 5, 3), dtype=np.uint8)
ORIENTATION = 0x0112
WIDTH, HEIGHT = 120, 80
DIAGONAL = math.hypot(WIDTH, HEIGHT)
F35, FOCAL, PLANE_X, PLANE_Y, UNIT, EXIF_WIDTH = 0xA405, 0x920A, 0xA20E, 0xA20F, 0xA210, 0xA002


def with_orientation(image, value):
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return image, exif


def test_rgb_arrays_come_back_as_a_copy():
    result = load_image(RGB)
    assert result.dtype == np.uint8
    assert result.flags.c_contiguous
    assert np.array_equal(result, RGB)
    result[:] = 0
    assert RGB.any()


@pytest.mark.parametrize("suffix", ["png", "tiff", "bmp", "webp"])
def test_files_of_lossless_formats(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(RGB).save(path, **({"lossless": True} if suffix == "webp" else {}))
    assert np.array_equal(load_image(path), RGB)
    assert np.array_equal(load_image(str(path)), RGB)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tiff"])
@pytest.mark.parametrize("value", range(1, 9))
def test_exif_orientation_of_files(tmp_path, suffix, value):
    smooth = np.kron(RNG.integers(0, 256, (2, 3, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    image, exif = with_orientation(Image.fromarray(smooth), value)
    path = tmp_path / f"a.{suffix}"
    image.save(path, exif=exif, **({"quality": 100, "subsampling": 0} if suffix == "jpg" else {}))
    image.getexif()[ORIENTATION] = value
    expected = np.asarray(ImageOps.exif_transpose(image)).astype(int)
    result = load_image(path)
    assert result.shape == expected.shape == ((24, 16, 3) if value >= 5 else (16, 24, 3))
    assert np.abs(result - expected).max() <= 3


def test_exif_orientation_of_pillow_images_and_their_pixels_stay():
    image = Image.fromarray(RGB)
    image.getexif()[ORIENTATION] = 6
    assert np.array_equal(load_image(image), np.rot90(RGB, -1))
    assert np.array_equal(np.asarray(image), RGB)
    assert image.getexif()[ORIENTATION] == 6


@pytest.mark.parametrize("value", [0, 9, "upside", 6.5])
def test_nonsense_orientation_is_none(value):
    image = Image.fromarray(RGB)
    image.getexif()[ORIENTATION] = value
    assert np.array_equal(load_image(image), RGB)


def test_unreadable_exif_does_not_matter(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(RGB).save(path, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40)
    assert load_image(path).shape == RGB.shape


def test_grey_and_bilevel():
    grey = RGB[:, :, 0]
    for given in (grey, grey[:, :, None], Image.fromarray(grey)):
        assert np.array_equal(load_image(given), np.repeat(grey[:, :, None], 3, axis=2))
    two = grey > 100
    for given in (two, Image.fromarray(two)):
        assert np.array_equal(load_image(given)[:, :, 1], np.where(two, 255, 0))


def test_alpha_is_put_on_black():
    alpha = RNG.integers(0, 256, (7, 5, 1), dtype=np.uint8)
    expected = np.rint(RGB * (alpha / 255.0))
    rgba = np.concatenate([RGB, alpha], axis=2)
    for given in (rgba, Image.fromarray(rgba)):
        assert np.array_equal(load_image(given), expected)
    grey = np.concatenate([RGB[:, :, :1], alpha], axis=2)
    result = load_image(Image.fromarray(grey))
    assert np.array_equal(result, np.repeat(expected[:, :, :1], 3, axis=2))


def test_palette_with_and_without_transparency(tmp_path):
    image = Image.fromarray(RGB).quantize(16)
    expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(load_image(image), expected)
    path = tmp_path / "a.png"
    image.save(path, transparency=int(np.asarray(image)[0, 0]))
    clear = np.asarray(image) == np.asarray(image)[0, 0]
    assert np.array_equal(load_image(path), np.where(clear[:, :, None], 0, expected))


def test_cmyk(tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(path, quality=100)
    red = load_image(path)
    assert red[..., 0].min() > 240
    assert red[..., 1:].max() < 15


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bit_frames_use_their_own_range(tmp_path, suffix):
    frame = (30_000 + 4 * np.arange(64, dtype=np.uint16)).reshape(8, 8)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(frame).save(path)
    expected = np.rint(np.arange(64) * 255 / 63).reshape(8, 8)
    for given in (path, frame, frame[:, :, None], frame.astype(">u2")):
        assert np.array_equal(load_image(given)[:, :, 2], expected)
    assert not load_image(np.full((4, 4), 40_000, np.uint16)).any()


def test_deep_files_of_floats_and_integers(tmp_path):
    values = np.linspace(-5, 90, 64).reshape(8, 8)
    expected = np.rint(np.arange(64) * 255 / 63).reshape(8, 8)
    values[3, 3], expected[3, 3] = np.nan, 0
    path = tmp_path / "a.tiff"
    Image.fromarray(values.astype(np.float32)).save(path)
    assert np.array_equal(load_image(path)[:, :, 0], expected)
    for nothing in (np.nan, np.inf):
        Image.fromarray(np.full((8, 8), nothing, np.float32)).save(path)
        assert not load_image(path).any()
    Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8) * 1000).save(path)
    assert load_image(path).max() == 255


def test_sixteen_bit_colour_and_floats_keep_their_scale():
    assert np.array_equal(load_image(RGB.astype(np.uint16) * 257), RGB)
    for dtype in (np.float16, np.float32, np.float64):
        assert np.abs(load_image((RGB / 255).astype(dtype)).astype(int) - RGB).max() == 0
    assert load_image(np.zeros((1, 1))).tolist() == [[[0, 0, 0]]]
    assert load_image(np.ones((1, 1))).tolist() == [[[255, 255, 255]]]


def test_views_that_are_not_contiguous():
    assert np.array_equal(load_image(RGB[::-1, ::2]), RGB[::-1, ::2])


BAD_ARRAYS = {
    "empty": np.zeros((0, 5, 3), np.uint8), "no width": np.zeros((5, 0), np.uint8),
    "channels first": np.zeros((3, 50, 60), np.uint8),
    "two channels": np.zeros((5, 5, 2), np.uint8), "vector": np.zeros(5, np.uint8),
    "batch": np.zeros((1, 5, 5, 3), np.uint8), "nan": np.full((5, 5), np.nan),
    "too bright": np.full((5, 5), 200.0), "negative": np.full((5, 5), -0.1),
    "int64": np.zeros((5, 5), np.int64), "uint32": np.zeros((5, 5), np.uint32),
    "complex": np.zeros((5, 5), complex), "objects": np.full((5, 5), None),
    "text": np.full((5, 5), "a"), "masked": np.ma.masked_equal(RGB, RGB[0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("array", BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_bad_arrays_are_named(array):
    with pytest.raises(ValueError, match=r"^image1 must .*got") as caught:
        load_image(array, "image1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [None, 3, b"a.png", "", [[0, 1]], object()])
def test_other_things_are_named(source):
    with pytest.raises(ValueError, match=r"^image must be an image file"):
        load_image(source)


def damaged(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def encoded(fmt):
    buffer = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, fmt)
    return buffer.getvalue()


@pytest.mark.parametrize("fmt", ["png", "jpeg", "tiff", "webp", "bmp", "gif"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_truncated_files(tmp_path, fmt, share):
    content = encoded(fmt)
    path = damaged(tmp_path, f"a.{fmt}", content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"^image0 must be an image file, got '.*' \(.*\)$"):
        load_image(path, "image0")


def test_files_that_are_none(tmp_path):
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "none.png", "there is no such file"),
        (tmp_path / "none.png" / "a.png", "there is no such file"),
        (damaged(tmp_path, "empty.png", b""), "it is empty"),
        (damaged(tmp_path, "text.png", b"no image\n" * 30), "no format that Pillow reads"),
        ("a\0b.png", "null byte|no such file"),
        ("x" * 5000, "too long|no such file"),
    ):
        with pytest.raises(ValueError, match=rf"^image must be an image file, got .*({reason})"):
            load_image(path)


@pytest.mark.parametrize("package", ["pillow_heif", "pi_heif"])
def test_heic_is_read_by_a_package_that_is_installed(tmp_path, monkeypatch, package):
    """Photographs of phones are HEIC, also under other names."""
    path = damaged(tmp_path, "a.jpg", b"\0\0\0\x18ftypheic" + bytes(20))
    for name in ("pillow_heif", "pi_heif"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"a\.jpg' \(HEIC needs .*: pip install pillow-heif"):
        load_image(path)

    class Heic(ImageFile.ImageFile):
        format = "HEIF"

        def _open(self):
            self._mode, self._size = "RGB", (5, 7)

        def load(self):
            return Image.fromarray(RGB).load()

        def crop(self, box):
            return Image.fromarray(RGB).crop(box)

    def register():
        Image.register_open("HEIF", Heic, lambda prefix: prefix[4:12] == b"ftypheic")

    monkeypatch.setitem(sys.modules, package, types.SimpleNamespace(register_heif_opener=register))
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    assert np.array_equal(load_image(path), RGB)


def test_large_images_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    monkeypatch.setenv("MANYMATCH_MAX_PIXELS", "34")
    for given in (path, Image.fromarray(RGB), RGB):
        with pytest.raises(ValueError, match=r"^image must .*34 pixels.*MANYMATCH_MAX_PIXELS"):
            load_image(given)
    monkeypatch.setenv("MANYMATCH_MAX_PIXELS", "35")
    assert load_image(path).shape == RGB.shape


def test_a_decompression_bomb_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match=r"^image must .*pixels") as caught:
        load_image(path)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_image(path).shape == RGB.shape


def test_the_file_is_closed(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        load_image(path)
        gc.collect()
    path.unlink()


def test_without_pillow_arrays_work_and_files_say_what_is_missing(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "import numpy as np\n"
        "from manymatch.io.image import exif_focal, load_image\n"
        "assert load_image(np.zeros((2, 3))).shape == (2, 3, 3)\n"
        f"load_image({str(path)!r})"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: reading image files needs Pillow")
    assert 'pip install "manymatch[images]"' in last


@pytest.mark.parametrize("function", ["_upright", "_eight_bit"])
def test_errors_of_our_own_are_not_taken_for_damage(tmp_path, monkeypatch, function):
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)

    def broken(*_, **__):
        raise TypeError("a mistake")

    monkeypatch.setattr(f"manymatch.io.image.{function}", broken)
    with pytest.raises(TypeError, match="a mistake"):
        load_image(path)


TENSOR = np.random.default_rng(3).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_images_are_read_while_another_thread_imports_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))  # no Tensor in it yet
    Image.fromarray(RGB).save(tmp_path / "a.png")
    assert np.array_equal(load_image(tmp_path / "a.png"), RGB)


def test_tensors_are_images():
    torch = pytest.importorskip("torch")
    last = torch.from_numpy(TENSOR)
    first = last.permute(2, 0, 1)
    unit = (first.double() / 255).requires_grad_()
    for tensor in (last, first, first[None], first.float() / 255, unit, unit[None]):
        np.testing.assert_array_equal(load_image(tensor), TENSOR)
    grey = load_image(TENSOR[:, :, 0])
    for tensor in (last[:, :, 0], first[:1], first[None, :1], last[:, :, :1]):
        np.testing.assert_array_equal(load_image(tensor), grey)
    # Eight bits do not fit into bfloat16 exactly.
    assert np.abs(load_image(unit.bfloat16()).astype(int) - TENSOR).max() <= 1
    clear = torch.cat([first, torch.zeros_like(first[:1])])
    assert not load_image(clear).any()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda torch: torch.zeros(2, 3, 8, 9),
            r"got an array of shape \(2, 3, 8, 9\) and dtype float32$",
        ),
        (lambda torch: torch.zeros(2, 8, 9), r"got an array of shape \(2, 8, 9\)"),
        (lambda torch: torch.zeros(3), r"got an array of shape \(3,\)"),
        (lambda torch: torch.zeros(3, 8, 3), "which may be either"),
        (lambda torch: torch.zeros(1, 3, 8, 4), "which may be either"),
        (lambda torch: torch.full((3, 8, 9), 7.0), "got values from 7 to 7"),
        (lambda torch: torch.zeros(3, 8, 9, dtype=torch.int64), "dtype int64"),
        (lambda torch: torch.zeros(3, 8, 9).to_sparse(), "dense tensor"),
        (lambda torch: torch.zeros(3, 8, 9, device="meta"), "dense tensor"),
        (lambda torch: torch.zeros(3, 0, 9), "at least one pixel"),
    ],
)
def test_a_tensor_that_is_no_image_is_one_sentence(make, says):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=f"^image0 must (be|hold|have) .*{says}") as error:
        load_image(make(torch), "image0")
    assert "\n" not in str(error.value)


def test_channels_first_gets_a_hint():
    with pytest.raises(ValueError, match=r"\(3, 20, 30\) and dtype uint8: move its channels"):
        load_image(TENSOR.transpose(2, 0, 1))


def photograph(tmp_path, tags, suffix="jpg", orientation=1):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif.get_ifd(0x8769).update(tags)
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).save(path, exif=exif)
    return path


BY_DIAGONAL = DIAGONAL / math.hypot(36, 24)
SENSOR = {FOCAL: 4.0, PLANE_X: 10_000, PLANE_Y: 20_000, UNIT: 3, EXIF_WIDTH: WIDTH}
MILLIMETRES = {FOCAL: 5.0, PLANE_X: 30.0, UNIT: 4}


@pytest.mark.parametrize(
    ("tags", "how", "focal"),
    [
        *(({F35: 28}, {"suffix": suffix}, 28 * BY_DIAGONAL) for suffix in ("jpg", "png", "webp")),
        # A turned photograph keeps its focal length.
        ({F35: 28}, {"orientation": 6}, 28 * BY_DIAGONAL),
        (SENSOR, {}, 4000),
        (SENSOR, {"orientation": 8}, 4000),
        # The density of the sensor is per inch, centimetre or millimetre; inches are the default.
        *(
            ({FOCAL: 5.0, PLANE_X: 30 * size, **unit}, {}, 150)
            for unit, size in (({UNIT: 2}, 25.4), ({UNIT: 3}, 10), ({UNIT: 4}, 1), ({}, 25.4))
        ),
        # A resized photograph has the sensor of the original.
        ({FOCAL: 5.0, PLANE_X: 300.0, UNIT: 4, EXIF_WIDTH: 10 * WIDTH}, {}, 150),
        # The equivalent comes first, and the sensor helps out.
        ({F35: 50, **MILLIMETRES}, {}, 50 * BY_DIAGONAL),
        ({F35: 0, **MILLIMETRES}, {}, 150),
        # Nothing sensible.
        *((tags, {}, None) for tags in ({}, {F35: 0}, {F35: 65_535}, {FOCAL: 5.0})),
        ({FOCAL: 0.0, PLANE_X: 30.0}, {}, None),
        ({FOCAL: 5.0, PLANE_X: 0.0}, {}, None),
        ({FOCAL: 5.0, PLANE_X: 30.0, UNIT: 77}, {}, None),
        ({FOCAL: 5.0, PLANE_X: 1e-4, UNIT: 2}, {}, None),
    ],
)
def test_focal_length_of_exif(tmp_path, tags, how, focal):
    path = photograph(tmp_path, tags, **how)
    assert exif_focal(path) == (None if focal is None else pytest.approx(focal, rel=1e-5))
    assert exif_focal(str(path)) == exif_focal(path)


def test_files_that_are_no_photographs_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.jpg' \(there is no such file\)"):
        exif_focal(tmp_path / "missing.jpg")
    (tmp_path / "text.jpg").write_text("no image")
    assert exif_focal(tmp_path / "text.jpg") is None
    assert exif_focal(tmp_path) is None
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(
        tmp_path / "bad.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40
    )
    assert exif_focal(tmp_path / "bad.jpg") is None

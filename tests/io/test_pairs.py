import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manymatch import pose_error_deg
from manymatch.geometry.pose import RelativePose
from manymatch.io.pairs import numbered
from manymatch_lab.datasets import Pair, exhaustive_pairs, read_pairs

K0 = "500 0 319.5 0 510 239.5 0 0 1"
K1 = "600 0 299.5 0 610 219.5 0 0 1"
# A quarter turn about z, then a step.
T = "0 -1 0 0.5 1 0 0 -2 0 0 1 0.25 0 0 0 1"
GOOD = f"a.jpg b.jpg 0 3 {K0} {K1} {T}"


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    return folder


@pytest.fixture
def read(tmp_path, images):
    def read_text(text, encoding="utf-8"):
        path = tmp_path / "pairs.txt"
        path.write_bytes(text.encode(encoding))
        return read_pairs(path, images)

    return read_text


def test_superglue_list(read, images):
    (pair,) = read(GOOD + "\n")
    assert (pair.name0, pair.name1) == ("a.jpg", "b.jpg")
    assert (pair.path0, pair.path1) == (images / "a.jpg", images / "b.jpg")
    assert (pair.rot0, pair.rot1) == (0, 3)
    assert pair.camera0.params == (500, 510, 319.5, 239.5)
    assert pair.camera1.params == (600, 610, 299.5, 219.5)
    assert pair.R.tolist() == [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    assert pair.t.tolist() == [0.5, -2, 0.25]
    assert pair.has_truth


def test_plain_columns(read):
    pairs = read("a.jpg b.jpg\nsub/c.jpg   d.jpg 1 2\n")
    assert [(p.name0, p.name1, p.rot0, p.rot1) for p in pairs] == [
        ("a.jpg", "b.jpg", 0, 0),
        ("sub/c.jpg", "d.jpg", 1, 2),
    ]
    assert not any(pair.has_truth or pair.camera0 or pair.camera1 for pair in pairs)


def test_comments_blank_lines_and_line_ends(read):
    text = "\ufeff# a comment\r\n\r\na.jpg b.jpg\r\n   \r\n  # another\r\nc.jpg d.jpg"
    assert [pair.name0 for pair in read(text)] == ["a.jpg", "c.jpg"]


@pytest.mark.parametrize(
    "head", ["", "\ufeff# a list\n", "image0,image1\n", " left , right,r0,r1\n"]
)
@pytest.mark.parametrize(
    "line",
    [
        "a b.jpg,c.jpg",
        '"a b.jpg", c.jpg',
        f"a b.jpg,c.jpg,0,0,{f'{K0} {K1} {T}'.replace(' ', ',')}",
    ],
)
def test_csv_lists(tmp_path, images, head, line):
    path = tmp_path / "pairs.CSV"
    path.write_text(f'{head}{line}\r\n\r\n"d,e.jpg",f.jpg,1,2\r\n', encoding="utf-8")
    first, second = read_pairs(path, images)
    assert (first.name0, first.name1, first.has_truth) == ("a b.jpg", "c.jpg", len(line) > 40)
    assert (second.name0, second.name1, second.rot0, second.rot1) == ("d,e.jpg", "f.jpg", 1, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("image0,image1\n", "it has no pair"),
        ("image0,image1\nc,\n", "line 2: .*got 1 column"),
        ("a.jpg,b.jpg\nc,\n", "line 2: .*got 1 column"),
        ('a.jpg,b.jpg\n"c.jpg,d.jpg\n', "line 2: its columns cannot be told apart"),
        ("a.jpg b.jpg\n", "line 1: .*got 1 column"),
    ],
)
def test_malformed_csv_lists(tmp_path, images, text, says):
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(ValueError, match=says):
        read_pairs(tmp_path / "pairs.csv", images)


def test_absolute_names(read, tmp_path):
    (pair,) = read(f"{tmp_path}/x.jpg b.jpg")
    assert pair.path0 == tmp_path / "x.jpg"


def bad(old, new):
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a.jpg", "got 1 column"),
        ("a.jpg b.jpg c.jpg", "got 3 columns"),
        ("a.jpg,b.jpg", "got 1 column"),
        ("a.jpg b.jpg 0 4", "rot1 must be 0, 1, 2 or 3"),
        ("a.jpg b.jpg -1 0", "rot0 must be"),
        ("a.jpg b.jpg x y", "rot0 must be"),
        (GOOD + " 7", "got 39 columns"),
        (bad("500", "5OO"), "finite numbers, got '5OO'"),
        (bad("500", "nan"), "finite numbers, got 'nan'"),
        (bad("500", "-500"), "K0 must have positive focal lengths"),
        (bad("0 610", "2 610"), "K1 must be upper triangular"),
        (bad(K1, K1[:-1] + "2"), "K1 must have the last row"),
        (bad("-1", "1"), "R must be a rotation"),
        (bad("0 -1 0 0.5 1 0 0", "0 1 0 0.5 1 0 0"), "R must be a rotation"),
        (bad("0.5 1 0 0 -2 0 0 1 0.25", "0 1 0 0 0 0 0 1 0"), "t must be three numbers"),
        (GOOD[:-1] + "2", "T_0to1 must have the last row"),
    ],
)
def test_malformed_line_is_named(read, line, says):
    with pytest.raises(ValueError, match=r"line 4: ") as caught:
        read(f"# head\n{GOOD}\n\n{line}\n")
    text = str(caught.value)
    assert says in text
    assert "\n" not in text


def test_rounded_rotations_become_exact(read):
    rng = np.random.default_rng(0)
    R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    R *= np.sign(np.linalg.det(R))
    rows = np.column_stack([np.round(R, 4), [0.1, 0.2, 0.3]]).ravel()
    words = " ".join(str(value) for value in rows)
    (pair,) = read(f"a b 0 0 {K0} {K1} {words} 0 0 0 1")
    np.testing.assert_allclose(pair.R.T @ pair.R, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(pair.R, R, atol=1e-4)
    assert pose_error_deg(RelativePose(pair.R, pair.t), pair.R, pair.t) == 0


@pytest.mark.parametrize(
    ("text", "encoding", "says"),
    [
        ("", "utf-8", "it has no pair"),
        ("# nothing\n", "utf-8", "it has no pair"),
        ("ä.jpg b.jpg", "latin-1", "not UTF-8"),
    ],
)
def test_unreadable_lists(read, text, encoding, says):
    with pytest.raises(ValueError, match=says):
        read(text, encoding)


def test_pairs_are_made_when_they_are_asked_for(read):
    pairs = read(f"a b\n{GOOD}\nb a 1 0\na c\n")
    assert repr(pairs).startswith("PairList(4 pairs of images in ")
    assert [pair.name1 for pair in pairs] == ["b", "b.jpg", "a", "c"]
    assert (pairs[-1].name1, pairs[2].rot0, pairs[1].has_truth) == ("c", 1, True)
    assert pairs.posed == [1]
    part = pairs[1:3]
    assert [pair.name0 for pair in part] == ["a.jpg", "b"]
    assert (part.posed, part[1].rot0) == ([0], 1)
    np.testing.assert_array_equal(part[0].R, pairs[1].R)
    with pytest.raises(IndexError):
        pairs[4]


def test_numbers_of_images_do_not_depend_on_the_container(read):
    pairs = read(f"a b\n{GOOD}\nb a 1 0\na c\n")
    images, numbers = numbered(pairs)
    assert [(image.name, image.turns) for image in images] == [
        ("a", 0), ("b", 0), ("a.jpg", 0), ("b.jpg", 3), ("b", 1), ("c", 0),
    ]  # fmt: skip
    assert numbers.tolist() == [[0, 1], [2, 3], [4, 0], [0, 5]]
    others = numbered(list(pairs))
    assert others[0] == images
    assert others[1].tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("RECORDS", "it has more pairs than 2"),
        ("TEXT_MB", "its names have more megabytes than 1"),
        ("ARRAY_MB", "its matrices expand to more megabytes than 1"),
    ],
)
def test_lists_that_are_too_long_are_refused(read, monkeypatch, variable, says):
    text = {
        "RECORDS": "a b\n" * 3,
        "TEXT_MB": f"{'a' * 600_000} b\n{'c' * 600_000} b\n",
        "ARRAY_MB": f"{GOOD}\n" * 3700,
    }[variable]
    monkeypatch.setenv(f"MANYMATCH_MAX_{variable}", "2" if variable == "RECORDS" else "1")
    with pytest.raises(ValueError, match=says):
        read(text)


def test_missing_list_or_folder(tmp_path, images):
    with pytest.raises(ValueError, match="there is no such file"):
        read_pairs(tmp_path / "none.txt", images)
    with pytest.raises(ValueError, match="images must be an existing folder"):
        read_pairs(tmp_path / "none.txt", tmp_path / "nowhere")


def test_exhaustive_pairs(images):
    for name in ("c.JPG", "a.png", "b.tif", ".hidden.png", "notes.txt"):
        (images / name).write_bytes(b"x")
    (images / "folder.png").mkdir()
    names = [(pair.name0, pair.name1) for pair in exhaustive_pairs(images)]
    assert names == [("a.png", "b.tif"), ("a.png", "c.JPG"), ("b.tif", "c.JPG")]
    assert exhaustive_pairs(str(images))[0].path1 == images / "b.tif"


def test_exhaustive_needs_two_images(images):
    (images / "a.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="at least two images, got 1"):
        exhaustive_pairs(images)


@pytest.mark.parametrize(
    "change",
    [
        {"name0": ""},
        {"path1": "b.jpg"},
        {"camera0": np.eye(3)},
        {"rot0": 4},
        {"R": np.eye(3)},
        {"t": np.ones(3)},
        {"R": 2 * np.eye(3), "t": np.ones(3)},
        {"R": -np.eye(3), "t": np.ones(3)},
        {"R": np.eye(3), "t": np.zeros(3)},
    ],
)
def test_pairs_are_checked(tmp_path, change):
    fields = {"name0": "a", "name1": "b", "path0": tmp_path, "path1": tmp_path}
    Pair(**fields)
    with pytest.raises(ValueError, match=r"^(name0|path1|camera0|rot0|R|t) must be"):
        Pair(**{**fields, **change})


def test_pairs_do_not_change(tmp_path):
    truth = np.eye(3), np.ones(3)
    pair = Pair("a", "b", tmp_path, tmp_path, R=truth[0], t=truth[1])
    truth[1][:] = 5
    assert pair.t.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        pair.R[0, 0] = 2
    assert repr(pair) == "Pair(a - b: pose)"


NAMES = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], blacklist_characters='"#'),
    min_size=1,
)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=5), st.sampled_from("\t "))
def test_any_names_come_back(tmp_path_factory, names, separator):
    folder = tmp_path_factory.mktemp("lists")
    path = folder / "pairs.txt"
    path.write_text("".join(f"{a}{separator}{b}\n" for a, b in names), encoding="utf-8")
    assert [(pair.name0, pair.name1) for pair in read_pairs(path, folder)] == names

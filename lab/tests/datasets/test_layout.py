"""Where the files of a data set may be: folders by their usual names, parts, trees."""

import pytest

from manymatch_lab.datasets import Layout, LayoutPart

LISTS = LayoutPart("the list", ("list.txt", "list.npz"), ("", "assets/", "../lists/"))
LAYOUT = Layout(
    ("shelf1500", "shelf"),
    (
        LISTS,
        LayoutPart("the images", ("*/images/*.jpg",)),
        LayoutPart("the depth", ("*/depth/*.png",), optional=True),
    ),
)


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    "folder", [".", "shelf1500", "shelf", "Shelf-1500", "SHELF_1500", "shelf/shelf1500"]
)
def test_a_root_is_the_folder_or_has_it(tmp_path, folder):
    put(tmp_path, f"{folder}/list.txt")
    place = (tmp_path / folder).resolve()
    assert LAYOUT.locate(tmp_path, "set") == (place, place / "list.txt")


def test_the_root_comes_first_and_then_the_names_in_their_order(tmp_path):
    put(tmp_path, "shelf/list.txt")
    put(tmp_path, "shelf1500/assets/list.npz", "other/list.txt")
    assert LAYOUT.locate(tmp_path, "set")[1] == tmp_path / "shelf1500/assets/list.npz"
    put(tmp_path, "list.npz")
    assert LAYOUT.locate(tmp_path, "set") == (tmp_path, tmp_path / "list.npz")


def test_the_error_names_what_was_looked_for(tmp_path):
    put(tmp_path, "shelves/list.txt", "a/b/shelf/list.txt")
    with pytest.raises(ValueError, match=r"^root must have the list ") as caught:
        LAYOUT.locate(tmp_path, "set")
    assert str(caught.value) == (
        "root must have the list (list.txt or list.npz in ., assets/, ../lists/) in it or in a "
        f"folder shelf1500 or shelf of it, got {str(tmp_path)!r} without it"
    )


def test_tree_shows_expected_and_found_files(tmp_path):
    assert LAYOUT.tree().splitlines() == [
        "shelf1500/   (or shelf/)",
        "├── the list",
        "│       list.txt",
        "│       or list.npz",
        "│       in ., assets/, ../lists/",
        "├── the images",
        "│       */images/*.jpg",
        "└── the depth (optional)",
        "        */depth/*.png",
    ]
    put(tmp_path, "shelf/list.txt")
    assert LAYOUT.tree(LAYOUT.found(tmp_path)).splitlines() == [
        "shelf1500/   (or shelf/)",
        "├── ✓ the list",
        f"│       {tmp_path}/shelf/list.txt",
        "├── ✗ the images",
        "│       */images/*.jpg",
        "└── – the depth (optional)",
        "        */depth/*.png",
    ]

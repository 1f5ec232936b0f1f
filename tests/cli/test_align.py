"""``manymatch align`` and `align`: a known map is found, written and shown, or one sentence."""

import json

import numpy as np
import pytest

import manymatch
from manymatch.viz.aligned import warp
from tests.support import command
from tests.support.browser import Browser, find_chromium
from tests.support.command import one_sentence
from tests.support.synthetic_images import texture

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

QUICK = ("--preset", "classic", "--max-keypoints", "400", "--set", "max_iterations=3000")
# From pixels of image 0 to pixels of image 1.
AFFINE = np.array([[0.95, -0.12, 28.0], [0.1, 1.02, -6.0], [0.0, 0.0, 1.0]])
PERSPECTIVE = np.vstack([AFFINE[:2], [2e-4, -1e-4, 1.0]])


def transfer(H, points):
    moved = np.column_stack([points, np.ones(len(points))]) @ H.T
    return moved[:, :2] / moved[:, 2:]


def pair(H):
    """Return an image, and the same image after the map."""
    image0 = texture(3, 360, 270)
    image1 = warp(image0, np.linalg.inv(H), (340, 300))[..., :3]
    return image0, np.ascontiguousarray(image1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name, image in zip(("a.png", "b.png"), pair(PERSPECTIVE), strict=True):
        Image.fromarray(image).save(folder / name)
    return folder


def run(*arguments):
    return command.run("align", *arguments)


@pytest.mark.parametrize(("model", "H"), [("homography", PERSPECTIVE), ("affine", AFFINE)])
def test_known_map_is_found(model, H):
    image0, image1 = pair(H)
    result = manymatch.align(image0, image1, model, preset="classic", max_iterations=2000)
    assert result.success
    assert result.model == model
    inner = np.array([[60.0, 60.0], [300.0, 60.0], [300.0, 200.0], [60.0, 200.0]])
    assert np.abs(transfer(result.homography, inner) - transfer(H, inner)).max() < 0.5
    if model == "affine":
        assert result.homography[2].tolist() == [0.0, 0.0, 1.0]
    # Warped back, it is the first image where it reaches.
    warped = result.warped()
    assert warped.shape == (270, 360, 4)
    seen = warped[..., 3] > 0
    assert abs(seen.mean() - result.covered()) < 0.02
    middle = np.zeros_like(seen)
    middle[40:230, 60:300] = True
    gap = np.abs(warped[..., :3].astype(float) - image0)[seen & middle]
    assert np.mean(gap) < 6.0


def test_result_is_printed_and_written(photos, tmp_path):
    out = tmp_path / "out"
    result = run(photos / "a.png", photos / "b.png", "--out", out, *QUICK)
    assert result.exit_code == 0, result.output
    assert "matches agree on one homography" in result.stdout
    assert "of the other" in result.stdout
    assert {path.name for path in out.iterdir()} == {
        "alignment.json", "warped.png", "overlay.html",
    }  # fmt: skip
    record = json.loads((out / "alignment.json").read_text())
    found = np.array(record["homography"])
    inner = np.array([[60.0, 60.0], [300.0, 200.0]])
    assert np.abs(transfer(found, inner) - transfer(PERSPECTIVE, inner)).max() < 0.5
    assert record["images"] == ["a.png", "b.png"]
    assert record["files"] == ["alignment.json", "warped.png", "overlay.html"]
    assert record["config"]["estimation"]["threshold_px"] == 3.0
    with Image.open(out / "warped.png") as picture:
        assert picture.size == (360, 270)
        assert picture.mode == "RGBA"
    page = (out / "overlay.html").read_text()
    assert "a.png" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    again = run(
        photos / "a.png", photos / "b.png", "--out", out, "--json", "--threshold-px", "2", *QUICK
    )
    record = json.loads(again.stdout)
    assert record["config"]["estimation"]["threshold_px"] == 2.0
    assert record["success"]


def test_images_without_a_homography_are_exit_code_1(photos, tmp_path):
    Image.fromarray(np.full((120, 160, 3), 90, np.uint8)).save(tmp_path / "flat.png")
    out = tmp_path / "out"
    first = run(photos / "a.png", photos / "b.png", "--out", out, *QUICK)
    assert first.exit_code == 0
    result = run(photos / "a.png", tmp_path / "flat.png", "--out", out, *QUICK)
    assert result.exit_code == 1
    assert {path.name for path in out.iterdir()} == {"alignment.json"}  # nothing stale is left
    assert json.loads((out / "alignment.json").read_text())["homography"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a.png", "missing.png"), "image1 must be an image file"),
        (("a.png", "b.png", "--model", "similarity"), "model must be one of"),
        (("a.png", "b.png", "--threshold-px", "-1"), "threshold_px"),
    ],
)
def test_bad_input_is_one_sentence(photos, arguments, sentence):
    paths = [photos / a if a.endswith(".png") else a for a in arguments]
    result = run(*paths, "--preset", "classic")
    assert result.exit_code == 2
    assert sentence in one_sentence(result)


def test_warping_needs_a_homography():
    flat = np.full((80, 100, 3), 90, np.uint8)
    result = manymatch.align(flat, flat, preset="classic")
    assert not result.success
    with pytest.raises(ValueError, match="there is no homography to warp with"):
        result.warped()
    with pytest.raises(ValueError, match="model must be one of"):
        manymatch.align(flat, flat, "rigid", preset="classic")


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium")
def test_page_in_a_browser(tmp_path):
    result = manymatch.align(*pair(PERSPECTIVE), preset="classic", max_iterations=2000)
    path = result.report(tmp_path / "overlay.html", command="manymatch align a.png b.png")
    with Browser() as browser:
        browser.resize(1000, 800)
        browser.open(path.as_uri())
        style = "document.getElementById('over').style"
        assert browser.evaluate(f"{style}.clipPath") == "inset(0px 0px 0px 50%)"
        browser.evaluate("amount.value = 20; amount.dispatchEvent(new Event('input'))")
        assert browser.evaluate(f"{style}.clipPath") == "inset(0px 0px 0px 20%)"
        browser.evaluate("document.querySelector('input[value=blend]').click()")
        assert browser.evaluate(f"{style}.opacity") == "0.5"
        browser.evaluate("document.querySelector('input[value=blink]').click()")
        shown = browser.evaluate(f"{style}.opacity")
        browser.evaluate("document.getElementById('flip').click()")
        assert {shown, browser.evaluate(f"{style}.opacity")} == {"0", "1"}
        browser.evaluate("document.querySelector('input[value=difference]').click()")
        assert browser.evaluate("getComputedStyle(over).mixBlendMode") == "difference"
        browser.evaluate("document.getElementById('in').click()")
        assert browser.evaluate("document.getElementById('zoom').textContent") == "150 %"
        wrong = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        assert not [event for event in browser.events if event["method"] in wrong]

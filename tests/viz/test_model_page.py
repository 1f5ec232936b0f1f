"""The page of a reconstruction: what it holds, and how it behaves in a real browser."""

import base64
import contextlib
import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from manymatch.viz.model_page import (
    PageCamera,
    PageImage,
    PageModel,
    PagePair,
    first_view,
    write_model_page,
)
from tests.support.browser import Browser, find_chromium

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">'&.jpg"
SIZE = (320, 240)


def looking(centre, target, up=(0.0, 0.0, 1.0)):
    """Rotation of a camera at one place that looks at another, with +y down."""
    ahead = np.subtract(target, centre)
    ahead = ahead / np.linalg.norm(ahead)
    right = np.cross(ahead, up)
    right /= np.linalg.norm(right)
    return np.array([right, np.cross(ahead, right), ahead])


def make_model(places, seed=0, num_points=400):
    """Cameras on an arc that look at a wall in front of them, which they all see."""
    rng = np.random.default_rng(seed)
    points = rng.uniform((-2.0, -0.3, -1.0), (2.0, 0.3, 1.0), (num_points, 3))
    colors = rng.integers(120, 256, (num_points, 3)).astype(np.uint8)
    cameras = []
    for k, place in enumerate(places):
        angle = (k / max(len(places) - 1, 1) - 0.5) * 2.0
        centre = np.array([4.0 * np.sin(angle), -4.0 * np.cos(angle), 0.2 * (k % 2)])
        R = looking(centre, (0.0, 0.0, 0.0))
        cameras.append(PageCamera(place, R, -R @ centre, 300.0, SIZE))
    seen = [(k, p) for k in range(len(places)) for p in range(k, num_points, 7)]
    return PageModel(points, colors, cameras, np.array(seen, dtype=np.int64))


def make_images(folder, number):
    """Photographs of one colour each; the first name is hostile and the last image has no file."""
    images = []
    for k in range(number):
        path = folder / f"{k}.jpg"
        Image.new("RGB", SIZE, ((40 * k) % 256, 90, 160)).save(path)
        images.append(PageImage(HOSTILE if k == 0 else f"set/{k}.jpg", path, SIZE))
    images[-1] = PageImage(images[-1].name, None, SIZE)
    return images


def make_pairs():
    lines = np.array([[0.0, 0.0, 319.0, 239.0], [159.5, 119.5, 159.5, 119.5]])
    rows = [
        ((0, 1), "solved", 0.99, "It agrees with all cycles.", 120, lines),
        ((1, 2), "solved", 0.97, "It agrees with all cycles.", 80, lines),
        ((0, 3), "likely", 0.04, f"Its rotation is off. {HOSTILE}", 60, lines),
        ((4, 5), "solved", 0.75, "Only one cycle.", 31, lines[:0]),
    ]
    return [
        PagePair(*ends, verdict, probability, probability > 0.5, *rest)
        for ends, verdict, probability, *rest in rows
    ]


@pytest.fixture
def parts(tmp_path):
    """Two models, of images 4 and 5 and of images 0 to 3, and an image that is in none."""
    models = [make_model([4, 5], seed=1, num_points=50), make_model([0, 1, 2, 3])]
    return models, make_images(tmp_path, 7), make_pairs()


def written(path, parts, title="Scene", facts=(("Points", "450"),), notes=("A note.",)):
    write_model_page(path / "index.html", title, *parts, dict(facts), list(notes))
    return (path / "index.html").read_text(encoding="utf-8")


def data_of(page):
    """What the script of the page reads."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(packed, width=1):
    [kind] = packed
    return np.frombuffer(base64.b64decode(packed[kind]), dtype=f"<{kind}").reshape(-1, width)


def pictures_of(page):
    uris = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(uri))) for uri in uris]


# ------------------------------------------------------------------------------- content


def test_geometry_is_that_of_the_model_in_the_frame_of_the_page(tmp_path, parts):
    data = data_of(written(tmp_path, parts))
    model = parts[0][1]  # has more images, so it comes first
    packed = data["models"][0]
    points, rows = unpacked(packed["points"], 3), unpacked(packed["cameras"], 15)
    assert [len(unpacked(m["cameras"], 15)) for m in data["models"]] == [4, 2]
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(unpacked(packed["colors"], 3), model.colors)
    # Points in the frames of the cameras are those of the model, up to scale.
    scale = None
    for row, camera in zip(rows, model.cameras, strict=True):
        ours = (points - row[1:4]) @ row[4:13].reshape(3, 3).T
        theirs = model.points @ camera.R.T + camera.t
        scale = scale or np.linalg.norm(theirs) / np.linalg.norm(ours)
        np.testing.assert_allclose(scale * ours, theirs, atol=1e-4)
        np.testing.assert_allclose(row[13:], [160 / 300, 120 / 300], rtol=1e-6)
    # Which camera sees which point.
    counts = unpacked(packed["seenBy"])[:, 0]
    owners = np.repeat(np.arange(4), counts)
    listed = np.column_stack([owners, unpacked(packed["seen"])[:, 0]])
    assert sorted(map(tuple, listed.tolist())) == sorted(map(tuple, model.seen.tolist()))


def test_first_view_has_up_where_the_cameras_have_it():
    model = make_model(range(6))
    R = np.array([camera.R for camera in model.cameras])
    centres = np.array([-camera.R.T @ camera.t for camera in model.cameras])
    turn = looking((1.0, 2.0, 3.0), (0.3, -0.4, 0.5))  # any rotation of the world
    for world in (np.eye(3), turn):
        axes, middle, scale = first_view(model.points @ world.T, centres @ world.T, R @ world.T)
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(axes) == pytest.approx(1.0)
        np.testing.assert_allclose(world.T @ axes[2], (0, 0, 1), atol=0.02)
        np.testing.assert_allclose(world.T @ axes[1], (0, 1, 0), atol=0.02)
        shown = (np.vstack([model.points, centres]) @ world.T - middle) @ axes.T / scale
        assert np.linalg.norm(shown, axis=1).max() < 1.3


def test_first_view_ignores_points_that_are_far_away():
    model = make_model(range(6))
    R = np.array([camera.R for camera in model.cameras])
    centres = np.array([-camera.R.T @ camera.t for camera in model.cameras])
    far = np.vstack([model.points, 1e4 * model.points[:20]])
    axes, middle, scale = first_view(model.points, centres, R)
    axes_far, middle_far, scale_far = first_view(far, centres, R)
    np.testing.assert_allclose(axes_far, axes)
    np.testing.assert_allclose(middle_far, middle, atol=0.2)
    assert scale_far == pytest.approx(scale, rel=0.1)


def test_first_view_of_cameras_without_a_common_direction():
    """Cameras all around that look inwards, and one camera that looks down its own up axis."""
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
    centres = 3.0 * np.column_stack([np.cos(angles), np.sin(angles), 0.0 * angles])
    R = np.array([looking(centre, (0, 0, 0)) for centre in centres])
    axes, middle, scale = first_view(np.zeros((0, 3)), centres, R)
    np.testing.assert_allclose(axes[2], (0, 0, 1), atol=1e-9)
    np.testing.assert_allclose(middle, 0.0, atol=0.1)
    assert 3.0 < scale < 6.0
    one = first_view(np.zeros((1, 3)), np.zeros((1, 3)), np.eye(3)[None])
    np.testing.assert_allclose(one[0] @ one[0].T, np.eye(3), atol=1e-12)
    assert one[2] == 1.0


def test_pairs_are_packed_column_by_column(tmp_path, parts):
    pairs = data_of(written(tmp_path, parts))["pairs"]
    assert unpacked(pairs["first"])[:, 0].tolist() == [0, 1, 0, 4]
    assert unpacked(pairs["second"])[:, 0].tolist() == [1, 2, 3, 5]
    assert unpacked(pairs["accepted"])[:, 0].tolist() == [1, 1, 0, 1]
    assert unpacked(pairs["matches"])[:, 0].tolist() == [120, 80, 60, 31]
    np.testing.assert_allclose(unpacked(pairs["probability"])[:, 0], [0.99, 0.97, 0.04, 0.75])
    reasons = [pairs["reasons"][k] for k in unpacked(pairs["reason"])[:, 0]]
    assert reasons == [pair.reason for pair in parts[2]]
    verdicts = [pairs["verdicts"][k] for k in unpacked(pairs["verdict"])[:, 0]]
    assert verdicts == ["solved", "solved", "likely", "solved"]
    assert unpacked(pairs["linesOf"])[:, 0].tolist() == [2, 2, 2, 0]
    # The centre of a corner pixel is half a pixel inside of the image.
    lines = unpacked(pairs["lines"], 4)[:2] / 65535
    expected = [[0.5 / 320, 0.5 / 240, 319.5 / 320, 239.5 / 240], [0.5] * 4]
    np.testing.assert_allclose(lines, expected, atol=1e-5)


def test_words_from_elsewhere_are_escaped(tmp_path, parts):
    page = written(
        tmp_path, parts, title=HOSTILE, facts=[(HOSTILE, HOSTILE)], notes=[HOSTILE, "A note."]
    )
    assert HOSTILE not in page
    assert "<img src=x" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("&lt;/script&gt;") >= 5
    assert HOSTILE in data_of(page)["pairs"]["reasons"][1]


def test_page_asks_for_nothing_from_elsewhere(tmp_path, parts):
    page = written(tmp_path, parts)
    assert "default-src 'none'; img-src data:;" in html.unescape(page)
    assert not re.search(r"https?://|//cdn|@import|\burl\(", page)


def test_names_that_are_not_unicode_can_be_written(tmp_path, parts):
    models, images, pairs = parts
    images[1] = PageImage("caf\udce9.jpg", images[1].path, SIZE)
    assert "caf?.jpg" in written(tmp_path, (models, images, pairs))


@pytest.mark.parametrize(
    ("chosen", "number", "sentence"),
    [
        ([1], 4, "All 4 images are in one model, with 400 points."),
        ([1], 7, "4 of 7 images are in one model, with 400 points."),
        ([0, 1], 7, "6 of 7 images are in 2 separate models, with 450 points."),
        ([], 7, "There is no model: none of 7 images could be placed."),
    ],
)
def test_headline_says_how_many_images_are_in_how_many_models(
    tmp_path, parts, chosen, number, sentence
):
    models, images, _ = parts
    page = written(tmp_path, ([models[k] for k in chosen], images[:number], []))
    assert sentence in page
    assert ("In no model:" in page) == ("All" not in sentence)
    assert page.count("<em>in no model</em>") == number - sum(
        len(models[k].cameras) for k in chosen
    )


def test_many_points_are_chosen_at_random_and_always_alike(tmp_path, parts):
    _, images, pairs = parts
    few, many = make_model([4, 5], num_points=30_000), make_model([0, 1, 2], num_points=120_000)
    parts = [few, many], images, pairs
    page = written(tmp_path, parts)
    assert "100,000 of 150,000 points are shown, at random." in page
    packed = data_of(page)["models"]
    assert [model["shown"] for model in packed] == [80_000, 20_000]
    # Colours and what cameras see still belong to the points.
    rows = {tuple(np.round(p, 4)): k for k, p in enumerate(many.points)}
    points, colors = unpacked(packed[0]["points"], 3), unpacked(packed[0]["colors"], 3)
    R = np.array([camera.R for camera in many.cameras])
    centres = np.array([-camera.R.T @ camera.t for camera in many.cameras])
    axes, middle, scale = first_view(many.points, centres, R)
    places = [rows[tuple(np.round(p, 4))] for p in points[:50] * scale @ axes + middle]
    np.testing.assert_array_equal(colors[:50], many.colors[places])
    assert np.ptp(places) > 55  # two of three are chosen
    sees = set(map(tuple, many.seen.tolist()))
    first = unpacked(packed[0]["seen"])[:, 0]
    near = [places[p] for p in first[: int(unpacked(packed[0]["seenBy"])[0, 0])] if p < 50]
    assert near
    assert all((0, p) in sees for p in near)
    assert page == written(tmp_path, parts)


@pytest.mark.parametrize(("number", "longest"), [(2, 800), (100, 500), (1000, 160)])
def test_photographs_become_smaller_the_more_there_are(tmp_path, number, longest):
    size = (3 * longest // 2, longest)
    Image.new("RGB", size, (90, 120, 60)).save(tmp_path / "photo.png")
    images = [PageImage(f"{k}.png", tmp_path / "photo.png", size) for k in range(number)]
    page = written(tmp_path, ([], images, []))
    assert {p.size for p in pictures_of(page)} == {(longest, round(longest / 1.5))}


def test_photographs_fit_into_what_is_left_of_the_page(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    images = [PageImage(f"{k}.png", tmp_path / "noise.png", SIZE) for k in range(20)]
    sizes = []
    for most in (10_000_000, 1_000_000):
        monkeypatch.setattr("manymatch.viz.model_page._PAGE_BYTES", most)
        page = written(tmp_path, ([], images, []))
        sizes.append(sum(map(len, re.findall(r'src="data:[^"]+"', page))))
    assert sizes[0] > 1_200_000
    assert sizes[1] < 1_000_000


def test_photographs_are_turned_as_their_files_say(tmp_path):
    photo = Image.new("RGB", (200, 100))
    photo.paste((255, 255, 255), (0, 0, 100, 100))
    exif = Image.Exif()
    exif[0x0112] = 6  # the left edge of the file is the top of the image
    photo.save(tmp_path / "turned.jpg", exif=exif)
    image = PageImage("turned.jpg", tmp_path / "turned.jpg", (100, 200))
    [picture] = pictures_of(written(tmp_path, ([], [image], [])))
    assert picture.size == (100, 200)
    grey = np.asarray(picture.convert("L")).astype(int)
    assert grey[:90].min() > 200
    assert grey[110:].max() < 50


def test_photographs_that_cannot_be_read_are_left_out(tmp_path, parts):
    models, images, pairs = parts
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    images[1] = PageImage("broken", tmp_path / "broken.jpg", SIZE)
    images[2] = PageImage("gone", tmp_path / "gone.jpg", SIZE)
    page = written(tmp_path, (models, images, pairs))
    assert len(pictures_of(page)) == len(images) - 3
    assert page.count('class="shot') == len(images)


# ------------------------------------------------------------------------------- in a browser

needs_browser = pytest.mark.skipif(
    find_chromium() is None,
    reason="needs Chromium: apt-get install chromium, or MANYMATCH_CHROMIUM=/path/to/it",
)
COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
# Chromium says this of any WebGL that it draws without a graphics card.
KNOWN = ("GPU stall due to ReadPixels", "Automatic fallback to software WebGL")
NO_WEBGL = """(() => { const get = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
  return kind.startsWith("webgl") ? null : get.call(this, kind, ...rest); }; })()"""
# The page then takes what draws for a graphics card.
HIDDEN_RENDERER = "WebGL2RenderingContext.prototype.getExtension = () => null"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    models = [make_model([4, 5], seed=1, num_points=50), make_model([0, 1, 2, 3])]
    written(folder, (models, make_images(folder, 7), make_pairs()), title="Scene")
    return (folder / "index.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def opened(browser, url):
    """Page at desktop size; at its end there must be no complaint and no request to anywhere."""
    browser.events.clear()
    browser.resize(1280, 900)
    browser.open(url)
    ready(browser)
    yield browser
    browser.evaluate("1")
    complaints = [event for event in browser.events if event["method"] in COMPLAINTS]
    unknown = [text for text in map(json.dumps, complaints) if not any(k in text for k in KNOWN)]
    assert unknown == []
    asked = {
        event["params"]["request"]["url"].partition(",")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {url, "data:image/jpeg;base64"}


def ready(browser):
    """Wait until photographs are decoded and the view stands still."""
    browser.evaluate("Promise.all([...document.images].map(i => i.decode().catch(() => 0)))")
    before = None
    for _ in range(100):
        browser.evaluate("new Promise(done => setTimeout(done, 80))")
        after = browser.page("Page.captureScreenshot", format="png")["data"]
        if after == before:
            return
        before = after
    raise TimeoutError("the view never stands still")


def seen_pixels(browser, node="space"):
    """What is on the screen at an element, (height, width, 3), without its round corners."""
    left, top, width, height = box_of(browser, node)
    clip = {"x": left + 6, "y": top + 6, "width": width - 12, "height": height - 12, "scale": 1}
    shot = browser.page("Page.captureScreenshot", format="png", clip=clip)["data"]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")).astype(int)


def box_of(browser, node):
    """Left, top, width and height in the page."""
    return browser.evaluate(
        f"(r => [r.left + scrollX, r.top + scrollY, r.width, r.height])"
        f"(document.getElementById('{node}').getBoundingClientRect())"
    )


def drawn(pixels):
    """Where something differs from the background, which is in the corners."""
    return np.abs(pixels - pixels[0, 0]).sum(axis=2) > 30


def chosen(browser):
    """Images that are selected."""
    return browser.evaluate(
        "[...document.querySelectorAll('.shot[aria-pressed=true]')].map(s => +s.dataset.image)"
    )


def cell_place(browser, row, column, number=7):
    left, top, width, height = box_of(browser, "matrix")
    return left + (column + 0.5) * width / number, top + (row + 0.5) * height / number


@needs_browser
def test_model_is_drawn_in_the_middle_of_the_view(opened):
    mask = drawn(seen_pixels(opened))
    assert 0.01 < mask.mean() < 0.9
    rows, columns = np.nonzero(mask)
    height, width = mask.shape
    assert np.ptp(columns) > 0.5 * width or np.ptp(rows) > 0.5 * height
    assert mask[height // 4 : -height // 4, width // 4 : -width // 4].mean() > 0.03


@contextlib.contextmanager
def opened_after(browser, url, script):
    """Open the page once more, after a script that changes what the browser can do."""
    added = browser.page("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    try:
        browser.open("about:blank")
        browser.open(url)
        ready(browser)
        yield
    finally:
        browser.page("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


@needs_browser
@pytest.mark.parametrize("script", [HIDDEN_RENDERER, NO_WEBGL])
def test_model_looks_alike_however_it_is_drawn(opened, url, script):
    """By WebGL alone and by the script alone as by both, which is the way without a graphics card.

    Sizes and places of points are rounded in other ways, so that their borders differ.
    """

    def looks():
        whole = seen_pixels(opened)
        opened.evaluate("document.querySelectorAll('.shot')[2].click()")
        ready(opened)
        return whole, seen_pixels(opened)

    def blocks(image):
        height, width = (8 * (n // 8) for n in image.shape[:2])
        return image[:height, :width].reshape(height // 8, 8, width // 8, 8, 3).mean(axis=(1, 3))

    # The sentence about WebGL is not part of the model.
    opened.evaluate("blind.style.opacity = 0")
    expected = looks()
    with opened_after(opened, url, script):
        opened.evaluate("blind.style.opacity = 0")
        for ours, theirs in zip(looks(), expected, strict=True):
            assert drawn(ours).sum() == pytest.approx(drawn(theirs).sum(), rel=0.12)
            assert np.abs(blocks(ours) - blocks(theirs)).mean() < 2.0


@needs_browser
def test_click_on_a_camera_selects_it(opened):
    before = seen_pixels(opened)
    for image in (1, 3):
        opened.evaluate(f"document.querySelectorAll('.shot')[{image}].click()")
        opened.wait_for("!label.hidden")
        ready(opened)
        x, y = opened.evaluate(
            "(([r, m]) => [m.e + r.left, m.f + r.top])([space.getBoundingClientRect(), "
            "new DOMMatrix(getComputedStyle(label).transform)])"
        )
        # The label is centred below the camera by its own width and 12 pixels.
        x += opened.evaluate("label.getBoundingClientRect().width / 2")
        y -= 12
        opened.press("Escape")
        assert chosen(opened) == []
        opened.click(x, y)
        assert chosen(opened) == [image]
        assert opened.evaluate("document.querySelector('#pane-image h3').textContent") == (
            f"set/{image}.jpg"
        )
    # The 57 points that it sees are green now; its frame is, too, but small.
    opened.evaluate("frusta.value = 0; frusta.dispatchEvent(new Event('input'))")
    ready(opened)
    after = seen_pixels(opened)
    green = [np.sum(np.abs(p - (52, 224, 171)).sum(axis=2) < 12) for p in (before, after)]
    assert green[0] == 0
    assert green[1] > 57 * 4
    # A click beside everything deselects it.
    left, top, *_ = box_of(opened, "space")
    opened.click(left + 5, top + 5)
    assert chosen(opened) == []


@needs_browser
def test_image_lists_its_pairs(opened):
    opened.evaluate("document.querySelectorAll('.shot')[0].click()")
    rows = opened.evaluate(
        "[...document.querySelectorAll('#pane-image .pair-row')].map(r => [r.innerText, r.title])"
    )
    assert ["set/1.jpg" in rows[0][0], "set/3.jpg" in rows[1][0], len(rows)] == [True, True, 2]
    assert "accepted, 120 matches, probability 0.990" in rows[0][0]
    assert "refused, 60 matches, probability 0.040" in rows[1][0]
    assert rows[1][1] == f"Its rotation is off. {HOSTILE}"
    assert opened.evaluate("document.querySelector('#pane-image h3').textContent") == HOSTILE
    assert opened.evaluate("document.title") == "Scene"
    # Links to neighbours are only in the 3D view; a row opens the pair.
    opened.evaluate("document.querySelectorAll('#pane-image .pair-row')[1].click()")
    assert opened.evaluate("document.querySelector('#pane-pair .pill').textContent") == "Refused"


@needs_browser
@pytest.mark.parametrize(("row", "column"), [(1, 2), (2, 1)])
def test_click_on_a_cell_opens_the_pair(opened, row, column):
    opened.click(*cell_place(opened, row, column))
    opened.wait_for("!document.getElementById('pane-pair').hidden")
    text = opened.evaluate("document.getElementById('pane-pair').innerText")
    for part in ("set/1.jpg", "set/2.jpg", "Accepted", "0.970", "solved", "80, 2 drawn", "cycles"):
        assert part in text
    ready(opened)
    # Both photographs with lines over them.
    pixels = opened.evaluate(
        "(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data])"
        "(document.querySelector('.pair-canvas'))"
    )
    pixels = np.array(pixels).reshape(-1, 4)[:, :3]
    photos = [np.abs(pixels - (red, 90, 160)).sum(axis=1) < 12 for red in (40, 80)]
    assert min(photo.mean() for photo in photos) > 0.3
    assert (~photos[0] & ~photos[1] & (pixels.max(axis=1) > 190)).sum() > 100


@needs_browser
def test_accepted_pairs_are_above_the_diagonal_and_refused_ones_are_crossed(opened):
    pixels = seen_pixels(opened, "matrix")
    cell = (pixels.shape[0] + 12) / 7

    def patch(row, column):
        top, left = ((place + 0.15) * cell - 6 for place in (row, column))
        return pixels[round(top) : round(top + 0.7 * cell), round(left) : round(left + 0.7 * cell)]

    empty = np.median(patch(2, 6), axis=(0, 1))
    for row, column, there in ((0, 1, 1), (1, 0, 0), (0, 3, 0), (3, 0, 1), (4, 5, 1), (5, 4, 0)):
        colour = np.median(patch(row, column), axis=(0, 1))
        assert (np.abs(colour - empty).sum() > 60) == bool(there)
    crossed = [(patch(*place).sum(axis=2) < 120).mean() for place in ((3, 0), (0, 1))]
    assert crossed[0] > 0.05
    assert crossed[1] == 0.0
    teal, orange = np.median(patch(0, 1), axis=(0, 1)), np.median(patch(3, 0), axis=(0, 1))
    assert teal[1] > teal[0] + 80
    assert orange[0] > orange[2] + 80


@needs_browser
def test_pointing_at_a_cell_names_the_pair(opened):
    hint = opened.evaluate("told.textContent")
    opened.move_mouse(*cell_place(opened, 3, 0))
    opened.wait_for("told.textContent.includes('Its rotation is off.')")
    text = opened.evaluate("told.textContent")
    assert text.startswith(f"{HOSTILE} ↔ set/3.jpg: refused, probability 0.040, 60 matches.")
    opened.move_mouse(2, 2)
    opened.wait_for(f"told.textContent === {json.dumps(hint)}")


@needs_browser
def test_keys_walk_over_the_matrix(opened):
    opened.evaluate("matrix.focus()")
    opened.press("ArrowDown")
    opened.wait_for("told.textContent.includes('120 matches')")
    opened.press("Enter")
    opened.wait_for("document.querySelector('#pane-pair')?.innerText.includes('120, 2 drawn')")


@needs_browser
def test_dragging_wheel_and_keys_move_the_view(opened):
    def changed():
        nonlocal before
        ready(opened)
        after = seen_pixels(opened)
        share, before = np.mean(drawn(after) != drawn(before)), after
        return share

    before = start = seen_pixels(opened)
    left, top, width, height = box_of(opened, "space")
    middle = np.array([left + width / 2, top + height / 2])
    opened.drag(middle, (middle[0] + 120, middle[1] + 30))
    assert changed() > 0.01
    opened.wheel(*middle, -240)
    assert changed() > 0.01
    opened.evaluate("view.focus()")
    opened.press("ArrowLeft")
    assert changed() > 0.003
    opened.press("ArrowRight", shift=True)
    assert changed() > 0.003
    opened.press("0")
    opened.move_mouse(2, 2)
    assert changed() > 0.01
    assert np.mean(drawn(before) != drawn(start)) < 0.002


@needs_browser
def test_tab_goes_through_the_images(opened):
    opened.evaluate("document.querySelector('.skip').focus()")
    for image in range(3):
        opened.press("Tab")
        opened.wait_for(
            f"document.querySelector('.shot[aria-pressed=true]')?.dataset.image === '{image}'"
        )


@needs_browser
def test_other_model_is_shown_by_its_tab_and_by_its_images(opened):
    first = seen_pixels(opened)
    assert opened.evaluate(
        "[...document.querySelectorAll('#models span')].map(s => s.textContent)"
    ) == ["Model 0 4 images, 400 points", "Model 1 2 images, 50 points"]
    opened.evaluate("document.querySelector('#models input[value=\"1\"]').click()")
    ready(opened)
    second = seen_pixels(opened)
    assert np.mean(drawn(first) != drawn(second)) > 0.01
    opened.evaluate("document.querySelectorAll('.shot')[1].click()")
    assert opened.evaluate("document.querySelector('#models input:checked').value") == "0"
    opened.evaluate("document.querySelectorAll('.shot')[6].click()")
    text = opened.evaluate("document.getElementById('pane-image').innerText")
    assert "In no model." in text


@needs_browser
def test_look_through_a_camera_and_back(opened):
    opened.evaluate("document.querySelectorAll('.shot')[2].click()")
    ready(opened)
    before = seen_pixels(opened)
    opened.evaluate("document.getElementById('through').click()")
    ready(opened)
    pixels = seen_pixels(opened)
    # Its photograph, of one colour, fills most of the view, in its own proportions.
    photo = np.abs(pixels[..., 2] - pixels[..., 0] - 0.6 * 80) < 25
    rows, columns = np.nonzero(photo & (pixels.sum(axis=2) > 150))
    extent = np.ptp(np.percentile(columns, [1, 99])), np.ptp(np.percentile(rows, [1, 99]))
    assert extent[0] / extent[1] == pytest.approx(4 / 3, rel=0.1)
    assert extent[1] > 0.6 * pixels.shape[0]
    opened.evaluate("document.getElementById('through').click()")
    ready(opened)
    assert np.mean(drawn(seen_pixels(opened)) != drawn(before)) < 0.01


@needs_browser
def test_dark_and_light(opened):
    grey = {}
    for dark in (False, True):
        opened.resize(1280, 900, dark=dark)
        ready(opened)
        grey[dark] = [seen_pixels(opened, node).mean() for node in ("inspector", "strip")]
        assert drawn(seen_pixels(opened)).mean() > 0.01
    assert min(grey[False]) > 150
    assert grey[True][0] < 90


@needs_browser
def test_narrow_screen_needs_no_scrolling_sideways(opened):
    opened.resize(390, 844)
    ready(opened)
    for image in range(2):
        assert opened.evaluate("document.documentElement.scrollWidth") == 390
        view, panel = box_of(opened, "space"), box_of(opened, "inspector")
        assert panel[1] >= view[1] + view[3]
        assert drawn(seen_pixels(opened)).mean() > 0.005
        # What follows the panel is below it and all that it holds.
        strip = box_of(opened, "strip")
        assert strip[1] >= panel[1] + panel[3]
        opened.evaluate(f"document.querySelectorAll('.shot')[{image}].click()")
        ready(opened)
        assert opened.evaluate(
            "[...document.querySelectorAll('#pane-image > *')].every(node => "
            "node.getBoundingClientRect().bottom <= inspector.getBoundingClientRect().bottom)"
        )


@needs_browser
def test_two_fingers_zoom(opened):
    opened.resize(390, 844)
    opened.evaluate("space.scrollIntoView({block: 'center'})")
    ready(opened)
    before = drawn(seen_pixels(opened)).mean()
    x, y = opened.evaluate(
        "(r => [r.left + r.width / 2, r.top + r.height / 2])(space.getBoundingClientRect())"
    )
    opened.touch(*[[(x - d, y), (x + d, y)] for d in (20, 30, 40, 50)])
    ready(opened)
    assert drawn(seen_pixels(opened)).mean() > 1.5 * before


@needs_browser
def test_without_webgl_everything_works(opened, url):
    with opened_after(opened, url, NO_WEBGL):
        assert "WebGL is not available" in opened.evaluate("blind.textContent")
        assert opened.evaluate("blind.checkVisibility()")
        opened.click(*cell_place(opened, 0, 1))
        opened.wait_for("document.getElementById('pane-pair').innerText.includes('120, 2 drawn')")
        opened.evaluate("document.querySelectorAll('.shot')[1].click()")
        opened.wait_for("document.querySelectorAll('#pane-image .pair-row').length === 2")
        before = seen_pixels(opened)
        opened.evaluate("view.focus()")
        opened.press("ArrowLeft")
        ready(opened)
        assert np.mean(drawn(seen_pixels(opened)) != drawn(before)) > 0.003


@needs_browser
def test_without_any_graphics_the_rest_works(opened, url):
    blind = NO_WEBGL.replace('kind.startsWith("webgl")', 'this.id === "view"')
    with opened_after(opened, url, blind):
        assert "the model cannot be shown" in opened.evaluate("blind.textContent")
        assert opened.evaluate("blind.checkVisibility()")
        opened.click(*cell_place(opened, 0, 1))
        opened.wait_for("document.getElementById('pane-pair').innerText.includes('120, 2 drawn')")
        opened.evaluate("document.querySelectorAll('.shot')[5].click()")
        opened.wait_for("document.querySelectorAll('#pane-image .pair-row').length === 1")


@needs_browser
def test_page_without_a_model(opened, tmp_path):
    written(tmp_path, ([], make_images(tmp_path, 7), make_pairs()[2:3]))
    opened.open((tmp_path / "index.html").as_uri())
    ready(opened)
    assert "There is no model to show." in opened.evaluate("blind.textContent")
    opened.click(*cell_place(opened, 3, 0))
    opened.wait_for("document.getElementById('pane-pair').innerText.includes('Refused')")
    opened.press("Escape")
    opened.events[:] = [e for e in opened.events if "Network" not in e["method"]]

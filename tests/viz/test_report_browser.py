"""The report in a real browser: it is opened, pointed at, tapped and walked over with the keys."""

import dataclasses

import numpy as np
import pytest

from manymatch import assess, estimate_relative_pose
from manymatch.estimate.words import describe_pose
from manymatch_lab.datasets.synthetic import DEMO, make_scene
from tests.support.browser import Browser, find_chromium
from tests.support.match_results import made_result
from tests.support.synthetic_alternatives import with_alternatives

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="needs Chromium: apt-get install chromium, or MANYMATCH_CHROMIUM=/path/to/it",
)


@pytest.fixture(scope="module")
def scene():
    return make_scene(DEMO, 2)


@pytest.fixture(scope="module")
def estimate(scene):
    found = estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)
    return dataclasses.replace(found, alternatives=())


COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


def complaints(browser):
    return [event for event in browser.events if event["method"] in COMPLAINTS]


@pytest.fixture(scope="module")
def url(scene, estimate, tmp_path_factory):
    width, height = scene.size
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=2).astype(np.uint8)
    rank_one = estimate_relative_pose(
        scene.graph.up_to_rank(1), scene.camera0, scene.camera1, method="cm"
    )
    result = made_result(
        scene,
        estimate,
        images=(image, image[:, ::-1, 0]),
        names=("a_very_long_name_without_any_spaces_" * 3 + ".jpg", "b.jpg"),
        notes=["A note."],
        rank_one=rank_one,
    )
    path = tmp_path_factory.mktemp("report") / "a report & more.html"
    command = "manymatch demo " + 40 * "--long-option "
    return result.report(path, command=command, true_pose=scene.pose).as_uri()


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
    yield browser
    browser.evaluate("1")
    assert complaints(browser) == []
    asked = {
        event["params"]["request"]["url"].partition(",")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {url, "data:image/jpeg;base64"}


def place_of(browser, scene, side, keypoint, block="center"):
    """Where a keypoint is in the window, scrolled into view, by our own reckoning."""
    browser.evaluate(f"document.getElementById('panel{side}').scrollIntoView({{block: '{block}'}})")
    corner, extent = panel_box(browser, side)
    point = (scene.graph.points0, scene.graph.points1)[side][keypoint]
    return (corner + (point + 0.5) / scene.size * extent).tolist()


def lonely_keypoint(scene, estimate, side):
    """Matched keypoint with several candidates, farther than 25 px from every other."""
    points = (scene.graph.points0, scene.graph.points1)[side]
    degree = scene.graph.degrees()[side]
    for keypoint in estimate.matches[:, side]:
        distance = np.linalg.norm(points - points[keypoint], axis=1)
        distance[keypoint] = np.inf
        if degree[keypoint] > 1 and distance.min() > 25:
            return int(keypoint)
    raise AssertionError("no keypoint stands alone")


def check_shown(browser, scene, estimate, side, keypoint):
    """See candidates with rank and similarity, the chosen one and the epipolar line."""
    graph, far = scene.graph, 1 - side
    edges = np.flatnonzero(graph.edges[:, side] == keypoint)
    browser.wait_for(f"detail.textContent.includes('Keypoint {keypoint} of image {side}')")
    items = browser.evaluate(
        "[...document.querySelectorAll('#detail li:not(.self)')].map("
        "li => [li.innerText, li.className])"
    )
    assert len(items) == len(edges)
    partner = int(estimate.matches[estimate.matches[:, side] == keypoint][0, far])
    for (text, kind), edge in zip(items, edges, strict=True):
        assert f"rank {graph.rank[edge]}\n" in text
        assert f"similarity {graph.similarity[edge]:.3f}" in text
        is_chosen = graph.edges[edge, far] == partner
        assert ("probability 0." in text or "probability 1." in text) == is_chosen
        assert (kind == "chosen") == is_chosen
        assert (text.split("\n")[1] == "chosen") == is_chosen
    marks = browser.evaluate(
        "[...document.querySelectorAll('#overlay .candidate')].map(g => "
        "[g.classList.contains('chosen'), g.textContent, ...(r => [r.left + r.width / 2, "
        "r.top + r.height / 2])(g.querySelector('circle').getBoundingClientRect())])"
    )
    assert len(marks) == len(edges)
    assert sorted(text for _, text, *_ in marks) == sorted(str(r) for r in graph.rank[edges])
    [chosen] = [place for is_chosen, _, *place in marks if is_chosen]
    assert chosen == pytest.approx(place_of(browser, scene, far, partner), abs=1.0)
    check_epipolar_line(browser, scene, estimate, side, keypoint)


def check_epipolar_line(browser, scene, estimate, side, keypoint):
    """Compare the drawn line with the one the essential matrix gives."""
    [drawn] = browser.evaluate(
        "[...document.querySelectorAll('#overlay .epipolar')].map(l => [...l.points].map(p => "
        "[p.x, p.y]))"
    )
    box = browser.evaluate(
        "(([p, s]) => [p.left - s.left, p.top - s.top, p.width, p.height])"
        f"([panel{1 - side}, stage].map(e => e.getBoundingClientRect()))"
    )
    cameras = (scene.camera0, scene.camera1)
    points = (scene.graph.points0, scene.graph.points1)[side]
    E = estimate.pose.essential()
    ray = np.append(cameras[side].unproject(points[keypoint][None])[0], 1.0)
    line = np.linalg.inv(cameras[1 - side].K).T @ (E if side == 0 else E.T) @ ray
    line = line / np.hypot(line[0], line[1])
    assert len(drawn) >= 2
    for x, y in drawn:
        pixel = [(x - box[0]) / box[2] * scene.size[0] - 0.5]
        pixel += [(y - box[1]) / box[3] * scene.size[1] - 0.5, 1.0]
        assert abs(line @ pixel) < 0.5


@pytest.mark.parametrize("side", [0, 1])
def test_pointing_at_a_keypoint_shows_its_candidates(opened, scene, estimate, side):
    assert opened.evaluate("document.querySelectorAll('#overlay .candidate').length") == 0
    keypoint = lonely_keypoint(scene, estimate, side)
    opened.move_mouse(*place_of(opened, scene, side, keypoint))
    check_shown(opened, scene, estimate, side, keypoint)
    # Away from the images everything is gone again.
    opened.move_mouse(2, 2)
    opened.wait_for("overlay.childElementCount === 0 && detail.querySelector('.hint') !== null")


def test_click_holds_the_keypoint_until_escape(opened, scene, estimate):
    keypoint = lonely_keypoint(scene, estimate, 0)
    opened.click(*place_of(opened, scene, 0, keypoint))
    opened.move_mouse(2, 2)
    check_shown(opened, scene, estimate, 0, keypoint)
    opened.press("Escape")
    opened.wait_for("overlay.childElementCount === 0")


def test_tap_on_a_phone_shows_candidates(opened, scene, estimate):
    opened.resize(390, 844)
    opened.wait_for("document.body.classList.contains('stacked')")
    below = "panel1.getBoundingClientRect().top >= panel0.getBoundingClientRect().bottom"
    opened.wait_for(below)
    keypoint = lonely_keypoint(scene, estimate, 1)
    x, y = place_of(opened, scene, 1, keypoint, "end")
    opened.touch([(x, y)])
    # On so small a screen another keypoint may be as near as this one.
    opened.wait_for("detail.textContent.includes('of image 1')")
    assert opened.evaluate("document.querySelectorAll('#overlay .candidate').length") > 0
    assert opened.evaluate("document.querySelectorAll('#overlay .epipolar').length") == 1
    # The candidates are in view together with the images, and not over them.
    top, bottom, sheet, end = opened.evaluate(
        "[stage, detail].flatMap(e => (r => [r.top, r.bottom])(e.getBoundingClientRect()))"
    )
    assert 0 <= top < bottom <= sheet < end <= 844


@pytest.mark.parametrize("size", [(1280, 800), (1440, 900), (1920, 1080)])
def test_first_screen_has_verdict_numbers_images_and_candidates(opened, size):
    """Without scrolling, before and after a keypoint is held; all else is folded."""
    opened.resize(*size)
    settled(opened)
    for _ in range(2):
        verdict, numbers, stage, side = opened.evaluate(
            "['.said', '.numbers', '#stage', '#detail'].map(name => (r => [r.left, r.top, r.right, "
            "r.bottom])(document.querySelector(name).getBoundingClientRect()))"
        )
        for box in (verdict, numbers, stage, side):
            assert 0 <= box[0] < box[2] <= size[0]
            assert 0 < box[1] < box[3] <= size[1]
        # The candidates are beside the images or below them, never over them.
        assert stage[2] <= side[0] or stage[3] <= side[1]
        assert opened.evaluate("scrollY") == 0
        opened.evaluate("document.getElementById('step').click()")
    assert opened.evaluate("document.querySelectorAll('.numbers dt').length") == 3
    assert opened.evaluate(
        "[...document.querySelectorAll('.card')].every(c => c.closest('details'))"
    )
    assert not opened.evaluate("document.querySelector('details[open]')")


def test_landscape_photographs_use_the_width_of_a_wide_screen(opened):
    opened.resize(1920, 1080)
    settled(opened)
    _, extent = panel_box(opened, 0)
    assert 2 * extent[0] > 0.75 * opened.evaluate("document.querySelector('.split').clientWidth")
    assert opened.evaluate(
        "detail.getBoundingClientRect().top > stage.getBoundingClientRect().bottom"
    )


def test_folded_parts_are_printed(opened):
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate("[...document.querySelectorAll('details')].every(d => d.open)")


def transforms(browser):
    """Scale and move of the two photographs, as the browser draws them."""
    return browser.evaluate(
        "['panel0', 'panel1'].map(id => (m => [m.a, m.e, m.f])(new DOMMatrix("
        "getComputedStyle(document.querySelector(`#${id} img`)).transform)))"
    )


def settled(browser):
    """Wait until what changed is drawn."""
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")


WHOLE = [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("side", [0, 1])
def test_wheel_zooms_at_the_mouse_and_double_click_resets(opened, scene, estimate, side):
    keypoint = lonely_keypoint(scene, estimate, side)
    place = place_of(opened, scene, side, keypoint)
    before = painted(opened)
    assert transforms(opened) == WHOLE
    opened.move_mouse(*place)
    # Just after the page was scrolled, the wheel goes on scrolling it.
    opened.evaluate("new Promise(done => setTimeout(done, 350))")
    for _ in range(3):
        opened.wheel(*place, -120)
    opened.wait_for(f"document.getElementById('panel{side}').classList.contains('zoomed')")
    settled(opened)
    scale, x, y = transforms(opened)[side]
    assert 1.5 < scale < 4
    assert transforms(opened)[1 - side] == [1, 0, 0]
    # The keypoint stays under the mouse, and matches out of sight are not drawn.
    corner, extent = panel_box(opened, side)
    fraction = ((scene.graph.points0, scene.graph.points1)[side][keypoint] + 0.5) / scene.size
    np.testing.assert_allclose(corner + (x, y) + scale * fraction * extent, place, atol=1.5)
    assert painted(opened) < before
    for count in (1, 2):
        opened.click(*place, count=count)
    opened.wait_for("document.getElementById('reset').disabled")
    settled(opened)
    assert transforms(opened) == WHOLE


def panel_box(browser, side):
    """Corner and size of an image's frame in the window."""
    box = browser.evaluate(
        f"(r => [r.left, r.top, r.width, r.height])"
        f"(document.getElementById('panel{side}').getBoundingClientRect())"
    )
    return np.array(box[:2]), np.array(box[2:])


def test_dragging_moves_the_image_and_its_lines(opened, scene, estimate):
    keypoint = lonely_keypoint(scene, estimate, 0)
    opened.click(*place_of(opened, scene, 0, keypoint))
    for _ in range(3):
        opened.evaluate("document.getElementById('in').click()")
    settled(opened)
    ends = "(l => [l.x1, l.y1, l.x2, l.y2].map(v => v.baseVal.value))"
    ends += "(document.querySelector('#overlay .link.chosen'))"
    before, old = opened.evaluate(ends), transforms(opened)
    assert old[0][0] == old[1][0] == pytest.approx(1.5**3)
    corner, extent = panel_box(opened, 1)
    opened.drag(corner + extent / 2, corner + extent / 2 - [30, 20])
    settled(opened)
    after, new = opened.evaluate(ends), transforms(opened)
    moved = np.subtract(new[1][1:], old[1][1:])
    assert new[0] == old[0]
    assert np.abs(moved).max() > 15
    np.testing.assert_allclose(np.subtract(after, before), [0, 0, *moved], atol=0.6)
    # The keypoint is still held, and no image leaves its frame.
    assert f"Keypoint {keypoint} of image 0" in opened.evaluate("detail.textContent")
    for _ in range(4):
        opened.drag(corner + 10, corner + extent - 10)
    settled(opened)
    assert transforms(opened)[1][1:] == [0, 0]


def test_keys_zoom_move_and_reset(opened):
    opened.evaluate("panel0.focus()")
    opened.wait_for("/Keypoint \\d+ of image 0/.exec(detail.textContent)?.[0]")
    for _ in range(4):
        opened.press("+")
    settled(opened)
    zoomed = transforms(opened)
    assert zoomed[0][0] == zoomed[1][0] == pytest.approx(1.5**4)
    opened.press("ArrowLeft", shift=True)
    opened.press("ArrowUp", shift=True)
    settled(opened)
    moved = transforms(opened)
    assert moved[0][1] > zoomed[0][1]
    assert moved[0][2] > zoomed[0][2]
    assert moved[1] == zoomed[1]
    # The view follows the arrow keys.
    for _ in range(6):
        opened.press("ArrowRight")
        settled(opened)
        assert opened.evaluate("document.querySelectorAll('#overlay .here').length") == 1
    opened.press("0")
    settled(opened)
    assert transforms(opened) == WHOLE


def test_two_fingers_zoom_and_one_finger_moves(opened):
    opened.resize(390, 844)
    opened.evaluate("stage.scrollIntoView({block: 'center'})")
    settled(opened)
    corner, extent = panel_box(opened, 0)
    x, y = corner + extent / 2
    opened.touch(*[[(x - d, y), (x + d, y)] for d in (20, 30, 45, 60)])
    opened.wait_for("panel0.classList.contains('zoomed')")
    settled(opened)
    scale, *place = transforms(opened)[0]
    assert scale == pytest.approx(3, rel=0.02)
    # The middle of the fingers stays where it is, and so does the page.
    np.testing.assert_allclose(place, -(scale - 1) * extent / 2, atol=1)
    np.testing.assert_allclose(panel_box(opened, 0)[0], corner, atol=0.5)
    opened.touch(*[[(x + d, y + d)] for d in (0, 10, 20, 30)])
    settled(opened)
    moved = np.subtract(transforms(opened)[0][1:], place)
    assert np.all((moved > 15) & (moved < 31))
    assert "held" not in opened.evaluate("detail.textContent")


def test_several_results_in_one_notebook(browser, scene, estimate, tmp_path):
    """Frames on a page with styles and names of its own: each works, and nothing gets out."""
    images = (np.full((480, 640, 3), 90, np.uint8),) * 2
    views = [
        made_result(scene, estimate, images=images, names=(name, "b.jpg"))._repr_html_()
        for name in ("first </iframe>.jpg", "second.jpg")
    ]
    path = tmp_path / "notebook.html"
    text = "<!doctype html><style>div, p { display: none } h2 { font-size: 99px }</style>"
    path.write_text(text + "<b id=stage></b>".join(views), encoding="utf-8")
    browser.events.clear()
    browser.resize(1000, 1200)
    browser.open(path.as_uri())
    assert browser.evaluate("frames.length") == 2
    assert browser.evaluate("document.querySelectorAll('canvas, svg, img, script').length") == 0
    frames = sorted(browser.frames(), key=lambda read: "second" in read("document.title"))
    assert len(frames) == 2
    for k, name in ((0, "first </iframe>.jpg"), (1, "second.jpg")):
        read = frames[k]
        assert name in read("document.body.innerText")
        assert f"Matches {len(estimate.matches)}" in read("document.body.innerText")
        assert read("[...document.images].every(i => i.naturalWidth > 0)")
        assert read("getComputedStyle(document.querySelector('h2')).fontSize") != "99px"
        assert read("document.getElementById('bulk').width") > 300
        # All of it is in the frame.
        assert read("document.documentElement.scrollHeight <= innerHeight")
    frames[0]("document.getElementById('in').click()")
    frames[0]("document.getElementById('step').click()")
    zoomed = "document.querySelector('#panel0 img').style.transform"
    assert "scale(1.5)" in frames[0](zoomed)
    assert frames[1](zoomed) == ""
    assert "Keypoint" in frames[0]("document.getElementById('detail').textContent")
    assert "Keypoint" not in frames[1]("document.getElementById('detail').textContent")
    assert complaints(browser) == []


def test_keyboard_reaches_everything(opened):
    for _ in range(12):
        opened.press("Tab")
        if opened.evaluate("document.activeElement.id") == "panel0":
            break
    first = opened.wait_for("/Keypoint \\d+ of image 0/.exec(detail.textContent)?.[0]")
    opened.press("ArrowRight")
    assert opened.wait_for("/Keypoint \\d+ of image 0/.exec(detail.textContent)?.[0]") != first
    assert opened.evaluate("document.querySelectorAll('#overlay .candidate').length") > 0
    opened.press("Enter")
    opened.wait_for("detail.textContent.includes('held')")
    opened.press("Escape")
    opened.wait_for("overlay.childElementCount === 0")


def painted(browser):
    """Share of the overlay that is drawn on."""
    return browser.evaluate(
        "(bulk => { const copy = document.createElement('canvas');"
        "[copy.width, copy.height] = [bulk.width, bulk.height];"
        "const context = copy.getContext('2d', { willReadFrequently: true });"
        "context.drawImage(bulk, 0, 0);"
        "const d = context.getImageData(0, 0, copy.width, copy.height).data;"
        "let n = 0; for (let k = 3; k < d.length; k += 4) n += d[k] > 0;"
        "return n / (copy.width * copy.height); })(document.getElementById('bulk'))"
    )


def test_layers_can_be_switched(opened, estimate):
    shares = {}
    for layer in ("matches", "candidates", "other1", "none"):
        opened.evaluate(f"document.querySelector('input[value={layer}]').click()")
        shares[layer] = painted(opened)
    assert shares["none"] == 0
    assert shares["candidates"] > shares["matches"] > 0.001
    assert shares["other1"] > 0.001
    assert f"Matches {len(estimate.matches)}" in opened.evaluate("document.body.innerText")


def test_matches_beyond_rank_one_can_be_stepped_through(opened, scene, estimate):
    beyond = {
        int(i)
        for (i, j), rank in zip(scene.graph.edges, scene.graph.rank, strict=True)
        if rank > 1 and [i, j] in estimate.matches.tolist()
    }
    assert beyond
    said = "/Keypoint (\\d+) of image 0/.exec(detail.textContent)?.[1]"
    seen = set()
    for _ in beyond:
        opened.evaluate("document.getElementById('step').click()")
        seen.add(int(opened.wait_for(said)))
    assert seen == beyond


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_page_fits_the_window_and_text_has_contrast(opened, width, dark):
    opened.resize(width, 800, dark=dark)
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.evaluate("document.getElementById('step').click()")
    opened.wait_for(f"document.documentElement.clientWidth === {width}")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    # Nothing is cut off but what scrolls by itself.
    cut = opened.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('pre, .scroll, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    )
    assert cut == []
    assert contrast(opened, ".said") > 7
    names = (".reason", ".quiet", ".pill.good", ".detail small", "dt", ".layers b", ".zoom output")
    for name in (*names, ".captions small", ".patches .tag", ".patches .chosen .tag", "#step"):
        assert contrast(opened, name) > 4.5, name


def contrast(browser, selector):
    """Contrast of a text against what is behind it, by the formula of the WCAG."""
    colours = browser.evaluate(
        "(e => { const ink = getComputedStyle(e).color; let c;"
        "while ((c = getComputedStyle(e).backgroundColor) === 'rgba(0, 0, 0, 0)')"
        "e = e.parentElement;"
        f"return [ink, c].map(t => t.match(/[\\d.]+/g).slice(0, 3).map(Number)); }})"
        f"(document.querySelector('{selector}'))"
    )
    bright = []
    for colour in colours:
        c = np.array(colour) / 255
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        bright.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(bright) / min(bright)


@pytest.fixture
def ambiguous(browser, scene, estimate, tmp_path):
    """A page with two alternatives, and the estimate that has them."""
    several = with_alternatives(estimate)
    confidence = dataclasses.replace(assess(several), verdict="ambiguous", reason="A reason.")
    image = np.full((scene.size[1], scene.size[0], 3), 70, np.uint8)
    result = made_result(scene, several, images=(image, image), confidence=confidence)
    path = result.report(tmp_path / "r.html")
    browser.events.clear()
    browser.resize(1280, 900)
    browser.open(path.as_uri())
    yield browser, several
    assert complaints(browser) == []


def poses_shown(browser):
    """What the page shows of a pose: everything that has to change with it."""
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    return browser.evaluate(
        "({ said: said.textContent,"
        "chosen: document.querySelector('input[name=pose]:checked').value,"
        "count: document.querySelector('input[value=matches] + span b').textContent,"
        "parts: [...new Set([...document.querySelectorAll('[data-pose]')]"
        ".filter(e => e.checkVisibility()).map(e => e.dataset.pose))].join(),"
        "text: [...document.querySelectorAll('.card pre')].filter(e => e.checkVisibility())"
        ".map(e => e.textContent).join(),"
        "line: document.querySelector('.epipolar')?.getAttribute('points') ?? '',"
        "drawn: document.getElementById('bulk').toDataURL().length })"
    )


def test_reader_flips_between_poses(ambiguous):
    browser, several = ambiguous
    matches = [several.matches, *(other.matches for other in several.alternatives)]
    poses = [several.pose, *(other.model for other in several.alternatives)]
    # The keypoint that is held stays, so that its epipolar lines can be compared.
    browser.evaluate("document.getElementById('step').click()")
    held = browser.evaluate("/Keypoint \\d+ of image 0/.exec(detail.textContent)[0]")
    seen = []
    for k in (0, 1, 2):
        browser.evaluate(f"document.querySelectorAll('input[name=pose]')[{k}].click()")
        state = poses_shown(browser)
        assert state["chosen"] == state["parts"] == str(k)
        assert state["count"] == str(len(matches[k]))
        assert f"{len(matches[k])} matches out of" in state["said"]
        assert describe_pose(poses[k]) in state["said"]
        assert f"{poses[k].R[0, 0]: .6f}" in state["text"]
        assert held in browser.evaluate("detail.textContent")
        seen.append(state)
    for name in ("said", "text", "line", "drawn"):
        assert len({state[name] for state in seen}) == 3, name
    for name in ("#said", ".poses input:checked + span", ".poses b"):
        assert contrast(browser, name) > 4.5, name


def test_poses_can_be_flipped_with_the_keyboard(ambiguous):
    browser, _ = ambiguous
    browser.evaluate("document.querySelector('input[name=pose]').focus()")
    # Radio buttons: arrows choose, and the state is announced.
    browser.press("ArrowRight")
    browser.wait_for("document.querySelector('input[name=pose]:checked').value === '1'")
    assert poses_shown(browser)["parts"] == "1"
    assert browser.evaluate("said.getAttribute('role')") == "status"
    assert browser.evaluate("document.querySelector('.poses legend').textContent") == "Pose"
    browser.evaluate("panel0.focus()")
    for expected in ("2", "0", "1"):
        browser.press("p")
        checked = "document.querySelector('input[name=pose]:checked').value"
        browser.wait_for(f"{checked} === {expected!r}")
        assert poses_shown(browser)["parts"] == expected
    assert "P shows the next pose" in browser.evaluate("panel0.getAttribute('aria-label')")


def test_ambiguous_result_fits_into_its_frame(browser, scene, estimate, tmp_path):
    several = with_alternatives(estimate)
    confidence = dataclasses.replace(assess(several), verdict="ambiguous", reason=20 * "Why ")
    image = np.full((480, 640, 3), 90, np.uint8)
    result = made_result(scene, several, images=(image, image), confidence=confidence)
    cell = result._repr_html_()
    (tmp_path / "cell.html").write_text(f"<body style='width:760px'>{cell}", encoding="utf-8")
    browser.resize(800, 900)
    browser.open((tmp_path / "cell.html").as_uri())
    [read] = browser.frames()
    assert read("document.documentElement.scrollHeight <= innerHeight")
    assert read("document.querySelectorAll('input[name=pose]').length") == 2
    read("document.querySelectorAll('input[name=pose]')[1].click()")
    assert "right with probability 30 %" in read("said.textContent")

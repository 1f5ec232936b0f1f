"""The report in a real browser: it is opened, pointed at, tapped and walked over with the keys."""

import numpy as np
import pytest

from manymatch import estimate_relative_pose
from manymatch.datasets.synthetic import DEMO, make_scene
from manymatch.viz.report import write_report
from tests.support.browser import Browser, find_chromium

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="needs Chromium: apt-get install chromium, or MANYMATCH_CHROMIUM=/path/to/it",
)


@pytest.fixture(scope="module")
def scene():
    return make_scene(DEMO, 2)


@pytest.fixture(scope="module")
def estimate(scene):
    return estimate_relative_pose(scene.graph, scene.camera0, scene.camera1)


@pytest.fixture(scope="module")
def url(scene, estimate, tmp_path_factory):
    width, height = scene.size
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=2).astype(np.uint8)
    rank_one = estimate_relative_pose(
        scene.graph.up_to_rank(1), scene.camera0, scene.camera1, method="cm"
    )
    path = write_report(
        tmp_path_factory.mktemp("report") / "a report & more.html",
        images=(image, image[:, ::-1, 0]),
        graph=scene.graph,
        estimate=estimate,
        camera0=scene.camera0,
        camera1=scene.camera1,
        command="manymatch demo " + 40 * "--long-option ",
        config={"options": {"seed": 0}},
        names=("a_very_long_name_without_any_spaces_" * 3 + ".jpg", "b.jpg"),
        notes=["A note."],
        others=[("rank-one + CM", rank_one, 12.0)],
        error_deg=0.5,
    )
    return path.as_uri()


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
    complaints = [
        event
        for event in browser.events
        if event["method"]
        in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    ]
    assert complaints == []
    asked = {
        event["params"]["request"]["url"].partition(",")[0]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {url, "data:image/jpeg;base64"}


def place_of(browser, scene, side, keypoint):
    """Where a keypoint is in the window, scrolled into view, by our own reckoning."""
    browser.evaluate(f"document.getElementById('panel{side}').scrollIntoView({{block: 'center'}})")
    box = browser.evaluate(
        f"(r => [r.left, r.top, r.width, r.height])"
        f"(document.getElementById('panel{side}').getBoundingClientRect())"
    )
    points = (scene.graph.points0, scene.graph.points1)[side]
    return [box[k] + (points[keypoint][k] + 0.5) / scene.size[k] * box[2 + k] for k in (0, 1)]


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
        assert ("chosen" in text.split("\n")[-1].split(", ")[:1]) == is_chosen
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


def test_a_click_holds_the_keypoint_until_escape(opened, scene, estimate):
    keypoint = lonely_keypoint(scene, estimate, 0)
    opened.click(*place_of(opened, scene, 0, keypoint))
    opened.move_mouse(2, 2)
    check_shown(opened, scene, estimate, 0, keypoint)
    opened.press("Escape")
    opened.wait_for("overlay.childElementCount === 0")


def test_a_tap_on_a_phone(opened, scene, estimate):
    opened.resize(390, 844)
    opened.wait_for("document.body.classList.contains('stacked')")
    below = "panel1.getBoundingClientRect().top >= panel0.getBoundingClientRect().bottom"
    opened.wait_for(below)
    keypoint = lonely_keypoint(scene, estimate, 1)
    x, y = place_of(opened, scene, 1, keypoint)
    opened.page("Emulation.setTouchEmulationEnabled", enabled=True)
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        opened.page("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    # On so small a screen another keypoint may be as near as this one.
    opened.wait_for("detail.textContent.includes('of image 1')")
    assert opened.evaluate("document.querySelectorAll('#overlay .candidate').length") > 0
    assert opened.evaluate("document.querySelectorAll('#overlay .epipolar').length") == 1
    opened.page("Emulation.setTouchEmulationEnabled", enabled=False)


def test_the_keyboard_reaches_everything(opened):
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
def test_nothing_sticks_out_and_text_can_be_read(opened, width, dark):
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
    for name in (".reason", ".quiet", ".pill.good", ".detail small", "dt"):
        assert contrast(opened, name) > 4.5


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

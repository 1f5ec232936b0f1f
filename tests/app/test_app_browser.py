"""The app in a real browser: what a person does from the first drop to the last download."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
import zipfile

import numpy as np
import pytest
from PIL import Image

from tests.app.conftest import DEMO, RunningApp
from tests.support.browser import Browser

STREET = (DEMO / "street2.jpg", DEMO / "street3.jpg")
COURTYARD = (DEMO / "courtyard/images/00.jpg", DEMO / "courtyard/images/01.jpg")
FRAME = "document.querySelector('#stage iframe')"
# The number of pages that the frame has shown, before and after something changes it.
KEEP = f"window.before = {FRAME}?.dataset.pages"
CHANGED = f"{FRAME} !== null && {FRAME}.dataset.pages !== window.before"
DRAWN = f"{FRAME}.dataset.told === 'true'"
pytestmark = pytest.mark.nightly


def wait_for_element(browser, selector):
    browser.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")


def open_page(browser, app, width=1440, height=900, *, dark=False):
    browser.resize(width, height, dark=dark)
    browser.page("Page.navigate", url=app.address)
    wait_for_element(browser, "#match")
    wait_for_element(browser, "#photo1 input[type=file]")
    # Until nothing moves any more.
    place, before = "JSON.stringify(document.querySelector('#match').getBoundingClientRect())", ""
    while (now := browser.evaluate(place)) != before:
        before = now
        time.sleep(0.5)


def give(browser, pair):
    for side, path in enumerate(pair):
        browser.choose_file(f"#photo{side} input[type=file]", path)
        wait_for_element(browser, f"#photo{side} img")


def click(browser, name):
    browser.evaluate(f"document.querySelector('{name}').click()")


def match(browser):
    """Press the button; return the text of the page that appears."""
    browser.evaluate(KEEP)
    click(browser, "#match")
    browser.wait_for(CHANGED)
    return page_text(browser)


def page_text(browser):
    browser.wait_for(DRAWN)
    return browser.frames()[-1]("document.body.innerText")


def shown_code(browser, name):
    lines = (
        f"[...document.querySelectorAll('#{name} .cm-line')].map(l => l.textContent).join('\\n')"
    )
    return browser.evaluate(lines)


def alert(browser):
    return browser.wait_for("document.querySelector('#cards [role=alert]')?.innerText")


def asked_elsewhere(browser):
    """Addresses of all requests that left this machine."""
    urls = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    local = ("http://127.0.0.1:", "data:", "blob:", "about:", "ws://127.0.0.1:")
    return [url for url in urls if not url.startswith(local)]


def test_from_drop_to_download(app, browser, tmp_path):
    open_page(browser, app)
    for side, path in enumerate(STREET):
        browser.drop(f"#photo{side} button", path)
        wait_for_element(browser, f"#photo{side} img")
    text = match(browser)
    assert "matches" in text
    # The frame is as high as its content, so that nothing scrolls within it.
    browser.wait_for(DRAWN)
    [read] = browser.frames()
    assert read("document.querySelector('.pill').innerText.length") > 3
    assert read("document.documentElement.scrollHeight - innerHeight") <= 2
    read("document.getElementById('step').click()")
    assert "Keypoint" in read("document.getElementById('detail').textContent")
    assert read("document.querySelectorAll('#overlay .epipolar').length") == 1
    # Other settings are solved again, and the command follows.
    browser.evaluate(KEEP)
    browser.evaluate("document.querySelector('#seed input').focus()")
    browser.evaluate("document.querySelector('#seed input').select()")
    browser.type_text("7")
    browser.wait_for(CHANGED)
    browser.wait_for("document.querySelector('#command').textContent.includes('--seed 7')")
    assert "seed=7" in shown_code(browser, "python")
    # All files.
    browser.download_to(tmp_path)
    browser.evaluate(
        "document.querySelectorAll('#wanted input:not(:checked)').forEach(i => i.click())"
    )
    click(browser, "#export")
    names = "[...document.querySelectorAll('#files a[download]')].map(a => a.download)"
    browser.wait_for(f"{names}.length >= 8")
    expected = {"report.html", "matches.png", "result.json", "config.toml", "matches.npz"}
    expected |= {f"matches-{form}.zip" for form in ("h5", "colmap", "colmap-db")}
    assert set(browser.evaluate(names)) == expected
    for number in range(8):
        browser.evaluate(f"document.querySelectorAll('#files a[download]')[{number}].click()")
        time.sleep(0.3)
    deadline = time.monotonic() + 30
    while {path.name for path in tmp_path.iterdir()} != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert {path.name for path in tmp_path.iterdir()} == expected
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["images"] == ["street2.jpg", "street3.jpg"]
    assert record["config"]["estimation"]["seed"] == 7
    assert "matches" in np.load(tmp_path / "matches.npz")
    assert set(zipfile.ZipFile(tmp_path / "matches-h5.zip").namelist()) >= {
        "features.h5",
        "matches.h5",
    }
    assert asked_elsewhere(browser) == []


def test_keyboard_alone_is_enough(app, browser, tmp_path):
    open_page(browser, app)
    seen = []
    for _ in range(60):
        browser.press("Tab")
        here = browser.evaluate(
            "(e => e.id || e.closest('[id]')?.id || e.textContent)(document.activeElement)"
        )
        seen.append(here)
        if browser.evaluate("document.activeElement.textContent.trim()") == "Another street":
            browser.press("Enter")
            browser.wait_for("document.querySelectorAll('#photo0 img, #photo1 img').length >= 2")
        if here == "match":
            break
    assert seen[-1] == "match", seen
    browser.press("Enter")
    wait_for_element(browser, "#stage iframe")
    # From the button on: settings, the frame, downloads.
    reached = set()
    for _ in range(60):
        browser.press("Tab")
        reached.add(
            browser.evaluate(
                "(e => e.tagName === 'IFRAME' ? 'frame' : e.id || e.closest('[id]')?.id || '')"
                "(document.activeElement)"
            )
        )
        if browser.evaluate("document.activeElement.id") == "export":
            break
    assert {"frame", "export", "wanted"} <= reached, reached
    # The files are made and saved without the mouse, too.
    browser.download_to(tmp_path)
    browser.press("Enter")
    browser.wait_for("document.querySelectorAll('#files a[download]').length === 2")
    for _ in range(20):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.matches('#files a[download]')"):
            break
    browser.press("Enter")
    deadline = time.monotonic() + 30
    while not (saved := list(tmp_path.glob("report.html"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert saved


@pytest.mark.parametrize("kind", ["text", "empty", "cut", "huge"])
def test_bad_files_end_with_one_sentence(app, browser, tmp_path, kind):
    bad = tmp_path / "bad.png"
    if kind == "text":
        bad.write_text("no image")
    elif kind == "empty":
        bad.write_bytes(b"")
    elif kind == "cut":
        Image.open(STREET[0]).save(bad)
        bad.write_bytes(bad.read_bytes()[:20_000])
    else:
        Image.new("1", (30_000, 20_000)).save(bad)
    open_page(browser, app)
    browser.choose_file("#photo0 input[type=file]", bad)
    browser.choose_file("#photo1 input[type=file]", STREET[1])
    wait_for_element(browser, "#photo1 img")
    time.sleep(1.0)
    click(browser, "#match")
    said = alert(browser)
    assert "bad.png" in said or "two photographs" in said
    assert "Traceback" not in said
    assert str(app.folder) not in said
    # The app goes on.
    browser.page("Page.reload")
    open_page(browser, app)
    give(browser, COURTYARD)
    assert "matches" in match(browser)


def test_file_larger_than_allowed_is_refused(app, browser, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (3500, 3500, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.png", compress_level=0)
    open_page(browser, app)
    browser.choose_file("#photo0 input[type=file]", tmp_path / "large.png")
    browser.wait_for("document.body.innerText.toLowerCase().includes('size')")


def test_bad_camera_and_missing_photograph(app, browser):
    open_page(browser, app)
    click(browser, "#match")
    assert "two photographs" in alert(browser)
    # It stays there, and can be seen.
    time.sleep(2.0)
    assert browser.evaluate("document.querySelector('#cards [role=alert]').checkVisibility()")
    assert browser.evaluate("document.querySelector('#match').ariaBusy") == "false"
    give(browser, COURTYARD)
    browser.evaluate("document.querySelector('#camera0 textarea, #camera0 input').focus()")
    browser.type_text("/etc/passwd")
    time.sleep(0.5)
    click(browser, "#match")
    browser.wait_for("document.querySelector('#cards').innerText.includes('Camera 0 must be')")


def test_two_users_see_their_own_results(app, browser):
    with Browser(patience=90) as other:
        open_page(browser, app)
        open_page(other, app)
        give(browser, STREET)
        give(other, COURTYARD)
        click(browser, "#match")
        click(other, "#match")
        for own, name in ((browser, "street2.jpg"), (other, "00.jpg")):
            wait_for_element(own, "#stage iframe")
            text = page_text(own)
            assert name in text
            assert ("00.jpg" if name != "00.jpg" else "street2.jpg") not in text
            assert name in shown_code(own, "command")


def test_hostile_file_name_is_neither_path_nor_html(app, browser, tmp_path):
    name = "..&#47;<img src=x onerror=document.title='hacked'>';$(touch hacked) \"`.jpg"
    hostile = tmp_path / name
    hostile.write_bytes(STREET[0].read_bytes())
    open_page(browser, app)
    give(browser, (hostile, STREET[1]))
    text = match(browser)
    assert "onerror" in text  # as a part of a plain name
    assert "<img src=x" not in browser.evaluate("document.body.innerHTML")
    time.sleep(0.5)
    assert browser.evaluate("document.title") == "manymatch"
    command = shown_code(browser, "command")
    assert "$(" not in command
    assert "<" not in command
    assert not list(app.folder.rglob("hacked"))


@pytest.mark.parametrize(
    ("example", "said"), [("A print on a wall", "Likely"), ("Nothing in common", "No match")]
)
def test_examples_are_matched(app, browser, example, said):
    open_page(browser, app)
    browser.evaluate(
        "[...document.querySelectorAll('.mm-example')]"
        f".find(e => e.textContent.trim() === {example!r}).click()"
    )
    browser.wait_for("document.querySelectorAll('#photo0 img, #photo1 img').length >= 2")
    assert match(browser).startswith(said)
    if said == "Likely":
        browser.wait_for("document.querySelectorAll('#view input').length === 2")
        browser.evaluate(KEEP)
        browser.evaluate("document.querySelectorAll('#view input')[1].click()")
        browser.wait_for(f"{FRAME}?.srcdoc.includes('one homography')")


def test_presets_side_by_side(app, browser):
    open_page(browser, app)
    give(browser, COURTYARD)
    browser.evaluate(
        "[...document.querySelectorAll('#presets label')]"
        ".find(l => l.innerText.trim() === 'embedded').querySelector('input').click()"
    )
    match(browser)
    browser.wait_for("document.querySelectorAll('#cards .mm-card').length === 2")
    assert browser.evaluate("document.querySelector('#cards').checkVisibility()")
    text = browser.evaluate("document.querySelector('#cards').innerText")
    assert "classic" in text
    assert "embedded" in text
    browser.wait_for("document.querySelectorAll('#shown input').length === 2")
    browser.evaluate(KEEP)
    browser.evaluate("document.querySelectorAll('#shown input')[1].click()")
    browser.wait_for(CHANGED)
    browser.wait_for("document.querySelector('#command').textContent.includes('embedded')")


def open_folder(browser, app, photos):
    """Open the tab of a folder and upload photographs: files, or numbers of the courtyard's."""
    paths = [
        DEMO / f"courtyard/images/{photo:02d}.jpg" if isinstance(photo, int) else photo
        for photo in photos
    ]
    open_page(browser, app)
    browser.evaluate(
        "[...document.querySelectorAll('button[role=tab]')]"
        ".find(t => t.innerText === 'A folder').click()"
    )
    wait_for_element(browser, "#folder input[type=file]")
    browser.choose_file("#folder input[type=file]", *paths)
    browser.wait_for(f"document.querySelectorAll('#matrix tbody tr').length === {len(paths)}")


def test_folder_is_reconstructed_to_its_end(app, browser, tmp_path):
    open_folder(browser, app, range(0, 20, 3))
    click(browser, "#reconstruct")
    browser.wait_for("/ of \\d+ /.test(document.querySelector('#model-said').innerText)")
    with Browser(patience=90) as other:
        open_folder(other, app, (0, 1))
        click(other, "#batch")
        place = "document.querySelector('#matrix').innerText.includes('place in the queue is 1')"
        other.wait_for(place)
        # Who waits can stop, too.
        click(other, "#stop")
        other.wait_for("document.querySelector('#matrix').innerText.includes('was stopped')")
    browser.patience = 300
    wait_for_element(browser, "#pair-report iframe")
    assert "7 photographs" in browser.evaluate("document.querySelector('#model-said').innerText")
    assert browser.frames()[-1]("document.querySelectorAll('canvas').length") > 0
    browser.download_to(tmp_path)
    wait_for_element(browser, "#archive")
    click(browser, "#archive")
    deadline = time.monotonic() + 30
    while not (files := list(tmp_path.glob("*.zip"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    names = zipfile.ZipFile(files[0]).namelist()
    assert {"transforms.json", "points.ply", "index.html"} <= set(names)
    assert any(name.endswith("images.bin") for name in names)


def test_pasted_image_is_a_photograph(app, browser):
    open_page(browser, app)
    browser.call(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    browser.page("Page.bringToFront")
    browser.evaluate(
        "(async () => { const canvas = new OffscreenCanvas(64, 48); canvas.getContext('2d')"
        ".fillRect(0, 0, 64, 48); const blob = await canvas.convertToBlob(); "
        "await navigator.clipboard.write([new ClipboardItem({'image/png': blob})]); })()"
    )
    click(browser, '#photo0 [aria-label="Paste from clipboard"]')
    wait_for_element(browser, "#photo0 img")


def test_webcam_takes_a_photograph_that_is_not_mirrored(app, tmp_path):
    # What the camera sees: a film of one photograph.
    film = tmp_path / "film.mjpeg"
    Image.open(STREET[0]).save(film, "JPEG", quality=95)
    flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with Browser(patience=90, flags=[*flags, f"--use-file-for-fake-video-capture={film}"]) as own:
        open_page(own, app)
        click(own, '#photo0 [aria-label="Capture from camera"]')
        wait_for_element(own, '#photo0 [title="grant webcam access"] button')
        click(own, '#photo0 [title="grant webcam access"] button')
        own.wait_for("document.querySelector('#photo0 video')?.videoWidth > 0")
        wait_for_element(own, '#photo0 [aria-label="capture photo"]')
        time.sleep(1.0)
        click(own, '#photo0 [aria-label="capture photo"]')
        wait_for_element(own, "#photo0 [data-testid=image] img[src*=file]")
        own.choose_file("#photo1 input[type=file]", STREET[0])
        wait_for_element(own, "#photo1 img")
        # The same photograph again, hardly moved: nearly all keypoints find themselves.
        text = match(own)
        assert text.startswith("Degenerate"), text[:300]
        [matches] = re.findall(r"Matches ([\d,]+)", text)
        assert int(matches.replace(",", "")) > 1000, text[:300]


def test_settings_keep_what_the_reader_opened(app, browser):
    open_page(browser, app)
    give(browser, STREET)
    match(browser)
    browser.wait_for(DRAWN)
    [read] = browser.frames()
    read("window.photo = document.querySelector('#panel0 img')")
    read("document.querySelector('details').open = true")
    read("document.querySelector('input[value=candidates]').click()")
    read("document.getElementById('in').click()")
    said = "document.querySelector('.banner').innerText"
    before = read(said), read("document.querySelector('input[value=matches] + span').innerText")
    browser.evaluate(KEEP)
    browser.evaluate("document.querySelector('#k input[type=number]').focus()")
    browser.evaluate("document.querySelector('#k input[type=number]').select()")
    browser.type_text("1")
    browser.wait_for(CHANGED)
    browser.wait_for(DRAWN)
    after = read(said), read("document.querySelector('input[value=matches] + span').innerText")
    assert after != before
    assert read("document.querySelector('#panel0 img') === window.photo")
    assert read("document.querySelector('details').open")
    assert read("document.querySelector('input[name=layer]:checked').value") == "candidates"
    assert read("document.getElementById('zoom').value") == "150 %"
    # The drawing is that of the new result.
    read("document.querySelector('#panel0').focus()")
    assert "1 candidate in image 1" in read("document.getElementById('detail').innerText")
    read("document.querySelector('.copy').click()")
    assert browser.evaluate("document.querySelectorAll('#stage iframe').length") == 1


def test_folder_becomes_a_matrix_of_verdicts(app, browser):
    open_folder(browser, app, (0, 1, 2))
    click(browser, "#batch")
    browser.wait_for("document.querySelectorAll('#matrix button[data-pair]').length === 6")
    kinds = "[...document.querySelectorAll('#matrix button[data-pair]')].map(b => b.className)"
    assert any("good" in kind for kind in browser.evaluate(kinds))
    # Each pair opens its own report.
    for first, second in ((0, 1), (0, 2), (1, 2)):
        click(browser, f'#matrix button[data-pair="{first},{second}"]')
        title = "document.querySelector('#pair-report iframe')?.title"
        browser.wait_for(f"{title} === '0{first}.jpg ↔ 0{second}.jpg'")
        page = "document.querySelector('#pair-report iframe').dataset.told === 'true'"
        browser.wait_for(page)
        assert f"0{second}.jpg" in browser.frames()[-1]("document.body.innerText")


def test_hostile_names_in_a_folder_are_neither_paths_nor_html(app, browser, tmp_path):
    names = ["<img src=x onerror=document.title='hacked'>.jpg", "'\"&quot;-->.jpg", "..%2f..jpg"]
    for name, k in zip(names, range(3), strict=True):
        (tmp_path / name).write_bytes((DEMO / f"courtyard/images/{k:02d}.jpg").read_bytes())
    open_folder(browser, app, [tmp_path / name for name in names])
    click(browser, "#batch")
    browser.wait_for("document.querySelectorAll('#matrix button[data-pair]').length === 6")
    assert browser.evaluate("document.querySelectorAll('#matrix [onerror]').length") == 0
    assert browser.evaluate("document.title") == "manymatch"
    click(browser, '#matrix button[data-pair="1,2"]')
    wait_for_element(browser, "#pair-report iframe")
    assert browser.evaluate("document.title") == "manymatch"


def refused(address):
    try:
        with urllib.request.urlopen(address) as answer:  # noqa: S310
            return answer.status >= 400
    except urllib.error.HTTPError as error:
        return error.code >= 400


def test_files_of_the_machine_are_not_served(app):
    for path in ("/etc/passwd", str(DEMO.parent / "cli" / "app.py"), "../../../../etc/passwd"):
        assert refused(f"{app.address}gradio_api/file={path}")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1440])
def test_page_fits_the_window(app, browser, width, dark):
    open_page(browser, app, width, 844, dark=dark)
    give(browser, COURTYARD)
    match(browser)
    browser.wait_for(DRAWN)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert not browser.evaluate("document.querySelector('footer')?.checkVisibility() ?? false")


def test_one_file_runs_it_as_a_hosted_space(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    file = DEMO.parents[2] / "examples" / "space" / "app.py"
    running = RunningApp(tmp_path, command=["-u", str(file)], GRADIO_SERVER_PORT=port)
    assert running.address == f"http://127.0.0.1:{port}/"
    assert not refused(running.address)
    running.end()
    assert not list(tmp_path.glob("manymatch-app-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_end_leaves_nothing_behind(tmp_path, how):
    running = RunningApp(tmp_path, "--preset", "classic")
    assert list(tmp_path.glob("manymatch-app-*"))
    running.end(how)
    assert not list(tmp_path.glob("manymatch-app-*"))
    assert "Traceback" not in running.output


def call(app, number, data, user):
    """Call a function of the page as a program would; return the messages of the answer."""
    body = {"data": data, "fn_index": number, "session_hash": user}
    request = urllib.request.Request(  # noqa: S310
        f"{app.address}gradio_api/queue/join",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()  # noqa: S310
    answer = f"{app.address}gradio_api/queue/data?session_hash={user}"
    with urllib.request.urlopen(answer, timeout=60) as lines:  # noqa: S310
        for line in lines:
            message = (
                json.loads(line.decode().removeprefix("data: ") or "{}") if line.strip() else {}
            )
            if message.get("msg") == "process_completed":
                return message
    raise AssertionError("no answer")


@pytest.mark.parametrize("path", ["/etc/passwd", str(DEMO / "street0.jpg"), "http://127.0.0.1:1/a"])
def test_program_cannot_name_files_of_the_machine(app, path):
    with urllib.request.urlopen(f"{app.address}config") as answer:  # noqa: S310
        config = json.load(answer)
    ids = {c["props"].get("elem_id"): c["id"] for c in config["components"]}
    [number] = [
        place
        for place, function in enumerate(config["dependencies"])
        if {ids["photo0"], ids["camera1"], ids["presets"]} <= set(function["inputs"])
    ]
    user = f"test{abs(hash(path))}"
    file = {"path": path, "orig_name": "a.jpg", "meta": {"_type": "gradio.FileData"}}
    data = [None, file, file, "", "", ["classic"], 5, "1", "auto", 0, False]
    answer = call(app, number, data, user)
    text = json.dumps(answer)
    assert not answer["success"] or "No result" in text
    assert "srcdoc" not in text

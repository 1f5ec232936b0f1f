"""Headless Chromium without any further package, through DevTools messages over two pipes."""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)
# Chromium reads messages from file descriptor 3 and writes them to 4.
_LAUNCH = "import os,sys; os.dup2(int(sys.argv[1]),3); os.dup2(int(sys.argv[2]),4); "
_LAUNCH += "os.execv(sys.argv[3], sys.argv[3:])"


def find_chromium():
    """Path of a Chromium, or None. MANYMATCH_CHROMIUM overrides it."""
    named = os.environ.get("MANYMATCH_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One browser with one blank page; a context manager that leaves nothing behind."""

    def __init__(self, patience=30.0, flags=()):
        self.patience = patience
        self.flags = flags
        self.events = []
        self._number = 0
        self._rest = b""

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _start(self):
        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True)
        )
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._stack.callback(os.close, self._out)
        self._stack.callback(os.close, self._in)
        command = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out)]
        command += [find_chromium(), *_FLAGS, *self.flags]
        command += [f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(  # noqa: S603 - fixed flags
            command,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._stack.callback(_end, process)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.page(f"{domain}.enable")

    def call(self, method, *, session=None, **params):
        """Send one command and return its result; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def page(self, method, **params):
        return self.call(method, session=self._session, **params)

    def _read(self):
        deadline = time.monotonic() + self.patience
        os.set_blocking(self._in, False)
        while b"\0" not in self._rest:
            try:
                chunk = os.read(self._in, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("Chromium does not answer") from None
                time.sleep(0.002)
                continue
            if not chunk:
                raise RuntimeError("Chromium ended")
            self._rest += chunk
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def resize(self, width, height, *, dark=False, sharp=1):
        """Give the window a size in CSS pixels and the page a colour scheme."""
        self.page(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=sharp,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.page("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self.page("Page.navigate", url=url)
        self.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def evaluate(self, expression, session=None):
        """Value of a JavaScript expression, in the page or in the session of a frame."""
        answer = self.call(
            "Runtime.evaluate",
            session=session or self._session,
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def frames(self):
        """Return for each sandboxed frame of the page a function like `evaluate`, in any order."""
        how = {"waitForDebuggerOnStart": False, "flatten": True}
        self.page("Target.setAutoAttach", autoAttach=True, **how)
        self.evaluate("1")
        attached = [e["params"] for e in self.events if e["method"] == "Target.attachedToTarget"]
        gone = [e["params"] for e in self.events if e["method"] == "Target.detachedFromTarget"]
        left = {params["sessionId"] for params in gone}  # frames that the page has replaced
        sessions = [p["sessionId"] for p in attached if p["targetInfo"]["type"] == "iframe"]
        sessions = [session for session in sessions if session not in left]
        for session in sessions:
            for domain in ("Runtime", "Log"):
                self.call(f"{domain}.enable", session=session)
        return [functools.partial(self.evaluate, session=session) for session in sessions]

    def wait_for(self, expression):
        """Wait until a JavaScript expression is true, and return its value."""
        deadline = time.monotonic() + self.patience
        while not (value := self.evaluate(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.01)
        return value

    def move_mouse(self, x, y):
        self.page("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y, count=1):
        """Move there and press the left button, for the `count`-th time in a row."""
        self.move_mouse(x, y)
        left = {"button": "left", "clickCount": count}
        for kind in ("mousePressed", "mouseReleased"):
            self.page("Input.dispatchMouseEvent", type=kind, x=x, y=y, **left)

    def drag(self, start, end, steps=4):
        """Press the left button at one place of the window, move to another and let go."""
        self.move_mouse(*start)
        left = {"button": "left", "clickCount": 1}
        self.page("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **left)
        for k in range(1, steps + 1):
            x, y = (a + (b - a) * k / steps for a, b in zip(start, end, strict=True))
            self.page("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, buttons=1)
        self.page("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **left)

    def drop(self, selector, path):
        """Drop a file of this machine on an element."""
        middle = "r => [r.left + r.width / 2, r.top + r.height / 2]"
        x, y = self.evaluate(
            "(e => { e.scrollIntoView({block: 'center'}); return e.getBoundingClientRect(); })"
            f"(document.querySelector({json.dumps(selector)}))".join([f"({middle})(", ")"])
        )
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.page("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def choose_file(self, selector, *paths):
        """Give files of this machine to a field for files."""
        root = self.page("DOM.getDocument")["root"]["nodeId"]
        node = self.page("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.page("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def download_to(self, folder):
        """Save what pages let the user download into a folder."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def type_text(self, text):
        self.page("Input.insertText", text=text)

    def wheel(self, x, y, delta):
        """Turn the wheel at a place of the window; a negative delta is away from the user."""
        self.page("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)

    def touch(self, *moves):
        """Put fingers down, move and lift them; a move is a list of their places (x, y)."""
        self.page("Emulation.setTouchEmulationEnabled", enabled=True)
        for number, places in enumerate((*moves, [])):
            kind = "touchStart" if number == 0 else "touchMove" if places else "touchEnd"
            points = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(places)]
            self.page("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        self.page("Emulation.setTouchEmulationEnabled", enabled=False)

    def press(self, key, *, shift=False):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, "+": 187, "-": 189, "0": 48, "p": 80, " ": 32}
        # A button is pressed by the character that these two keys type.
        typed = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("rawKeyDown" if typed is None else "keyDown", "keyUp"):
            self.page(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                modifiers=8 if shift else 0,
                windowsVirtualKeyCode=codes[key],
                **({"text": typed} if typed and kind == "keyDown" else {}),
            )


def _end(process):
    """Let the browser go; it ends with its pipes, but not for sure."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""The tab of two photographs: what it looks like, and what its buttons and settings do."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch._validate import METHODS, require
from manymatch.app.request import (
    PairRequest,
    checked_camera,
    checked_changes,
    command_line,
    python_lines,
    safe_name,
)
from manymatch.io.image import exif_focal, open_image
from manymatch.io.pairs import IMAGE_SUFFIXES
from manymatch.matcher.config import MatcherConfig
from manymatch.viz.report import page_template

if TYPE_CHECKING:
    from manymatch.app.page import App
    from manymatch.app.session import Session

# A component for a result in its frame, which the script of the app draws.
STAGE = {
    "html_template": "<div></div>",
    "js_on_load": "watch('value', () => showStage(element.querySelector('div'), props.value))",
}

_DEMO = Path(__file__).parents[1] / "demo_photos"
# Pairs of the package's photographs: a name, and the two files.
_EXAMPLES = {
    "A courtyard": ("courtyard/images/00.jpg", "courtyard/images/01.jpg"),
    "A street": ("street0.jpg", "street1.jpg"),
    "Another street": ("street2.jpg", "street3.jpg"),
    "A print on a wall": ("street0.jpg", "print.jpg"),
    "Nothing in common": ("street0.jpg", "cup.jpg"),
}
_MATCHES, _ALIGNED = "Matches", "Aligned, as a plane"
_EXPORT_NAMES = {
    "Report (HTML)": "report",
    "Picture (PNG)": "picture",
    "Result (JSON)": "json",
    "Settings (TOML)": "config",
    "Matches (NumPy)": "npz",
    "hloc (HDF5)": "h5",
    "COLMAP (text)": "colmap",
    "COLMAP (database)": "colmap-db",
}
_CAMERA_HINT = "EXIF, or found"
_CHOICES_OF_K, _USUAL_K = range(1, 11), MatcherConfig().sources[0].association.k
# Seconds in which the browser draws the first result.
_DRAWING = 0.5
_THRESHOLDS = ["auto", "0.5", "1", "1.5", "2", "3", "4"]


def refusal(sentence: str) -> str:
    """Return HTML of a sentence that says why there is no result."""
    return str(page_template("cards.html").render(results=(), error=sentence))


def staged(result: dict[str, Any], *, photos: bool = True) -> dict[str, Any]:
    """Return what a stage shows of a result, without the photographs if its frame has them."""
    shown = {name: result[name] for name in ("title", "key", "page")}
    return {**shown, "photos": result["photos"] if photos else None}


class PairTab:
    """The tab, laid out where it is made. `session` is the component with a user's session."""

    def __init__(self, gr: Any, app: App, session: Any) -> None:
        self._gr, self._app = gr, app
        private = {"api_visibility": "private", "concurrency_limit": None}
        silent = {**private, "show_progress": "hidden"}
        photos, cameras = self._photographs(session, silent)
        with gr.Row(elem_classes="mm-go", equal_height=True):
            presets = gr.CheckboxGroup(
                app.presets, value=app.presets[:1], label="Presets, side by side",
                elem_id="presets", scale=3,
            )  # fmt: skip
            go = gr.Button("Match", variant="primary", elem_id="match", scale=1)
        settings = self._settings()
        cards = gr.HTML(elem_id="cards")
        with gr.Row(elem_classes="mm-pick"):
            shown = gr.Radio([], label="Show the result of", visible=False, elem_id="shown")
            views = [_MATCHES, _ALIGNED]
            view = gr.Radio(views, value=_MATCHES, label="View", visible=False, elem_id="view")
        stage = gr.HTML(elem_id="stage", **STAGE)
        with gr.Row(visible=False) as after:
            with gr.Column(min_width=300):
                usual = ["Report (HTML)", "Matches (NumPy)"]
                names = list(_EXPORT_NAMES)
                wanted = gr.CheckboxGroup(names, value=usual, label="Download", elem_id="wanted")
                export = gr.Button("Make files", elem_id="export")
                files = gr.File(label="Files", file_count="multiple", elem_id="files")
            with gr.Column(min_width=300):
                titles = "The same by command", "The same in Python"
                command = gr.Code(language="shell", label=titles[0], elem_id="command", lines=2)
                python = gr.Code(language="python", label=titles[1], elem_id="python", lines=9)
        some = [cards, shown]
        outputs = [*some, view, stage, command, python, after, files]
        inputs = [session, *photos, *cameras, presets, *settings]
        go.click(None, js="() => showBusy(true)")
        # Files are taken as they were uploaded: Gradio's images have neither EXIF nor a name.
        found = go.click(self.match, inputs, outputs, preprocess=False, **private)
        found.then(None, js="() => showResult()")
        found.failure(None, js="() => showBusy(false)")
        found.then(self.others, [session, shown], some, **silent)
        again = gr.on(
            [part.input for part in settings], self.again, [session, shown, *settings], outputs,
            trigger_mode="always_last", queue=False, **silent,
        )  # fmt: skip
        again.then(self.others, [session, shown], some, **silent)
        shown.input(self.choose, [session, shown], outputs, **silent)
        view.input(self.look, [session, shown, view], stage, **private)
        export.click(self.export, [session, shown, wanted], files, **private)

    def _photographs(self, session: Any, silent: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Lay out the photographs, their cameras and the examples."""
        gr = self._gr
        photos, cameras = [], []
        with gr.Row(elem_classes="mm-photos"):
            for side, name in enumerate(("First photograph", "Second photograph")):
                with gr.Column(min_width=140):
                    photo = gr.Image(
                        label=name, type="filepath", sources=["upload", "clipboard", "webcam"],
                        placeholder="Drop or choose a photograph", height=210, buttons=[],
                        elem_id=f"photo{side}",
                        # A mirrored photograph would match no other one.
                        webcam_options=gr.WebcamOptions(mirror=False),
                    )  # fmt: skip
                    camera = gr.Textbox(
                        label=f"Camera {side}", placeholder=_CAMERA_HINT, max_lines=1,
                        info="empty, unknown, a focal length in pixels, or fx,fy,cx,cy",
                        elem_id=f"camera{side}", elem_classes="mm-camera",
                    )  # fmt: skip
                photo.change(self.camera_hint, [session, photo], camera, preprocess=False, **silent)
                photos.append(photo)
                cameras.append(camera)
        with gr.Row(elem_classes="mm-examples"):
            gr.HTML("<p>Or an example:</p>", elem_classes="mm-or")
            for name, pair in self._examples().items():
                icon = {"icon": self._montage(pair), "min_width": 120}
                button = gr.Button(name, size="sm", elem_classes="mm-example", **icon)
                button.click(lambda p=pair: self._example(p), None, photos, **silent)
        return photos, cameras

    def _settings(self) -> list[Any]:
        """Lay out the settings that are solved again."""
        gr = self._gr
        with gr.Row(elem_classes="mm-settings", elem_id="settings"):
            return [
                gr.Slider(
                    _CHOICES_OF_K[0], _CHOICES_OF_K[-1], value=_USUAL_K, step=1,
                    label="Candidates K", elem_id="k", buttons=[], min_width=170,
                ),
                gr.Dropdown(
                    _THRESHOLDS, value="1", label="Threshold (px)", allow_custom_value=True,
                    elem_id="threshold", min_width=120,
                ),
                gr.Dropdown(
                    list(METHODS), value="auto", label="Method", elem_id="method", min_width=120
                ),
                gr.Number(0, precision=0, minimum=0, label="Seed", elem_id="seed", min_width=100),
                gr.Checkbox(label="Compare with rank one", elem_id="rankone", min_width=170),
            ]  # fmt: skip

    def _examples(self) -> dict[str, tuple[Path, Path]]:
        """Return pairs of photographs that can be chosen: those of the folder, or our own."""
        if self._app.photos is None:
            return {name: (_DEMO / a, _DEMO / b) for name, (a, b) in _EXAMPLES.items()}
        files = sorted(p for p in self._app.photos.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        pairs = list(zip(files[::2], files[1::2], strict=False))[:4]
        return {f"{a.name} and {b.name}": (a, b) for a, b in pairs}

    def _example(self, pair: tuple[Path, Path]) -> list[str]:
        """Return copies of two photographs: Gradio shows no files from elsewhere."""
        place = self._app.root / "examples"
        place.mkdir(exist_ok=True)
        return [str(shutil.copy(path, place / safe_name(path.name))) for path in pair]

    def _montage(self, pair: tuple[Path, Path]) -> str:
        """Return a small picture of two photographs side by side, as a file."""
        place = self._app.root / "icons"
        place.mkdir(exist_ok=True)
        canvas = require("PIL.Image", "examples", "images").new("RGB", (196, 72))
        for x, path in zip((0, 99), pair, strict=True):
            with contextlib.suppress(ValueError), open_image(path) as photo:
                photo.draft("RGB", (200, 150))
                canvas.paste(photo.convert("RGB").resize((97, 72)), (x, 0))
        file = place / f"{len(list(place.iterdir()))}.jpg"
        canvas.save(file)
        return str(file)

    def match(
        self, session: Session, first: Any, second: Any, camera0: str, camera1: str,
        presets: list[str], *settings: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Match two photographs by the first preset; return what the page shows."""
        session.requests, session.results = {}, {}
        try:
            photos = session.pair(first, second)
            cameras = (checked_camera(camera0, "Camera 0"), checked_camera(camera1, "Camera 1"))
            for preset in presets or self._app.presets[:1]:
                session.requests[preset] = _request(photos, cameras, preset, settings)
        except ValueError as error:
            session.requests = {}
            return self._shown(session, None, session.words(error))
        first = next(iter(session.requests))
        shown = self._solved(session, first)
        self._app.pool.submit(self._prepare, session, session.requests[first])
        return shown

    def again(self, session: Session, shown: str | None, *settings: Any) -> tuple[Any, ...]:
        """Solve again with other settings, from the features that are kept."""
        if not session.requests:
            return self._shown(session, None)
        chosen = shown if shown in session.requests else next(iter(session.requests))
        try:
            requests = {
                preset: _request(old.photos, old.cameras, preset, settings)
                for preset, old in session.requests.items()
            }
        except ValueError as error:
            return self._shown(session, chosen, session.words(error))
        session.requests, session.results = requests, {}
        return self._solved(session, chosen)

    def _solved(self, session: Session, preset: str) -> tuple[Any, ...]:
        """Solve the request of one preset; return what the page shows."""
        error = self._solve(session, preset)
        return self._shown(session, preset if preset in session.results else None, error)

    def _solve(self, session: Session, preset: str) -> str:
        """Solve a request; return why there is no result, if so."""
        request = session.requests[preset]
        try:
            result = self._app.pair_job("match", request)
        except ValueError as error:
            return f"{preset}: {session.words(error)}"
        # Its user may have asked for something else meanwhile.
        if session.requests.get(preset) is request:
            session.results[preset] = result
        return ""

    def others(self, session: Session, shown: str | None) -> Iterator[tuple[Any, ...]]:
        """Solve the requests of all other presets; yield cards and names after each of them."""
        requests, errors = session.requests, list[str]()
        # Where nothing is yielded, Gradio empties the cards.
        yield self._gr.skip(), self._gr.skip()
        for preset in [name for name in requests if name not in session.results]:
            if session.requests is not requests or not session.results:
                return
            errors.append(self._solve(session, preset))
            yield self._cards(session, shown, " ".join(filter(None, errors)))

    def _prepare(self, session: Session, request: PairRequest) -> None:
        """Find candidates for every other K, so that the slider does not wait for them."""
        time.sleep(_DRAWING)
        for k in sorted(_CHOICES_OF_K, key=lambda k: abs(k - request.changes.get("k", _USUAL_K))):
            if session.requests.get(request.preset) is not request:
                return
            changed = dataclasses.replace(request, changes={**request.changes, "k": k})
            with contextlib.suppress(ValueError):
                self._app.pair_job("prepare", changed, gives_way=True)

    def _cards(self, session: Session, preset: str | None, error: str) -> tuple[Any, Any]:
        """Return the cards of all presets, and the names to choose from."""
        names = [name for name in session.requests if name in session.results]
        results = [session.results[name] for name in names]
        cards = page_template("cards.html").render(results=results, shown=preset, error=error)
        value = preset if preset in names else next(iter(names), None)
        return cards, self._gr.update(choices=names, value=value, visible=len(names) > 1)

    def _shown(self, session: Session, preset: str | None, error: str = "") -> tuple[Any, ...]:
        """Return values of: cards, presets, view, stage, command, Python, result, files."""
        gr = self._gr
        if preset not in session.results:
            hidden, empty = gr.update(visible=False), {"html": ""}
            session.has_photos = ""
            cards = self._cards(session, None, error)[0]
            return cards, hidden, hidden, empty, "", "", hidden, None
        result, request = session.results[preset], session.requests[preset]
        stage = staged(result, photos=session.has_photos != result["key"])
        session.has_photos = result["key"]
        return (
            *self._cards(session, preset, error),
            gr.update(value=_MATCHES, visible=result["planar"]),
            stage,
            command_line(request),
            python_lines(request),
            gr.update(visible=True),
            None,
        )

    def choose(self, session: Session, preset: str) -> tuple[Any, ...]:
        """Show the result of another preset."""
        return self._shown(session, preset)

    def look(self, session: Session, preset: str | None, view: str) -> dict[str, Any]:
        """Return the stage of a result: its matches, or the photographs on each other."""
        result = session.results.get(preset or "") or next(iter(session.results.values()))
        if view != _ALIGNED:
            return staged(result, photos=False)
        try:
            page = self._app.pair_job("align", session.requests[result["preset"]])
        except ValueError as error:
            return {"html": refusal(session.words(error))}
        return {"title": result["title"], "key": "", "page": page, "photos": None}

    def export(self, session: Session, preset: str | None, wanted: list[str]) -> list[str] | None:
        """Write files and return their paths."""
        request = session.requests.get(preset or "") or next(iter(session.requests.values()), None)
        names = [_EXPORT_NAMES[name] for name in wanted]
        if request is None or not names:
            return None
        try:
            files = self._app.pair_job("export", request, names, session.place("export"))
        except ValueError as error:
            raise self._gr.Error(session.words(error)) from error
        return [str(path) for path in files]

    def camera_hint(self, session: Session, upload: dict[str, Any] | None) -> Any:
        """Say what is known about the camera of a photograph."""
        hint = _CAMERA_HINT
        if upload:
            with contextlib.suppress(ValueError, OSError):
                focal = exif_focal(session.upload(upload))
                hint = "no EXIF: will be found"
                hint = hint if focal is None else f"{focal:,.0f} px (EXIF)"
        return self._gr.update(placeholder=hint)


def _request(
    photos: tuple[Path, Path], cameras: tuple[Any, Any], preset: str, settings: tuple[Any, ...]
) -> PairRequest:
    *changed, with_rank_one = settings
    changes = checked_changes(preset, *changed)
    return PairRequest(photos, cameras, preset, changes, with_rank_one=bool(with_rank_one))

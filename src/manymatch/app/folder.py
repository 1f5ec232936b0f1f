"""The tab of a folder: thumbnails, a matrix of all pairs, their reports, and a model."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manymatch._validate import count, require
from manymatch.app.pair import STAGE, refusal, staged
from manymatch.app.request import PairRequest
from manymatch.app.worker import Stop
from manymatch.io.pairs import IMAGE_SUFFIXES
from manymatch.viz.overlay import verdict_kind
from manymatch.viz.report import page_template, photo_of_file

if TYPE_CHECKING:
    from manymatch.app.page import App
    from manymatch.app.session import Session

_COURTYARD = Path(__file__).parents[1] / "demo_photos" / "courtyard" / "images"
# Pixels of the longer edge of a thumbnail, and its bytes; seconds between two looks at a job.
_THUMBNAIL_PX, _THUMBNAIL_BYTES, _TICK = 96, 6_000, 0.4
# A click on a pair of the matrix.
_CLICK = """element.addEventListener("click", (event) => {
  const cell = event.target.closest("button[data-pair]");
  if (cell) trigger("select", { pair: cell.dataset.pair });
});"""


class FolderTab:
    """The tab, laid out where it is made. `session` is the component with a user's session."""

    def __init__(self, gr: Any, app: App, session: Any) -> None:
        self._gr, self._app = gr, app
        private = {"api_visibility": "private", "concurrency_limit": None}
        silent = {**private, "show_progress": "hidden"}
        with gr.Row():
            files = gr.File(
                label=f"Photographs, up to {app.limits.photos}", file_count="multiple",
                file_types=sorted(IMAGE_SUFFIXES), height=150, elem_id="folder",
            )  # fmt: skip
            with gr.Column(min_width=260):
                name = "Or the example: a courtyard"
                name = name if app.photos is None else f"Or all of {app.photos.name}"
                use = gr.Button(name, elem_id="named")
                usual = {"value": app.presets[0], "elem_id": "folder-preset"}
                preset = gr.Dropdown(app.presets, label="Preset", **usual)
                with gr.Row():
                    go = gr.Button("Match all pairs", variant="primary", elem_id="batch")
                    model = gr.Button("Reconstruct", elem_id="reconstruct")
                    stop = gr.Button("Stop", elem_id="stop")
        table = gr.HTML(elem_id="matrix", js_on_load=_CLICK)
        said = gr.HTML(elem_id="model-said")
        report = gr.HTML(elem_id="pair-report", **STAGE)
        archive = gr.DownloadButton("Download the model", visible=False, elem_id="archive")
        files.upload(self.fill, [session, files], table, **private)
        use.click(lambda own: self.fill(own, None), session, table, **private)
        go.click(self.batch, [session, preset], table, **silent)
        model.click(self.model, [session, preset], [said, report, archive], **silent)
        stop.click(_stop, session, None, **private)

        def open_pair(own: Session, chosen: str, event: Any) -> dict[str, Any]:
            return self.open_pair(own, chosen, str(event.pair))

        # Gradio passes an event where this type is asked for.
        open_pair.__annotations__ = {"event": gr.EventData}
        opened = table.select(open_pair, [session, preset], report, **private)
        opened.then(None, js="() => showPart('pair-report')")

    def fill(self, session: Session, files: list[str] | None) -> str:
        """Take the photographs that were uploaded, or those of the folder; return the matrix."""
        try:
            paths = [session.upload({"path": name}) for name in files] if files else self._named()
            session.take(paths, self._app.limits)
        except ValueError as error:
            session.photos = []
            return matrix([], {}, session.words(error))
        return matrix(session.photos, {}, f"{count(len(session.photos), 'photograph')}.")

    def _named(self) -> list[Path]:
        return [path for path in (self._app.photos or _COURTYARD).iterdir() if path.is_file()]

    def batch(self, session: Session, preset: str) -> Iterator[str]:
        """Match all pairs; yield the matrix as it fills."""
        photos = session.photos
        for said, _ in self._running(session, "batch", preset):
            rows = finished_pairs(_out(session, "batch", preset)) if photos else {}
            yield matrix(photos, rows, said)

    def model(self, session: Session, preset: str) -> Iterator[tuple[Any, ...]]:
        """Reconstruct the scene; yield a sentence, the page and an archive."""
        hidden, empty = self._gr.update(visible=False), {"html": ""}
        for said, found in self._running(session, "reconstruct", preset):
            if found and found["page"]:
                shown = {"title": "The model", "key": "", "page": found["page"], "photos": None}
                file = self._gr.update(value=str(found["archive"]), visible=True)
                yield matrix([], {}, found["said"]), shown, file
            else:
                yield matrix([], {}, found["said"] if found else said), empty, hidden

    def _running(self, session: Session, job: str, preset: str) -> Iterator[tuple[str, Any]]:
        """Run a long job; yield how far it is, and at the end its result."""
        if not session.photos:
            yield "Please choose photographs first.", None
            return
        steps: list[Any] = []
        session.stop.wanted = True
        session.stop = Stop()
        done = self._app.pool.submit(
            self._app.slow.run, job, session.photos[0].parent, _out(session, job, preset),
            session.folder / "features", preset, seconds=self._app.limits.folder_seconds,
            progress=steps.append, stop=session.stop,
        )  # fmt: skip
        seen = None
        while not done.done():
            threading.Event().wait(_TICK)
            if steps and steps[-1] != seen:
                seen = steps[-1]
                yield _progress_words(seen), None
        try:
            yield "All pairs are matched. A click on a pair opens its report.", done.result()
        except ValueError as error:
            yield session.words(error), None

    def open_pair(self, session: Session, preset: str, pair: str) -> dict[str, Any]:
        """Return the report of one pair of the folder."""
        try:
            i, j = (int(number) for number in pair.split(","))
            photos = (session.photos[i], session.photos[j])
            request = PairRequest(photos, preset=preset, cache=session.folder / "features")
            return staged(self._app.pair_job("match", request))
        except (ValueError, IndexError) as error:
            return {"html": refusal(session.words(error))}


def _out(session: Session, job: str, preset: str) -> Path:
    """Return the folder of a job's results."""
    return session.folder / f"{job}-{preset}-{session.photos[0].parent.name}"


def _stop(session: Session) -> None:
    session.stop.wanted = True


def _progress_words(step: int | dict[str, Any]) -> str:
    """Return how far a job is, or how many others are before it."""
    if isinstance(step, int):
        return f"Waiting for another job. Your place in the queue is {step}."
    left = step["seconds_left"]
    label = f"{step['label']}: " if step["label"] else ""
    rest = "" if left is None else f", about {max(left, 1):.0f} s left"
    return f"{label}{step['finished']} of {count(step['total'], step['noun'])}{rest}"


@functools.lru_cache(256)
def thumbnail(path: Path) -> str | None:
    """Return a small picture of a photograph as a data URI; None if it cannot be read."""
    return photo_of_file(path, _THUMBNAIL_PX, _THUMBNAIL_BYTES)


def finished_pairs(parts: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return verdict, matches and reason of the pairs that a batch has finished so far."""
    parquet = require("pyarrow.parquet", "a batch", "images")
    columns = ["name0", "name1", "verdict", "matches", "reason", "error"]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for part in sorted(parts.glob("parts/*.parquet")):
        for row in parquet.read_table(part, columns=columns).to_pylist():
            rows[row["name0"], row["name1"]] = row
    return rows


def matrix(photos: list[Path], rows: dict[tuple[str, str], dict[str, Any]], said: str) -> str:
    """Return HTML with thumbnails and all pairs, coloured by verdict."""
    names = [path.name for path in photos]
    cells = []
    for i, first in enumerate(names):
        line = []
        for j, second in enumerate(names):
            row = rows.get((first, second)) or rows.get((second, first))
            cell: dict[str, Any] = {
                "pair": f"{min(i, j)},{max(i, j)}",
                "kind": "self" if i == j else "open",
            }
            if row is not None:
                verdict = row["verdict"]
                found = count(row["matches"] or 0, "match", "matches")
                why = row["error"] or row["reason"] or ""
                cell |= {
                    "kind": verdict_kind(verdict) if verdict != "error" else "bad",
                    "title": f"{first} – {second}: {verdict}, {found}. {why}",
                    "text": row["matches"] or 0,
                    "verdict": verdict,
                }
            line.append(cell)
        cells.append(line)
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    legend = [(verdict, number, verdict_kind(verdict)) for verdict, number in counts.items()]
    legend.sort(key=lambda entry: ("good", "doubt", "bad").index(entry[2]))
    small = [(path.name, thumbnail(path)) for path in photos]
    return str(
        page_template("matrix.html").render(photos=small, cells=cells, said=said, legend=legend)
    )

"""Pages of photographs, lines, dots and text, as image files and as matplotlib figures.

A `Page` is a layout in pixels of a screen. `write_page` draws it with Pillow, or as vector graphics
with matplotlib, which takes longer to import than Pillow takes to draw; `as_figure` returns a
matplotlib figure. Photographs are first reduced to the size at which they are drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manymatch._validate import FloatArray, refusal, require
from manymatch.io.files import output_file, write_whole
from manymatch.io.image import load_image, require_pillow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure


# Coordinates are clipped to this: far outside every image, and harmless to calculate with.
_FAR = 1e9
# Two pixels are one point, the unit of matplotlib's lines and letters.
_DPI = 144
# Lines and dots are drawn this many times larger and averaged, since Pillow's have hard edges.
_FINER = 3
# Samples of a photograph along either axis of a pixel that is drawn, at least.
_SAMPLES = 3
_RASTER = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "webp": "WEBP", "tif": "TIFF"}
_VECTOR = ("pdf", "svg", "eps")
# PNG compresses photographs hardly better at higher levels, which take several times as long.
_SAVING: dict[str, dict[str, Any]] = {
    "PNG": {"compress_level": 1, "dpi": (_DPI, _DPI)},
    "JPEG": {"quality": 90, "dpi": (_DPI, _DPI)},
}

#: Colours of text, of text that matters less, and of the page.
INK, GREY, PAPER = "#111827", "#6b7280", "#ffffff"


@dataclasses.dataclass(frozen=True)
class Photo:
    """Pixels (H, W, 3) of a panel, from its column x on."""

    pixels: NDArray[np.uint8]
    x: int = 0


@dataclasses.dataclass(frozen=True)
class Lines:
    """Straight lines between ends (N, 2, 2) in colours (N, 4) or one of them: RGBA, 0 to 255."""

    ends: FloatArray
    colours: NDArray[np.uint8]
    width: float
    dashed: bool = False


@dataclasses.dataclass(frozen=True)
class Dots:
    """Discs around centres (N, 2), with outline and a short text each or none; fills are RGBA."""

    centres: FloatArray
    radius: float
    fill: NDArray[np.uint8]
    outline: str | None = None
    labels: Sequence[str] = ()

    @property
    def label_size(self) -> int:
        """Of the text in pixels."""
        return round(1.45 * self.radius)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A part of a page: left, top, width and height, photographs, and the marks over them."""

    box: tuple[int, int, int, int]
    photos: list[Photo]
    marks: list[Lines | Dots] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Text:
    """A line of text that starts at (x, y), the height of its baseline; `size` is that of "M"."""

    x: float
    y: float
    text: str
    size: int = 20
    bold: bool = False
    colour: str = INK

    @property
    def width(self) -> float:
        """Of the line in pixels."""
        return text_width(self.text, self.size, bold=self.bold)


@dataclasses.dataclass
class Page:
    """A picture: its size in pixels, panels, and text."""

    width: int
    height: int = 0
    panels: list[Panel] = dataclasses.field(default_factory=list)
    texts: list[Text] = dataclasses.field(default_factory=list)


def require_matplotlib() -> tuple[type[Figure], type[FigureCanvasAgg]]:
    """Import the classes of figures; not pyplot, which chooses a display and keeps figures."""
    figure = require("matplotlib.figure", "Drawing", "viz")
    canvas = require("matplotlib.backends.backend_agg", "Drawing", "viz")
    return figure.Figure, canvas.FigureCanvasAgg


def drawable(points: FloatArray) -> FloatArray:
    """Return points (N, 2), which may have any finite coordinates, as they can be drawn."""
    return np.clip(points, -_FAR, _FAR)


def picture_path(path: object, name: str = "path") -> Path:
    """Return the path of a picture, which errors call `name`, if it can be written."""
    target = output_file(path, name)
    form, known = target.suffix[1:].lower() or "png", (*_RASTER, *_VECTOR)
    if form not in known:
        raise refusal(name, f"a picture whose name ends in one of {', '.join(known)}", str(target))
    if form in _VECTOR:
        require_matplotlib()
    return target


def screen_image(image: Any, size: tuple[int, int], name: str) -> NDArray[np.uint8]:
    """Return a photograph, as `manymatch.io.load_image` takes it, in the size at which it is drawn.

    Of a much larger array, rows and columns are skipped, so that they are neither copied nor
    converted.
    """
    array = image if isinstance(image, np.ndarray) else load_image(image, name)
    steps = [max(1, n // (_SAMPLES * m)) for n, m in zip(array.shape, size[::-1], strict=False)]
    small = load_image(array[tuple(slice(step // 2, None, step) for step in steps)], name)
    Image = require_pillow()
    shrinks = small.shape[1] > size[0]
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(small).resize(size, method))


def rgba(colours: Sequence[str] | str, opacity: float = 1.0) -> NDArray[np.uint8]:
    """Return colours such as "#34e0ab" as numbers (N, 4) from 0 to 255."""
    texts = [colours] if isinstance(colours, str) else colours
    alpha = round(255 * opacity)
    rows = [(*bytes.fromhex(text[1:]), alpha) for text in texts]
    return np.array(rows, dtype=np.uint8).reshape(-1, 4)


@functools.cache
def _font_file(*, bold: bool) -> Path | None:
    """Return matplotlib's font, so that both ways of drawing agree; None if not installed."""
    package = importlib.util.find_spec("matplotlib")
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "mpl-data" / "fonts" / "ttf" / name
        if file.is_file():
            return file
    return None


@functools.lru_cache(maxsize=32)
def _font(size: int, *, bold: bool) -> Any:
    fonts = require("PIL.ImageFont", "Drawing", "viz")
    file = _font_file(bold=bold)
    return fonts.load_default(size) if file is None else fonts.truetype(str(file), size)


def text_width(text: str, size: int, *, bold: bool = False) -> float:
    """Return the width of a line of text in pixels."""
    return float(_font(size, bold=bold).getlength(text))


def wrapped(
    text: str, size: int, width: float, *, first: float = 0.0, bold: bool = False
) -> list[str]:
    """Break text into lines of at most a width in pixels, the first of which starts at `first`.

    Words that are too long for a line are broken within.
    """
    lines, room = [""], width - first
    for word in text.split():
        start = f"{lines[-1]} {word}".strip()
        if text_width(start, size, bold=bold) <= room:
            lines[-1] = start
            continue
        if text_width(word, size, bold=bold) <= width:
            lines.append(word)
            room = width
            continue
        lines[-1] = f"{lines[-1]} ".lstrip()
        for letter in word:
            # At least one letter a line, even on the narrowest page.
            fits = text_width(lines[-1] + letter, size, bold=bold) <= room
            if not fits and (lines[-1] or room < width):
                lines.append("")
                room = width
            lines[-1] += letter
    return [line.strip() for line in lines]


def write_page(page: Page, path: Path) -> Path:
    """Write a page; the ending of the path decides the format, and folders are made."""
    form = path.suffix[1:].lower() or "png"
    path.parent.mkdir(parents=True, exist_ok=True)
    if form in _RASTER:
        image, form = as_image(page), _RASTER[form]
        write_whole(path, lambda file: image.save(file, form, **_SAVING.get(form, {})))
    else:
        figure = as_figure(page)
        write_whole(path, lambda file: figure.savefig(file, format=form))
    return path


def as_image(page: Page) -> Any:
    """Draw a page as a Pillow image."""
    Image = require_pillow()
    ImageDraw = require("PIL.ImageDraw", "Drawing", "viz")
    sheet = Image.new("RGB", (page.width, page.height), PAPER)
    letters = ImageDraw.Draw(sheet)
    for panel in page.panels:
        left, top, width, height = panel.box
        image = Image.new("RGB", (width, height), PAPER)
        for photo in panel.photos:
            image.paste(Image.fromarray(photo.pixels), (photo.x, 0))
        if panel.marks:
            fine = image.resize((width * _FINER, height * _FINER), Image.Resampling.NEAREST)
            pen = ImageDraw.Draw(fine, "RGBA")
            for mark in panel.marks:
                _draw_mark(pen, mark)
            image = fine.reduce(_FINER)
        sheet.paste(image, (left, top))
    for text in page.texts:
        font = _font(text.size, bold=text.bold)
        letters.text((text.x, text.y), text.text, fill=text.colour, font=font, anchor="ls")
    return sheet


def _draw_mark(pen: Any, mark: Lines | Dots) -> None:
    """Draw lines or dots with Pillow on a panel that is `_FINER` times enlarged."""
    if isinstance(mark, Lines):
        ends, colours = mark.ends, np.broadcast_to(mark.colours, (len(mark.ends), 4))
        if mark.dashed:
            ends, colours = _dashes(ends, colours, 4.5 * mark.width)
        width = max(1, round(mark.width * _FINER))
        corners = (ends.reshape(-1, 4) * _FINER).tolist()
        for line, colour in zip(corners, colours.tolist(), strict=True):
            pen.line(line, fill=tuple(colour), width=width)
    else:
        radius = mark.radius * _FINER
        centres = (mark.centres * _FINER).tolist()
        fills = np.broadcast_to(mark.fill, (len(centres), 4)).tolist()
        labels = mark.labels or [""] * len(centres)
        font = _font(mark.label_size * _FINER, bold=True) if mark.labels else None
        for (x, y), fill, label in zip(centres, fills, labels, strict=True):
            box = (x - radius, y - radius, x + radius, y + radius)
            pen.ellipse(box, fill=tuple(fill), outline=mark.outline, width=_FINER)
            if label:
                pen.text((x, y), label, fill=INK, font=font, anchor="mm")


def _dashes(
    ends: FloatArray, colours: NDArray[np.uint8], length: float
) -> tuple[FloatArray, NDArray[np.uint8]]:
    """Cut lines (N, 2, 2) into dashes of a length with gaps of about the same."""
    parts, of = [], []
    for k, (start, end) in enumerate(ends):
        number = max(1, round(float(np.hypot(*(end - start))) / (2.0 * length)))
        at = (np.arange(number)[:, None] + np.array([0.0, 0.5])) / number
        parts.append(start + at[:, :, None] * (end - start))
        of += [k] * number
    return (np.concatenate(parts), colours[of]) if parts else (ends, colours)


def as_figure(page: Page) -> Figure:
    """Return a page as a matplotlib figure: axes for every panel, in its pixels, and text."""
    figure_class, canvas_class = require_matplotlib()
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle

    wide, high = page.width, page.height
    figure = figure_class(figsize=(wide / _DPI, high / _DPI), dpi=_DPI, facecolor=PAPER)
    canvas_class(figure)
    # Notebooks show it by this method, also without pyplot.
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]
    # The paper is drawn as well, since a matplotlib style may set another background.
    figure.add_artist(
        Rectangle((0, 0), 1, 1, facecolor=PAPER, transform=figure.transFigure, zorder=-1)
    )

    def font(size: int, *, bold: bool) -> FontProperties:
        weight = "bold" if bold else "normal"
        return FontProperties(fname=_font_file(bold=bold), size=size / 2, weight=weight)

    for panel in page.panels:
        left, top, width, height = panel.box
        box = (left / wide, 1.0 - (top + height) / high, width / wide, height / high)
        axes = figure.add_axes(box)
        axes.set_axis_off()
        for photo in panel.photos:
            extent = (photo.x, photo.x + photo.pixels.shape[1], photo.pixels.shape[0], 0)
            axes.imshow(photo.pixels, extent=extent, aspect="auto", zorder=0)
        for order, mark in enumerate(panel.marks, start=1):
            _add_mark(axes, mark, order, font)
        axes.set(xlim=(0, width), ylim=(height, 0))
    for text in page.texts:
        place = text.x / wide, 1.0 - text.y / high
        style: dict[str, Any] = {"color": text.colour, "va": "baseline", "parse_math": False}
        figure.text(*place, text.text, font=font(text.size, bold=text.bold), **style)
    return figure


def _add_mark(axes: Axes, mark: Lines | Dots, order: int, font: Any) -> None:
    from matplotlib.collections import LineCollection

    if isinstance(mark, Lines):
        lines = LineCollection(
            list(mark.ends),
            colors=np.broadcast_to(mark.colours, (len(mark.ends), 4)) / 255.0,
            linewidths=mark.width / 2,
            linestyles=(0, (4.5, 4.5)) if mark.dashed else "solid",
            zorder=order,
        )
        axes.add_collection(lines, autolim=False)
        return
    fills = np.broadcast_to(mark.fill, (len(mark.centres), 4)) / 255.0
    style: dict[str, Any] = {"edgecolors": mark.outline or "none", "linewidths": 0.5}
    x, y = mark.centres.T
    axes.scatter(x, y, s=mark.radius**2, c=fills, zorder=order, **style)
    letters: dict[str, Any] = {"ha": "center", "va": "center_baseline", "color": INK}
    letters["font"] = font(mark.label_size, bold=True)
    for centre, label in zip(mark.centres.tolist(), mark.labels, strict=False):
        axes.text(centre[0], centre[1], label, zorder=order, clip_on=True, **letters)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=figure.dpi)
    return buffer.getvalue()

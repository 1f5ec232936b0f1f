"""A page that shows the pairs of a batch by their verdicts, with pictures of their matches."""

from __future__ import annotations

import functools
import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manymatch._validate import require
from manymatch.batch.work import ERROR, VERDICTS, pair_file
from manymatch.io.files import make_folder, write_text, write_whole
from manymatch.io.image import load_image
from manymatch.viz.figure import screen_image
from manymatch.viz.report import embedded_jpeg, page_template

if TYPE_CHECKING:
    from manymatch.batch.outputs import MatchStore
    from manymatch.batch.parts import Run
    from manymatch.io.pairs import Pair

# Pairs that the page shows, and lines of a picture.
_MOST_PAIRS, _MOST_LINES = 300, 100
# Height of the images of a picture, width of a small one, and its bytes, in a page of some MB.
_HEIGHT, _WIDTH, _BYTES = 400, 320, 16_000
_FACTS = ("name0", "name1", "verdict", "reason", "error")


def write_gallery(store: MatchStore, run: Run, pairs: Sequence[Pair], folder: Path) -> Path:
    """Write ``index.html``, and ``pictures/`` to which it links.

    The pairs are sorted by verdict, best first. Of many pairs some of every verdict are shown.
    """
    counts: Counter[str] = Counter()
    shown: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for row in run.rows(_FACTS):
        counts[row["verdict"]] += 1
        # Those that are listed first; parts are in another order.
        heapq.heappush(shown[row["verdict"]], (-row["index"], row))
        if len(shown[row["verdict"]]) > _MOST_PAIRS:
            heapq.heappop(shown[row["verdict"]])
    most = _MOST_PAIRS // max(1, len(shown))
    make_folder(folder / "pictures")
    groups = []
    for verdict in (name for name in VERDICTS if name in shown):
        rows = [row for _, row in sorted(shown[verdict], reverse=True)[:most]]
        for row in rows if verdict != ERROR else ():
            pair, found = pairs[row["index"]], store[row["index"]]
            try:
                picture = _picture(pair, found.keypoints0, found.keypoints1, found.matches)
            except ValueError:  # an image is no longer there
                continue
            path = pair_file(folder / "pictures", row["index"], pair, "jpg")
            write_whole(path, functools.partial(picture.save, format="JPEG", quality=85))
            row["link"] = f"pictures/{path.name}"
            small = picture.resize((_WIDTH, max(1, picture.height * _WIDTH // picture.width)))
            row["small"] = embedded_jpeg(small, _BYTES)
        groups.append({"verdict": verdict, "count": counts[verdict], "rows": rows})
    page = page_template("gallery.html").render(groups=groups, total=counts.total())
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _picture(pair: Pair, points0: Any, points1: Any, matches: Any) -> Any:
    """Draw the images of a pair side by side, with lines for matches."""
    Image, ImageDraw = (require(f"PIL.{name}", "html", "images") for name in ("Image", "ImageDraw"))
    photos, ends = [], []
    for path, points, column in ((pair.path0, points0, 0), (pair.path1, points1, 1)):
        image = load_image(path)
        height, width = image.shape[:2]
        size = max(1, min(4 * _HEIGHT, round(width * _HEIGHT / height))), _HEIGHT
        photos.append(screen_image(image, size, "image"))
        ends.append((points[matches[:, column]] + 0.5) * np.divide(size, (width, height)))
    ends[1] += (photos[0].shape[1], 0)
    sheet = Image.fromarray(np.hstack(photos))
    pen = ImageDraw.Draw(sheet)
    some = np.linspace(0, len(matches) - 1, min(_MOST_LINES, len(matches))).astype(int)
    for number, (start, end) in enumerate(zip(ends[0][some], ends[1][some], strict=True)):
        pen.line([*start, *end], fill=f"hsl({360 * number // len(some)}, 90%, 55%)")
    return sheet

"""What a user asks for: photographs, cameras and settings, and the command that does the same."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import unicodedata
from pathlib import Path
from typing import Any

from manymatch._validate import METHODS
from manymatch.matcher.cameras import UNKNOWN
from manymatch.matcher.config import PRESETS, MatcherConfig

#: The preset that needs no network.
CLASSIC = "classic"
# A camera is numbers, maybe after a word; a file could be one that nobody uploaded.
_CAMERA = re.compile(r"(?:[A-Za-z_]+[\s,]+)?[-+\d.eE]+(?:[\s,]+[-+\d.eE]+)*")
_LONGEST_CAMERA, _LONGEST_NAME = 300, 80


@dataclasses.dataclass(frozen=True)
class PairRequest:
    """Two photographs, their cameras (None is by EXIF), a preset and changes of its settings.

    Features are also kept in the folder `cache`, if there is one.
    """

    photos: tuple[Path, Path]
    cameras: tuple[str | None, str | None] = (None, None)
    preset: str = CLASSIC
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    with_rank_one: bool = False
    cache: Path | None = None

    def key(self) -> str:
        """Return a text that only equal requests share."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)


def checked_camera(text: str | None, name: str) -> str | None:
    """Return the camera that a user typed, None for that of EXIF."""
    words = str(text or "").strip()
    if not words:
        return None
    if words.lower() == UNKNOWN:
        return UNKNOWN
    if len(words) > _LONGEST_CAMERA or not _CAMERA.fullmatch(words):
        raise ValueError(
            f"{name} must be empty, unknown, a focal length in pixels, fx,fy,cx,cy or "
            f"MODEL,width,height,params..., got {words[:60]!r}"
        )
    return words


def checked_changes(
    preset: str, k: object, threshold: object, method: object, seed: object
) -> dict[str, Any]:
    """Return the settings that differ from those of the preset, checked."""
    if preset not in PRESETS:
        raise ValueError(f"the preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    given: dict[str, Any] = {"k": _whole(k, "K"), "seed": _whole(seed, "the seed")}
    given["method"] = str(method)
    if given["method"] not in METHODS:
        raise ValueError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")
    words = str(threshold).strip().lower().removesuffix("px").strip()
    try:
        given["threshold_px"] = words if words == "auto" else float(words)
    except ValueError:
        raise ValueError(f"the threshold must be auto or a number, got {words[:40]!r}") from None
    base = MatcherConfig.of(preset)
    usual = {
        "k": base.sources[0].association.k,
        "seed": base.options.seed,
        "method": base.method,
        "threshold_px": base.options.threshold_px,
    }
    changes = {name: value for name, value in given.items() if value != usual[name]}
    MatcherConfig.of(preset, **changes)
    return changes


def _whole(value: object, name: str) -> int:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < 2**31 or number != int(number):
        raise ValueError(f"{name} must be a whole number, got {str(value)[:40]!r}")
    return int(number)


def safe_name(name: object) -> str:
    """Return a plain file name made of the one that came with an upload.

    It has letters, digits, dots, dashes and underscores, does not begin with a dot, and is short.
    """
    text = unicodedata.normalize("NFC", str(name)).replace("\\", "/").rsplit("/", 1)[-1]
    text = re.sub(r"[^\w.-]+", "-", text).strip(".-_")
    stem, dot, ending = text.rpartition(".")
    stem, ending = (stem, ending) if dot else (text, "")
    stem = stem.encode()[:_LONGEST_NAME].decode("utf-8", "ignore").strip(".-_") or "photo"
    ending = re.sub(r"[^A-Za-z0-9]", "", ending)[:5]
    return f"{stem}.{ending}" if ending else stem


def command_line(request: PairRequest, out: str | None = None) -> str:
    """Return the command that gives the same result, run in the folder of the photographs."""
    words = ["manymatch", "match", *(path.name for path in request.photos)]
    words += ["--preset", request.preset]
    for side, camera in enumerate(request.cameras):
        if camera is not None:
            words += [f"--camera{side}", camera]
    for name, value in request.changes.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    if request.with_rank_one:
        words.append("--with-rank-one")
    return shlex.join(words if out is None else [*words, "--out", out])


def python_lines(request: PairRequest) -> str:
    """Return lines of Python that give the same result, run in the folder of the photographs."""
    settings = [repr(request.preset)]
    settings += [f"{name}={value!r}" for name, value in request.changes.items()]
    given = [repr(path.name) for path in request.photos]
    for side, camera in enumerate(request.cameras):
        if camera is not None:
            given.append(f"camera{side}={camera!r}")
    if request.with_rank_one:
        given.append("with_rank_one=True")
    lines = [
        "import manymatch as mm",
        "",
        f"matcher = mm.Matcher({', '.join(settings)})",
        f"result = matcher.match({', '.join(given)})",
        "print(result)",
        "if result:  # solved or likely",
        "    R, t = result.pose.R, result.pose.t",
        "    pixels0, pixels1 = result.matched_points",
        'result.save("out", formats=["npz"])',
    ]
    return "\n".join(lines)

"""The files of one matched pair: picture, report, JSON, matches for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manymatch._validate import refusal
from manymatch.io import (
    ColmapWriter,
    HlocWriter,
    PairMatches,
    write_matches_npz,
    write_pose_json,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from manymatch.matcher.result import MatchResult

#: Forms in which matches can be written.
FORMATS = ("npz", "h5", "colmap")


def save_result(
    result: MatchResult,
    folder: str | os.PathLike[str],
    *,
    formats: Iterable[str] = ("npz",),
    picture: bool = True,
    report: bool = True,
    command: str | None = None,
    error_deg: float | None = None,
) -> dict[str, Path]:
    """Write everything about a pair into a folder, which is made if needed.

    Parameters
    ----------
    result : MatchResult
        What a matcher found.
    folder : path
        Files of earlier results in it are replaced.
    formats : iterable of {"npz", "h5", "colmap"}
        ``matches.npz``; hloc's ``features.h5`` and ``matches.h5``; COLMAP's ``matches.txt`` with
        one text of keypoints per image. The first two have the probabilities of the matches,
        where the method gives them.
    picture, report : bool
        Write ``matches.png`` and ``report.html``.
    command : str, optional
        How to get the same result again, shown in the report.
    error_deg : float, optional
        Error of the pose where the truth is known, shown in the report.

    Returns
    -------
    dict of str to Path
        What was written. ``result.json`` and ``config.toml`` always are.
    """
    chosen = list(dict.fromkeys(formats))
    for form in chosen:
        if form not in FORMATS:
            raise refusal("formats", f"among {', '.join(FORMATS)}", form)
    if "colmap" in chosen and any(" " in name for name in result.names):
        raise ValueError(
            f"names of images must have no spaces for COLMAP, which splits at them, got "
            f"{result.names[0]!r} and {result.names[1]!r}"
        )
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    record = result.to_dict()
    del record["pose"]
    written = {"json": root / "result.json", "config": root / "config.toml"}
    write_pose_json(written["json"], result.estimate.pose, record)
    result.config.save(written["config"])
    for form in chosen:
        written.update(_write_matches(result, root, form))
    if picture:
        written["picture"] = root / "matches.png"
        result.plot(written["picture"])
    if report:
        written["report"] = root / "report.html"
        result.report(written["report"], command=command, truth_error_deg=error_deg)
    return written


def _write_matches(result: MatchResult, root: Path, form: str) -> dict[str, Path]:
    names = result.names
    points, matches = (result.keypoints0, result.keypoints1), result.estimate.matches
    probability = result.estimate.match_probability
    if form == "npz":
        path = root / "matches.npz"
        write_matches_npz(
            path,
            *points,
            matches,
            confidence=probability,
            pose=result.estimate.pose,
            config=result.provenance(),
        )
        return {"npz": path}
    pair = PairMatches(*points, matches, probability)
    if form == "h5":
        paths = root / "features.h5", root / "matches.h5"
        with HlocWriter(*paths) as hloc:
            hloc.add(*names, pair, size0=result.size0, size1=result.size1)
        return {"h5 features": paths[0], "h5 matches": paths[1]}
    with ColmapWriter(root) as colmap:
        colmap.add(*names, pair)
    return {"colmap": colmap.path, **{f"colmap {name}": root / f"{name}.txt" for name in names}}

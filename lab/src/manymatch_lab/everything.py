"""Every table and figure of the paper that data and weights allow, on one page."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manymatch.features.feature_config import FEATURE_PRESETS, NATIVE
from manymatch.io.files import as_folder, write_text
from manymatch_lab.engine import ExperimentReport
from manymatch_lab.evaluate.inputs import FileGraphs, open_datasets
from manymatch_lab.evaluate.protocol import PAPER, protocol_sentence
from manymatch_lab.evaluate.tables import Table

#: What of the paper an experiment makes, in the order of the page.
PAPER_ITEMS = {
    "teaser": "Figure 1",
    "diagnose": "Section 2 and supplement A: layers, debias ranks",
    "operators": "Supplement A: association operators",
    "qualitative": "Supplement A: PCA of features",
    "epipolar": "Section 3: an inlier is not necessarily real",
    "toy": "Supplement B: toy configurations",
    "q1": "Q1: K-sweep, reference-pose table",
    "q2": "Q2: estimators, runtime, complementarity",
    "q3": "Q3: representations, paired gains",
    "q4": "Q4: complete systems",
    "sensitivity": "Sensitivity to q and δ",
}
_DENSE = ("teaser", "diagnose", "operators", "qualitative")
_DIAGNOSTIC = "navi-wild-diagnostic"
# For a preset that the paper does not have: layers below it, and directions of position.
_LAYERS_BELOW, _DEBIAS = 3, 10
_STYLE = (
    "body{font:15px sans-serif;max-width:75em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
    "td,th{padding:2px 9px;text-align:right;vertical-align:top}"
    "td:first-child,th:first-child{text-align:left}th{border-bottom:1px solid #222}"
    "p{max-width:60em}i{color:#666}img{max-width:100%}td{border-bottom:1px solid #eee}"
    ".words td,.words th{text-align:left;min-width:6em}"
)


@dataclasses.dataclass(frozen=True)
class Found:
    """Sets as a user names them, those of graphs by themselves, and why others are missing."""

    sets: list[str]
    graphs: list[str] = dataclasses.field(default_factory=list)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    diagnostic: list[str] = dataclasses.field(default_factory=list)  # single sets, with depth first


def discovered(root: object) -> Found:
    """Find the paper's sets in a folder or, where there are none, all other sets in it."""
    folder = as_folder(root, "root")
    missing: dict[str, str] = {}

    def opens(name: str, place: object = None) -> bool:
        try:
            for dataset in open_datasets(name, place):
                dataset.require_truth()
                if not any(pair.path0.is_file() for pair in dataset.pairs):
                    raise ValueError(f"its images are not in {str(folder)!r}")  # noqa: TRY301
        except (ValueError, OSError, ImportError) as error:
            missing[name] = " ".join(str(error).split())
            return False
        return True

    papers = [name for name in PAPER.pairs if opens(name, folder)]
    diagnostic = [_DIAGNOSTIC] if opens(_DIAGNOSTIC, folder) else []
    of_paper = dict(missing)
    if papers:
        return Found(papers, [], of_paper, diagnostic)
    children = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    graphs = [str(path) for path in children if FileGraphs.find(str(path))]
    images = [str(path) for path in children if str(path) not in graphs and opens(str(path))]
    several = (image for image in map(Path, images) if _has_depth(image) is None)
    places = [
        *map(Path, images),
        *(place for image in several for place in sorted(image.iterdir())),
    ]
    single = {str(place): depth for place in places if (depth := _has_depth(place)) is not None}
    with_depth = [name for name, depth in single.items() if depth]
    return Found(graphs + images, graphs, of_paper, diagnostic or with_depth or list(single))


def _has_depth(folder: Path) -> bool | None:
    """Whether the one set in a folder has depth; None if there is no set, or there are several."""
    try:
        found = open_datasets(str(folder)) if folder.is_dir() else []
    except (ValueError, OSError):
        return None
    return found[0].depth is not None if len(found) == 1 else None


def attempts(name: str, found: Found, preset: str | None) -> Iterator[dict[str, Any]]:
    """Go through the arguments with which an experiment is tried: all sets, then graphs alone."""
    given: dict[str, Any] = {"sets": found.sets}
    if name in _DENSE:
        given["sets"] = found.diagnostic or found.sets
        given["data_set"] = next(iter(given["sets"]), "")
        features = FEATURE_PRESETS.get(preset or "")
        if features is not None and features.descriptor != NATIVE:
            layer = features.layer or 1
            one = [f"{features.descriptor}:{layer}"] if name == "diagnose" else features.descriptor
            given |= {"backbone": one, "layer": layer, "debias": features.debias or None}
            if name == "qualitative":
                given |= {"against": max(1, layer - _LAYERS_BELOW), "debias": _DEBIAS}
            if name == "diagnose":
                del given["debias"]
    elif preset is not None:
        given["preset"] = [preset]
    if name == "q4":
        given["sets"] = [one for one in found.sets if one not in found.graphs]
    yield given
    if found.graphs and name not in (*_DENSE, "q4", "toy") and found.graphs != found.sets:
        yield {**given, "sets": found.graphs}


class Page:
    """The page with all reports, written again after each of them."""

    def __init__(self, folder: Path, missing: dict[str, str]) -> None:
        self.folder, self.missing = folder, missing
        self.path = folder / "index.html"
        self.reports: dict[str, ExperimentReport] = {}
        self.failed: dict[str, str] = {}  # why an experiment, or a part of its sets, was not run

    def state(self, name: str) -> str:
        """Say what became of an experiment; why is in `failed`."""
        if name in self.reports:
            return "made with the graphs alone" if name in self.failed else "made"
        return "could not be run" if name in self.failed else "not tried yet"

    def write(self) -> None:
        """Write the page."""
        rows = []
        for name, item in PAPER_ITEMS.items():
            data = self.reports[name].data if name in self.reports else {}
            protocol = ""
            if "differs_from_paper" in data:
                protocol = protocol_sentence(data["differs_from_paper"], data.get("assumed", ()))
            rows.append([item, name, self.state(name), protocol])
        header = ["in the paper", "experiment", "here", "protocol"]
        words = [Table("What was made, and what was not", header, rows).html()]
        lacking = [["all", name, why] for name, why in self.missing.items()]
        for name, why in self.failed.items():
            lacking.append([name, "images" if name in self.reports else "all", why])
        for name, report in self.reports.items():
            lacking += [[name, one["set"], one["why"]] for one in report.data.get("missing", ())]
            absent = (row for row in report.data.get("rows", ()) if row.get("missing"))
            lacking += [[name, row["title"], row["missing"]] for row in absent]
        if lacking:
            header = ["experiment", "set or system", "why"]
            words.append(Table("What could not be run, and why", header, lacking).html())
        parts = [f"<div class=words>{''.join(words)}</div>"]
        for name, report in self.reports.items():
            parts.append(f"<h2 id={name!r}>{html.escape(PAPER_ITEMS[name])}</h2>")
            parts += [f"<p>{html.escape(text)}</p>" for text in (report.title, *report.notes)]
            parts += [table.html() for table in report.tables]
            parts += [f'<p><img src="{name}/{figure}.png"></p>' for figure in report.figures]
        title = "Preserve, Then Resolve: the paper's numbers in italics beside ours"
        head = f"<meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        body = "\n".join(parts)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.path, f"<!doctype html>{head}<h1>{title}</h1>\n{body}\n")

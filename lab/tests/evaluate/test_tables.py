"""One table in three forms."""

import io

import pytest
from rich.console import Console

from manymatch_lab.evaluate.run import RunResult
from manymatch_lab.evaluate.run_tables import run_table
from manymatch_lab.evaluate.tables import Table


def test_every_special_character_of_latex_is_escaped():
    text = Table("t", ["a"], [["\\ & % $ # _ { } ~ ^"]]).latex()
    row = next(line for line in text.splitlines() if "textbackslash" in line)
    assert row == (r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{} \\")


def test_terminal_takes_text_literally():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Table("[bold]t[/bold]", ["[red]h"], [["[link]cell"]]).rich())
    text = console.export_text()
    assert "[bold]t[/bold]" in text
    assert "[red]h" in text
    assert "[link]cell" in text


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="rows must have 2 cells"):
        Table("t", ["a", "b"], [["1"]])


def run_result(folder, **source):
    """A run of two pairs, of which one could not be run."""
    trials = [{"success": True, "error_deg": 2.0, "seconds": 0.1}] * 3
    missed = [{"success": False, "error_deg": 180.0, "failure": "no image"}] * 3
    names = {"name0": "a", "name1": "b", "scene": "", "bin": "", "num_edges": 7}
    association = {"k": 4, "max_edges": 300, "gms": True, "keep": 20}
    options = {"min_iterations": 50, "max_iterations": 2000, "threshold_px": 1.5}
    config = {"estimator": "mcm", "association": association, "options": options, "seeds": 3}
    header = {"title": source["set"], "config": {**config, "proposals_rank": None}}
    records = [
        {**names, "index": 0, "trials": trials},
        {**names, "index": 1, "trials": missed, "error": "no image"},
    ]
    return RunResult(folder, {**header, "source": source}, records)


def test_a_table_says_what_was_run_and_what_failed(tmp_path):
    features = {"detector": "sift", "descriptor": "native", "layer": None}
    features |= {"max_keypoints": 512, "longest": 640}
    common = {"representation": "classic", "preset": "classic", "operator": "mutual"}
    images = {**common, "features": features}
    runs = {
        ("classic", "x"): run_result(tmp_path, set="x", longest=[None, 0], **images),
        ("classic", "y"): run_result(tmp_path, set="y", longest=[None, None], **images),
    }
    text = run_table(runs, "More.").markdown()
    for part in (
        "### mcm on mutual 4-nearest candidates, GMS, of classic\n",
        "Preset classic: sift + native, at most 512 keypoints, longer edge 640 px.\n",
        "Method mcm: mutual 4 nearest neighbours, the first 300 edges, many-to-many GMS, the first "
        "20; 50 to 2,000 iterations at 1.5 px; 3 seeds.\n",
        "Working size by set: image 1 as it is in x.\n",
        "x: 1 of 2 pairs could not be run: no image.\n",
        "y: 1 of 2 pairs could not be run: no image.\n",
        "More.\n",
    ):
        assert text.count(part) == 1, part
    files = {("effnet", "x"): run_result(tmp_path, set="x", representation="effnet")}
    assert "Candidates of effnet.\n" in run_table(files).markdown()

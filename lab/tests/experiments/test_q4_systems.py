"""Q4 end to end on synthetic views: native and stand-in systems, resuming, refusing, ranking."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from manymatch.associate.candidates import Association
from manymatch.matcher.config import MatcherConfig
from manymatch.matcher.matcher import Matcher
from manymatch.options import Options
from manymatch_lab.command import app
from manymatch_lab.engine import report_of
from manymatch_lab.evaluate.estimators import baseline_version
from manymatch_lab.evaluate.inputs import ImageGraphs
from manymatch_lab.experiments import q4_systems as q4
from manymatch_lab.numbers import paper_numbers
from manymatch_lab.systems import System, load_system
from manymatch_lab.systems.base import SystemGraphs
from tests.support.oracle_system import TrueMatches, views_of, write_views

QUICK = Options(min_iterations=50, max_iterations=500)


class Absent(System):
    name, title, paper = "absent", "Absent", "eloftr"

    def missing(self, *, fetch=False):
        del fetch
        return "Absent needs something: pip install something"

    def settings(self):
        raise AssertionError("a system that is not complete is never asked")

    _match = settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_views(tmp_path_factory.mktemp("pairs") / "views", 2)


@pytest.fixture(scope="module")
def views(folder):
    return views_of(folder)


def run(dataset, place, oracle, limit=None):
    compared = [load_system("sift-mnn", offline=True), Absent(), oracle]
    systems = q4.Systems(compared, [MatcherConfig.of("classic")])
    sets = q4.ImageSets([dataset], place, limit=limit, workers=1)
    return q4.run(sets, systems, seeds=2, options=QUICK)


def test_rows_say_the_numbers_or_what_is_missing(views, tmp_path):
    data = run(views, tmp_path, TrueMatches(views))
    names = [row["name"] for row in data["rows"]]
    assert names == ["sift-mnn", "absent", "true-matches", "ours-classic"]
    assert json.loads(json.dumps(data)) == data
    sift, absent, oracle, ours = data["rows"]
    assert absent["missing"] == "Absent needs something: pip install something"
    assert absent["sets"] == {}
    # True matches give the true pose, through resizing and back.
    assert min(oracle["sets"]["synthetic-views"]["auc"]["mean"]) > 98.0
    for row in (sift, oracle, ours):
        assert row["sets"]["synthetic-views"]["pairs"] == 2
    table = report_of("q4", data).tables[0]
    assert table.header == ["Method", "Synthetic views", "Average"]
    by_title = {row[0].text: row[1] for row in table.cells()}
    # The specialist is best and yet not ranked.
    assert not any(part.bold for part in by_title["True matches†"].parts)
    rivals = by_title["SIFT + MNN"].parts, by_title["Ours (classic)"].parts
    assert all(a.bold or b.bold for a, b in zip(*rivals, strict=True))
    assert by_title["Absent"].text == "not run: Absent needs something: pip install something"
    assert "Absent is not run: Absent needs something: pip install something." in table.notes
    # What the paper has and what it does not have is said.
    assert any(text.startswith("also SIFT + MNN") for text in data["differs_from_paper"])
    assert any("seeds" in text for text in data["assumed"])


class Broken(Absent):
    name, title = "broken", "Broken"

    def missing(self, *, fetch=False):
        del fetch

    def settings(self):
        raise RuntimeError("no such\nkernel")


def test_a_system_that_cannot_be_loaded_is_a_row(views, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("MANYMATCH_WEIGHTS", raising=False)
    where = {"device": "cpu", "offline": True}
    compared = q4.Systems([Broken()], [MatcherConfig.of("superpoint")], where)
    data = q4.run(q4.ImageSets([views], tmp_path), compared, seeds=1)
    assert data["rows"][0]["missing"] == "Broken cannot be loaded: no such kernel"
    assert "weights of 'superpoint' must be here" in data["rows"][1]["missing"]
    assert not (tmp_path / "runs").exists()
    report = report_of("q4", data)
    ours = [row for row in report.tables[0].cells() if not row[0].dim]
    assert [row[1].text[:8] for row in ours] == ["not run:"] * 2
    assert report.tables[1].rows == []
    report.write(tmp_path)


def test_matching_is_done_once_and_a_run_goes_on(views, tmp_path):
    oracle = TrueMatches(views)
    first = run(views, tmp_path, oracle, limit=1)
    assert oracle.calls == 1
    assert oracle.shapes == [((180, 240, 3), (180, 240, 3))]
    again = TrueMatches(views)
    next(again.pairs)
    second = run(views, tmp_path, again)
    assert again.calls == 1
    assert second["rows"][2]["sets"]["synthetic-views"]["pairs"] == 2
    third = TrueMatches(views)
    assert run(views, tmp_path, third) == second
    assert third.calls == 0
    assert first["rows"][2]["sets"]["synthetic-views"]["pairs"] == 1


class Gone(TrueMatches):
    """True matches whose package is not installed."""

    def missing(self, *, fetch=False):
        del fetch
        return "True matches need a package: pip install truth"

    def settings(self):
        raise AssertionError("what is not installed is never asked")


def environment_file(place):
    return place / "runs" / "true-matches" / "synthetic-views" / "poselib" / "environment.json"


def test_results_of_another_environment_stay_in_the_table(views, tmp_path):
    there = run(views, tmp_path, TrueMatches(views))
    recorded = json.loads(environment_file(tmp_path).read_text())
    assert recorded["packages"]["poselib"] == baseline_version("poselib")
    assert recorded["date"].endswith("UTC")
    recorded |= {"date": "2026-01-02 03:04 UTC", "packages": {"truth": "7.0"}, "machine": "Else"}
    environment_file(tmp_path).write_text(json.dumps(recorded))
    data = run(views, tmp_path, Gone(views))
    row = data["rows"][2]
    assert row["missing"] is None
    found = row["sets"]["synthetic-views"]
    assert found["environment"] == recorded
    assert {**found, "environment": None} == there["rows"][2]["sets"]["synthetic-views"]
    # Those that were run here have no mark.
    assert data["rows"][0] == there["rows"][0]
    report = report_of("q4", data)
    python = recorded["python"]
    note = f"[1] Computed earlier, 2026-01-02 03:04 UTC, with Else, Python {python}, truth 7.0."
    assert note in report.tables[0].notes
    for table in report.tables:
        titles = [row[0].text for row in table.cells()]
        assert "True matches† [1]" in titles
        assert "SIFT + MNN" in titles
    report.write(tmp_path)
    assert (tmp_path / "q4.tex").read_bytes().isascii()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seeds": 3}, "(config.seeds was 2 and is 3 now)"),
        ({"limit": None}, "its kept results are of 1 of 2 pairs only"),
    ],
)
def test_results_that_do_not_belong_here_are_not_shown(views, tmp_path, change, why):
    def run(system, seeds=2, limit=1):
        sets = q4.ImageSets([views], tmp_path, limit=limit, workers=1)
        return q4.run(sets, q4.Systems([system], []), seeds=seeds, options=QUICK)

    run(TrueMatches(views))
    data = run(Gone(views), **change)
    (row,) = data["rows"]
    assert row["sets"] == {}
    assert row["missing"].startswith("True matches need a package: pip install truth; ")
    assert why in row["missing"]
    assert "not run" in report_of("q4", data).markdown()


def test_results_of_other_versions_stay_and_other_weights_are_refused(views, tmp_path, monkeypatch):
    run(views, tmp_path, TrueMatches(views))
    versions = {"numpy": "0.0.1"}
    monkeypatch.setattr("manymatch.batch.batch.library_versions", lambda: versions)
    system = TrueMatches(views)
    sets = q4.ImageSets([views], tmp_path, workers=1)
    data = q4.run(sets, q4.Systems([system], []), seeds=2, options=QUICK)
    assert data["rows"][0]["sets"]["synthetic-views"]["environment"]["machine"]
    assert system.calls == 0


def test_a_folder_of_other_settings_is_refused_by_their_name(views, tmp_path):
    run(views, tmp_path, TrueMatches(views))
    sets = q4.ImageSets([views], tmp_path, workers=1)
    system = TrueMatches(views)
    with pytest.raises(ValueError, match=r"out must be .*config\.seeds was 2 and is 1 now"):
        q4.run(sets, q4.Systems([system], []), seeds=1, options=QUICK)
    assert system.calls == 0


class Many(TrueMatches):
    """Every true match many times: more than the paper's cap."""

    name, title, specialist = "many", "Many", False

    def _match(self, image0, image1):
        points0, points1, scores = super()._match(image0, image1)
        return [np.tile(one, (40, 1)[: np.ndim(one)]) for one in (points0, points1, scores)]


def test_the_best_1024_matches_count_and_all_are_a_second_row(views, tmp_path):
    sets = q4.ImageSets([views], tmp_path, workers=1)
    data = q4.run(sets, q4.Systems([Many(views), TrueMatches(views)], []), seeds=1, options=QUICK)
    capped, whole, few = data["rows"]
    assert [row["capped"] for row in data["rows"]] == [True, False, True]
    assert capped["sets"]["synthetic-views"]["most_matches"] == 1024
    assert whole["sets"]["synthetic-views"]["most_matches"] > 1024
    assert few["name"] == "true-matches"
    table = report_of("q4", data).tables[0]
    titles = [row[0].text for row in table.cells() if not row[0].dim]
    assert titles == ["Many", "Many‡", "True matches†"]
    assert any("‡ all matches instead of the best 1,024" in note for note in table.notes)


def test_systems_of_the_paper_and_their_unknown_inputs():
    chosen = q4.Systems.from_flags(systems="paper").systems
    titles = paper_numbers("q4")["titles"]
    assert [system.paper for system in chosen] == [key for key in titles if key != "ours"]
    assert {system.name for system in chosen if system.assumed} == {
        "efficient-loftr", "mast3r", "xoftr"
    }  # fmt: skip
    with pytest.raises(ValueError, match="systems must be one of 'paper', 'all', got 'papers'"):
        q4.Systems.from_flags(systems="papers")


def test_mutual_neighbours_are_the_rank_one_pipeline_of_q3(views, tmp_path):
    system = SystemGraphs(views, load_system("sift-mnn"), tmp_path)
    config = MatcherConfig.of("classic", resize="paper")
    ours = ImageGraphs(views, Matcher(config))
    ends = []
    for source in (system, ours):
        posed = source[0]
        graph = Association.rank_one(1024).apply(posed.graph, **posed.sizes)
        both = graph.points0[graph.edges[:, 0]], graph.points1[graph.edges[:, 1]]
        ends.append(np.column_stack(both))
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)


def test_lightglue_has_its_published_defaults(monkeypatch):
    network = {}
    monkeypatch.setattr(
        "kornia.feature.LightGlue", lambda *_, **given: network.update(given) or "network"
    )
    monkeypatch.setattr("manymatch_lab.systems.adaptive_lightglue.fill", lambda module, *_: module)
    matcher = load_system("superpoint-lightglue").matcher
    assert matcher.build("file", matcher.model) == "network"
    assert (network["depth_confidence"], network["width_confidence"]) == (0.95, 0.99)


def test_without_torch_kept_results_and_other_rows_stay(folder, tmp_path):
    arguments = ["q4", str(folder), "--system", "sift-mnn", "--preset", "classic", "--seeds", "1"]
    arguments += ["--max-iterations", "200", "--out", str(tmp_path), "--json", "--offline"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from manymatch_lab.command import app\n"
        f"app({[*arguments, '--system', 'superpoint-lightglue', '--preset', 'dinov3']!r})"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    rows = json.loads(done.stdout)["rows"]
    assert [bool(row["sets"]) for row in rows] == [True, False, True, False]
    assert "torch" in rows[1]["missing"]
    assert "torch" in rows[3]["missing"]


def test_command_lists_missing_systems_and_sets(folder, tmp_path):
    arguments = ["q4", str(folder), "nowhere", "--max-iterations", "200"]
    arguments += ["--system", "sift-mnn", "--system", "roma"]
    arguments += ["--preset", "classic", "--seeds", "1", "--limit", "1", "--offline"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "SIFT + MNN" in words
    assert "nowhere was not run" in words
    data = json.loads((tmp_path / "q4.json").read_text(encoding="utf-8"))
    assert data["rows"][1]["missing"]
    again = CliRunner().invoke(app, [*arguments, "--json", "--out", str(tmp_path)])
    assert json.loads(again.stdout)["rows"] == data["rows"]

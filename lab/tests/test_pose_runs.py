"""The paper's protocol by the flags of the experiments, and where a run differs from it."""

import json

import pytest
from typer.testing import CliRunner

from manymatch_lab import pose_runs
from manymatch_lab.command import app
from manymatch_lab.evaluate.posed_graph import write_posed_graph
from manymatch_lab.evaluate.protocol import PAPER
from manymatch_lab.experiments.q3_rank_one import RepresentationSets
from manymatch_lab.pose_runs import PoseSets
from tests.support.synthetic_runs import SmallGraphs

# Every run on scenes without images has these differences.
SCENES = [
    "synthetic candidates instead of those of dinov3",
    "synthetic-easy instead of the paper's sets",
]


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("name", "given", "texts"),
    [
        ("q1", ["--seeds", 1, "--k", 2, "--iterations", 500],
         ["min_iterations 500 instead of 100,000", "max_iterations 500 instead of 100,000",
          "seeds 1 instead of 5", "the largest K 2 instead of 5"]),
        ("q2", ["--seeds", 5, "--timed-pairs", 0], []),
        ("q2", ["--seeds", 2, "--no-gms", "--timed-pairs", 0],
         ["gms off instead of on", "seeds 2 instead of 5"]),
        ("q3", ["--max-iterations", 2000], ["max_iterations 2,000 instead of 100,000"]),
        ("sensitivity", ["--qs", "0.3", "--deltas", "0.01", "--max-iterations", 2000],
         ["max_iterations 2,000 instead of 100,000", "qs 0.3 instead of "
          "0.05/0.1/0.2/0.3/0.5/0.7/0.9", "deltas 0.01 instead of 0.001/0.003/0.01/0.03/0.1/0.3"])
    ]
)  # fmt: skip
def test_experiments_report_differences_from_the_paper(name, given, texts, tmp_path):
    shown = run(name, "synthetic:easy", "--limit", 1, "--out", tmp_path, *given)
    data = json.loads((tmp_path / f"{name}.json").read_text())
    assert sorted(data["differs_from_paper"]) == sorted(SCENES + texts)
    sentence = f"Differs from the paper's protocol in: {', '.join(data['differs_from_paper'])}."
    assert sentence in " ".join(shown.split())
    assert sentence in (tmp_path / f"{name}.md").read_text()


def test_experiments_that_the_paper_lacks_say_so(tmp_path):
    shown = run(
        "calibration", "synthetic:easy", "--limit", 1, "--out", tmp_path, "--protocol", "paper"
    )
    assert "The paper does not have this experiment." in shown


@pytest.fixture
def opened(monkeypatch):
    """Every set of images is there, and of the presets all but those in `lacking`."""
    calls, lacking = [], {}

    def sources(sets, presets, **_how):
        if presets[0] in lacking:
            raise ValueError(f"{presets[0]} must be here")
        calls.append((list(sets), list(presets)))
        return [SmallGraphs(1, name=name, representation=presets[0]) for name in sets]

    monkeypatch.setattr(pose_runs, "open_graphs", sources)
    monkeypatch.setattr(pose_runs, "open_datasets", lambda *_: [])
    return calls, lacking


def test_default_sets_and_features_are_the_papers(opened, tmp_path):
    calls, _ = opened
    PoseSets.from_flags((), tmp_path, root=tmp_path)
    assert calls == [(list(PAPER.pairs), ["dinov3"])]
    calls.clear()
    RepresentationSets.from_flags((), tmp_path, root=tmp_path)
    assert [presets for _, presets in calls] == [[name] for name in PAPER.presets]


def test_presets_that_cannot_be_loaded_are_listed(opened, tmp_path):
    _, lacking = opened
    lacking.update(dict.fromkeys(("dinov3", "siglip2")))
    found = RepresentationSets.from_flags(("scannet1500",), tmp_path)
    assert [s.representation for s in found.sources] == ["dinov2", "vjepa2.1", "superpoint"]
    assert [entry["set"] for entry in found.missing] == ["preset dinov3", "preset siglip2"]
    # One alone is an error, which names a way out unless it was asked for.
    with pytest.raises(ValueError, match="dinov3 must be here; or name another preset, such as"):
        PoseSets.from_flags(("scannet1500",), tmp_path)
    with pytest.raises(ValueError, match=r"siglip2 must be here$"):
        PoseSets.from_flags(("scannet1500",), tmp_path, preset=["siglip2"])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("q3", ["--max-iterations", 100, "--min-iterations", 50]),
        ("calibration", ["--max-iterations", 100, "--min-iterations", 50]),
    ],
)
def test_pairs_that_could_not_be_run_are_listed_and_exit_code_is_one(name, given, tmp_path):
    folder = tmp_path / "graphs" / "sift" / "small"
    folder.mkdir(parents=True)
    for index in range(3):
        write_posed_graph(folder / f"{index}.npz", SmallGraphs()[index])
    whole = (folder / "1.npz").read_bytes()
    (folder / "1.npz").write_bytes(whole[:100])
    arguments = [name, folder, "--seeds", 1, *given, "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1, result.output
    said = "sift, small: 1 of 3 pairs could not be run: path must be a posed graph, got"
    assert said in " ".join(result.stdout.split())
    data = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert [(entry["set"], entry["pairs"]) for entry in data["not_run"]] == [("sift, small", 1)]
    assert said in (tmp_path / "out" / f"{name}.md").read_text()

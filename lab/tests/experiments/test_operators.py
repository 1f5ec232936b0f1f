"""The comparison of association operators: numbers by hand and a small run."""

from __future__ import annotations

import pytest

from manymatch_lab.dense_pairs import DepthSets, PatchSettings
from manymatch_lab.engine import load_report, report_of
from manymatch_lab.experiments import operators
from tests.support.synthetic_planes import synthetic_planes


def curve(operator: str, place: int, edges: list[float], recall: list[float | None]) -> dict:
    return {"operator": operator, "bin": place, "edges": edges, "recall": recall}


# K = 1 .. 4, one bin.
MUTUAL = curve("mutual", 0, [10, 25, 40, 60], [0.20, 0.35, 0.45, 0.55])
ONEWAY = curve("oneway", 0, [40, 80, 120, 160], [0.30, 0.50, 0.60, 0.65])
UNION = curve("union", 0, [70, 130, 200, 260], [0.40, 0.60, 0.70, 0.75])


def test_comparisons_by_hand() -> None:
    found = operators._comparison({"curves": [MUTUAL, ONEWAY, UNION]}, 0, 4)
    # K = 3 has exactly the 40 edges that one-way has at K = 1.
    assert found["like"] == {
        "mutual_k": 3,
        "mutual_edges": 40,
        "oneway_edges": 40,
        "gain": pytest.approx(0.15),
    }
    assert found["half"] == {
        "mutual_k": 4,
        "oneway_k": 2,
        "edges_ratio": 60 / 80,
        "gain": pytest.approx(0.05),
    }
    # Mutual never has so few edges.
    dense = curve("mutual", 0, [50, 60, 70, 80], [0.2, 0.3, 0.4, 0.5])
    assert operators._comparison({"curves": [dense, ONEWAY]}, 0, 4)["like"] is None
    assert operators._comparison({"curves": [MUTUAL, ONEWAY]}, 1, 4) is None


def test_a_run_on_images_from_end_to_end(tmp_path) -> None:
    pytest.importorskip("torch")
    dataset = synthetic_planes(tmp_path)
    how = PatchSettings(longest=0, weights="random")
    chosen = {"backbone": "efficientnet-lite0", "layer": 10, "debias": 2, "settings": how}
    sets = DepthSets([dataset], tmp_path / "out")
    data = operators.run(sets, **chosen, k=4, bins=(0.0, 40.0), tau=(1.0,))
    assert (data["layer"], data["rank"]) == (10, 2)
    assert data["differs_from_paper"][:4] == [
        "backbone efficientnet-lite0 instead of dinov3-vitl16",
        "layer 10 instead of 19",
        "debias 2 instead of 200",
        "k 4 instead of 16",
    ]
    curves = {entry["operator"]: entry for entry in data["runs"][0]["curves"]}
    assert set(curves) == {"mutual", "oneway", "union"}
    # 80 patches an image: K edges a patch one way; the two lists share what is mutual.
    assert curves["oneway"]["edges"] == [80, 160, 240, 320]
    for m, o, u in zip(*(curves[name]["edges"] for name in curves), strict=True):
        assert m + u == 2 * o
    for m, o, u in zip(*(curves[name]["recall"] for name in curves), strict=True):
        assert m <= o <= u
    report_of("operators", data).write(tmp_path / "report")
    again = load_report(tmp_path / "report" / "operators.json")
    assert again.markdown() == (tmp_path / "report" / "operators.md").read_text()

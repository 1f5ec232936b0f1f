"""Features as colours."""

import pytest

from manymatch_lab.dense_pairs import OneSet, PatchSettings
from manymatch_lab.engine import load_report, report_of
from manymatch_lab.experiments import qualitative
from tests.support.synthetic_planes import synthetic_planes


def test_qualitative_has_two_brackets(tmp_path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    dataset = synthetic_planes(tmp_path, 2)
    settings = {"backbone": "efficientnet-lite0", "layer": 10, "against": 7, "debias": 3}
    settings["settings"] = PatchSettings(longest=0, weights="random")
    data = qualitative.run(OneSet(dataset), pair=[0, 1], **settings)
    assert data["differs_from_paper"][1:4] == [
        "layer 10 instead of 19",
        "against 7 instead of 24",
        "debias 3 instead of 200",
    ]
    assert len(data["examples"]) == 2
    columns = data["examples"][0]["columns"]
    assert [(c["layer"], c["rank"]) for c in columns] == [(7, 3), (10, 3), (10, 0), (10, 3)]
    assert columns[1]["overlays"] == columns[3]["overlays"]
    assert columns[2]["overlays"] != columns[3]["overlays"]
    files = report_of("qualitative", data).write(tmp_path / "out")
    assert (tmp_path / "out" / "qualitative.png") in files
    figure = load_report(tmp_path / "out" / "qualitative.json").figures["qualitative"](data)
    # Two examples of two images in five columns; an image alone, or in grey under its colours.
    assert [len(axis.images) for axis in figure.axes] == [1, 2, 2, 2, 2] * 4
    with pytest.raises(ValueError, match="pair must be"):
        qualitative.run(OneSet(dataset), pair=[2], **settings)

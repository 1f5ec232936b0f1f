"""True matches below rank one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from manymatch_lab.dense_pairs import OneSet, PatchSettings
from manymatch_lab.engine import load_report, report_of
from manymatch_lab.experiments import teaser
from tests.support.synthetic_planes import FOCAL, SHIFT_PX, SIZE, synthetic_planes

# Three patches an image; rows are unit vectors in the plane, given by their angles in degrees.
ANGLES0, ANGLES1 = [0.0, 60.0, 120.0], [10.0, 50.0, 121.0]


def rows(angles: list[float]) -> np.ndarray:
    a = np.deg2rad(angles)
    return np.column_stack([np.cos(a), np.sin(a)])


def test_true_matches_below_rank_one_by_hand() -> None:
    # True partners: 0 - 1, 1 - 0, 2 - 2. The nearest neighbours are 0 - 0, 1 - 1, 2 - 2, so the
    # first two are wrong, and both true matches have rank two in both lists.
    true = {(0, 1), (1, 0), (2, 2)}

    def distance(edges: np.ndarray) -> np.ndarray:
        return np.array([0.5 if tuple(edge) in true else 10.0 for edge in edges.tolist()])

    judge = teaser._Judge(distance, np.array([True, True, True]))
    found = teaser._kept((rows(ANGLES0), rows(ANGLES1)), judge, 3)
    assert found["with_partner"] == 3
    assert found["first_rank"] == [1, 2, 0]
    assert sorted(found["lines"]) == [(0, 1, 0, 2), (1, 0, 1, 2)]
    # A nearest neighbour that is wrong by a little only is not shown.
    near = teaser._Judge(lambda edges: np.minimum(distance(edges), 2.0), judge.has_partner)
    assert teaser._kept((rows(ANGLES0), rows(ANGLES1)), near, 3)["lines"] == []


def test_lines_are_spread() -> None:
    points = np.array([[0.0, 0], [1, 0], [50, 0], [99, 0], [100, 0]])
    lines = [(i, 0, 0, 2) for i in range(5)]
    assert [line[0] for line in teaser._spread(lines, points, 3)] == [2, 0, 4]
    assert len(teaser._spread(lines, points, 9)) == 5
    assert teaser._spread([], points, 3) == []


def test_judging_by_pose_measures_distance_from_the_epipolar_lines(tmp_path) -> None:
    pytest.importorskip("PIL")
    (pair,) = synthetic_planes(tmp_path).pairs
    # The camera moves along x: lines are rows, so the difference in y is the distance.
    centres = (np.array([[20.0, 30.0], [70.0, 64.0]]), np.array([[4.0, 30.0], [50.0, 70.0]]))
    judge = teaser._by_pose(pair, centres, 4.0)
    found = judge.distance(np.array([(0, 0), (0, 1), (1, 1)]))
    np.testing.assert_allclose(found, [0.0, 40 / 4, 6 / 4], atol=1e-9)
    assert SHIFT_PX < SIZE[0] < 2 * FOCAL
    blind = dataclasses.replace(pair, camera0=None)
    with pytest.raises(ValueError, match="pair must have cameras and a true pose"):
        teaser._by_pose(blind, centres, 4.0)


@pytest.mark.parametrize("has_depth", [True, False])
def test_teaser_on_images(tmp_path, has_depth: bool) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    dataset = synthetic_planes(tmp_path)
    if not has_depth:
        dataset = dataclasses.replace(dataset, depth=None)
    settings = {"backbone": "efficientnet-lite0", "layer": 4, "k": 4, "tau": 10.0, "lines": 3}
    settings["settings"] = PatchSettings(longest=0, weights="random")
    data = teaser.run(OneSet(dataset), **settings)
    assert "backbone efficientnet-lite0 instead of dinov3-vitl16" in data["differs_from_paper"]
    assert data["judge"] == ("depth" if has_depth else "pose")
    # 20 x 16 patches of 8 pixels; with depth two columns of the first view are not in the second.
    assert data["patches"] == 320
    assert data["with_partner"] == (18 * 16 if has_depth else 320)
    assert len(data["lines"]) <= 3
    for line in data["lines"]:
        assert 2 <= line["rank"] <= 4
        if has_depth:
            moved = np.subtract(line["point0"], line["right"]) - (SHIFT_PX, 0)
            # 10 cm at 2 m are 5 pixels.
            assert np.linalg.norm(moved) < 5
            assert np.linalg.norm(np.subtract(line["wrong"], line["right"])) > 5
    (table,) = teaser.tables(data)
    assert len(table.rows) == 4
    assert sum(int(row[1]) for row in table.rows) == sum(data["first_rank"])
    report_of("teaser", data).write(tmp_path / "out")
    figure = load_report(tmp_path / "out" / "teaser.json").figures["teaser"](data)
    assert len(figure.axes[0].lines) == 2 * len(data["lines"])
    turned = dataclasses.replace(dataset, pairs=(dataclasses.replace(dataset.pairs[0], rot0=1),))
    with pytest.raises(ValueError, match="pair must be upright"):
        teaser.run(OneSet(turned), **settings)

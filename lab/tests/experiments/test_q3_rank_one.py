"""Q3: rank-one against preserve-then-resolve within each representation."""

import pytest

from manymatch.options import Options
from manymatch_lab.cells import sign_counts
from manymatch_lab.experiments import q3_rank_one as q3
from manymatch_lab.numbers import paper_numbers
from tests.support.synthetic_runs import SmallGraphs
from tests.support.synthetic_spreads import synthetic_result


def test_measured_from_runs():
    wrong = synthetic_result([[180.0, 180.0], [180.0, 180.0]])
    right = synthetic_result([[0.0, 0.0], [180.0, 0.0]])
    one = q3._measured([{"rank-one": wrong, "many": right}])
    assert one["auc"]["many"]["mean"] == pytest.approx([75.0] * 3)
    assert one["delta"]["min"] == pytest.approx([50.0] * 3)
    both = q3._measured([{"rank-one": wrong, "many": right}, {"rank-one": right, "many": wrong}])
    assert both["delta"]["mean"] == pytest.approx([0.0] * 3, abs=1e-12)
    assert both["auc"]["rank-one"]["mean"] == pytest.approx([37.5] * 3)


def test_table_has_the_form_of_the_paper(tmp_path):
    sets = q3.RepresentationSets([SmallGraphs(3)], tmp_path, workers=1)
    options = Options(min_iterations=50, max_iterations=100)
    data = q3.run(sets, seeds=1, gms=False, options=options)
    (run,) = data["runs"]
    table = q3.tables(data)[0]
    assert table.header == ["Representation", "Pipeline", run["sets"][0]["title"], "Average"]
    first, second, paper = (row[:3] for row in table.cells()[:3])
    assert [cell.text for cell in first[:2]] == [run["representation"], "MNN + CM"]
    assert second[1].text == "m-to-m + HCM→MCM"
    assert second[2].text.count(" / ") == 2
    # Representations of the paper that are not here follow with its averages.
    assert paper[0].text == "paper, Corrected DINOv3"
    assert len(table.rows) == 2 + 2 * 5


def test_difference_that_is_shown_as_zero_has_no_sign():
    spread = {"mean": [-0.004, 0.004, -0.2], "interval": [[-0.009, -0.001]] * 2 + [[-0.3, -0.1]]}
    counts = sign_counts([spread])
    assert (counts["below"], counts["clearly below"], counts["above"]) == (1, 1, 0)


def test_paper_has_the_same_pipeline_in_two_questions():
    assert (
        paper_numbers("q3_auc")["auc"]["dinov3"]["many"]
        == (paper_numbers("q2_auc")["auc"]["hcm-mcm"])
    )

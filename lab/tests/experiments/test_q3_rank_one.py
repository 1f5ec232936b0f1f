"""Q3: rank-one against preserve-then-resolve within each representation."""

import pytest

from manymatch_lab.experiments import q3_rank_one as q3
from manymatch_lab.numbers import paper_numbers
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


def test_paper_has_the_same_pipeline_in_two_questions():
    assert (
        paper_numbers("q3_auc")["auc"]["dinov3"]["many"]
        == (paper_numbers("q2_auc")["auc"]["hcm-mcm"])
    )

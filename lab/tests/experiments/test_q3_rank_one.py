"""Q3: rank-one against preserve-then-resolve within each representation."""

import pytest

from manymatch_lab.experiments import q3_rank_one as q3
from manymatch_lab.numbers import paper_numbers
from tests.support.synthetic_spreads import (
    synthetic_result,
)


def test_measured_from_runs():
    wrong = synthetic_result([[180.0, 180.0], [180.0, 180.0]])
    right = synthetic_result([[0.0, 0.0], [180.0, 0.0]])
    one = q3._measured([{"rank-one": wrong, "many": right}])
    assert one["auc"]["many"]["mean"] == pytest.approx([75.0] * 3)
    assert one["delta"]["min"] == pytest.approx([50.0] * 3)
    both = q3._measured([{"rank-one": wrong, "many": right}, {"rank-one": right, "many": wrong}])
    assert both["delta"]["mean"] == pytest.approx([0.0] * 3, abs=1e-12)
    assert both["auc"]["rank-one"]["mean"] == pytest.approx([37.5] * 3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dinov3", (2.75, 4.96, 6.25)),
        ("dinov2", (1.88, 4.03, 6.31)),
        ("vjepa2.1", (2.14, 4.03, 5.65)),
        ("siglip2", (1.44, 3.32, 6.11)),
        ("superpoint", (0.37, 0.73, 1.19)),
    ],
)
def test_paper_numbers_agree_with_its_text(name, text):
    delta, auc = paper_numbers("q3_delta"), paper_numbers("q3_auc")["auc"][name]
    own = {key: value for key, value in delta[name].items() if key != "macro"}
    assert list(own) == list(auc["many"]) == list(auc["rank-one"])
    assert tuple(entry[0] for entry in delta[name]["macro"]) == text
    positive = 0
    for i in range(3):
        average = sum(entries[i][0] for entries in own.values()) / 6
        assert delta[name]["macro"][i][0] == pytest.approx(average, abs=0.0101)
        for key, entries in [*own.items(), ("macro", delta[name]["macro"])]:
            mean, sd, low, high = entries[i]
            assert low <= mean <= high
            # Of five values: the largest deviation for their range, and the least.
            assert (high - low) / 8**0.5 - 0.011 <= sd <= (high - low) * 0.3**0.5 + 0.011
            if key != "macro":
                positive += mean > 0
                gap = auc["many"][key][i] - auc["rank-one"][key][i]
                assert mean == pytest.approx(gap, abs=0.106)
    assert positive == delta["positive"][name]


def test_paper_has_the_same_pipeline_in_two_questions():
    assert (
        paper_numbers("q3_auc")["auc"]["dinov3"]["many"]
        == (paper_numbers("q2_auc")["auc"]["hcm-mcm"])
    )

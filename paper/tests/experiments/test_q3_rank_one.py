"""Q3: rank-one against preserve-then-resolve within each representation."""

import pytest

from manymatch_paper.engine import render
from manymatch_paper.experiments import q3_rank_one as q3
from manymatch_paper.numbers import paper_numbers
from manymatch_paper.style import styled
from tests.support.synthetic_spreads import (
    as_json,
    bold,
    flat,
    made_result,
    settings,
    spread,
    texts,
)


def made_set(name, rank_one, many, interval=((-1.0, 1.0),) * 3):
    """A set with the given AUC by seed and threshold."""
    delta = [
        [a - b for a, b in zip(first, second, strict=True)]
        for first, second in zip(many, rank_one, strict=True)
    ]
    return {
        "name": name,
        "title": name,
        "pairs": 3,
        "auc": {"rank-one": spread(rank_one), "many": spread(many)},
        "delta": spread(delta, interval),
    }


def made_run(representation, sets):
    macro = {"auc": {"rank-one": flat(20.0), "many": flat(21.0)}, "delta": flat(1.0)}
    return {"representation": representation, "sets": sets, "macro": macro}


@pytest.fixture
def data():
    better = made_set(
        "metu-cc", [[10, 20, 30], [12, 20, 30]], [[13, 25, 31], [17, 24, 31]], ((0.5, 7.0),) * 3
    )
    worse = made_set("mine", [[10, 20, 30]] * 2, [[9, 19, 29]] * 2, ((-2.0, -0.5),) * 3)
    mixed = made_set("mine", [[10, 20, 30]] * 2, [[9, 21, 30]] * 2)
    runs = [made_run("superpoint", [better, worse]), made_run("sift", [mixed])]
    missing = [{"set": "lost", "why": "it is not here"}]
    return as_json({"settings": settings(2), "runs": runs, "missing": missing})


def test_auc_table(data):
    table = q3.tables(data)[0]
    rows = texts(table)
    assert rows[0] == [
        "superpoint",
        "metu-cc",
        "MNN + CM",
        "11.0 ± 1.4",
        "20.0 ± 0.0",
        "30.0 ± 0.0",
        "0.4 / 1.2 / 3.3",
    ]
    assert rows[1][2:] == [
        "m-to-m + HCM→MCM",
        "15.0 ± 2.8",
        "24.5 ± 0.7",
        "31.0 ± 0.0",
        "0.6 / 1.6 / 3.9",
    ]
    # Two rows a set: the second wins the first set, the first the second, and a tie has none.
    expected = {(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)}
    assert {cell for cell in bold(table) if cell[0] < 4} == expected
    assert {cell for cell in bold(table) if 6 <= cell[0] < 8} == {(6, 3), (7, 4)}
    assert rows[4][:2] == ["", "Dataset avg."]
    assert rows[10][:3] == ["paper, Corrected DINOv3", "six datasets", "MNN + CM"]
    assert rows[-1][:2] == ["lost", "not run"]


def test_delta_table(data):
    rows = texts(q3.tables(data)[1])
    # Gains 3 and 5 at 5 degrees: mean 4, sample deviation 1.414.
    assert rows[0][:4] == ["superpoint", "metu-cc", "+4.00 ± 1.41 [3.00, 5.00]", "[0.50, 7.00]"]
    assert rows[1][:4] == ["", "paper", "+0.21 ± 0.10 [0.08, 0.33]", ""]
    assert rows[2][:3] == ["", "mine", "-1.00 [-1.00, -1.00]"]
    assert rows[3][:3] == ["", "Dataset avg.", "+1.00 [1.00, 1.00]"]
    assert rows[6][:3] == ["paper, Corrected DINOv3", "six datasets", "+2.75 ± 0.14 [2.58, 2.90]"]


def test_measured_from_runs():
    wrong = made_result([[180.0, 180.0], [180.0, 180.0]])
    right = made_result([[0.0, 0.0], [180.0, 0.0]])
    one = q3._measured([{"rank-one": wrong, "many": right}])
    assert one["auc"]["many"]["mean"] == pytest.approx([75.0] * 3)
    assert one["delta"]["min"] == pytest.approx([50.0] * 3)
    both = q3._measured([{"rank-one": wrong, "many": right}, {"rank-one": right, "many": wrong}])
    assert both["delta"]["mean"] == pytest.approx([0.0] * 3, abs=1e-12)
    assert both["auc"]["rank-one"]["mean"] == pytest.approx([37.5] * 3)


def test_figure(data):
    with styled():
        figure = q3.FIGURES["q3_gains"](data)
        first, second = figure.axes
        assert first.get_title() == "superpoint\n3/6 positive"
        assert second.get_title() == "sift\n1/3 positive"
        dots, others = ([d for d in a.lines if d.get_label()[:3] == "AUC"] for a in (first, second))
        assert list(dots[0].get_xdata()) == pytest.approx([4.0, -1.0, 1.0])
        # The one set of the second panel stands beside the same set of the first.
        assert list(others[0].get_ydata()) == pytest.approx([1 - 0.24, 2 - 0.24])
        bar = first.collections[0].get_segments()[0]
        assert bar[1][0] - bar[0][0] == pytest.approx(2 * 2**0.5)
    assert render(q3.FIGURES["q3_gains"], data)["pdf"].startswith(b"%PDF")


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

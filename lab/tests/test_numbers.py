"""The paper's numbers that are kept in numbers/*.toml agree with each other and with its text."""

import pytest

from manymatch import Options
from manymatch_lab.cells import MethodRow, method_table
from manymatch_lab.experiments.sensitivity import _DELTAS as DELTAS
from manymatch_lab.experiments.sensitivity import _QS as QS
from manymatch_lab.numbers import paper_numbers

# Bold and underlined cells of the paper's table, by threshold.
BEST = {
    "scannet1500": (("eloftr",) * 3, ("sp-lg",) * 3),
    "megadepth1500": (("eloftr",) * 3, ("sp-lg",) * 3),
    "navi-multi": (("mast3r",) * 3, ("sp-lg",) * 3),
    "navi-wild": (("eloftr", "eloftr", "ours"), ("ours", "ours", "eloftr")),
    "metu-cc": (("ours",) * 3, ("eloftr",) * 3),
    "metu-cs": (("eloftr", "ours", "ours"), ("sp-lg", "eloftr", "eloftr")),
}
SETS = tuple(BEST)


def test_numbers_of_q1_agree():
    inclusion = paper_numbers("q1_inclusion")
    assert len(inclusion["sets"]) == 6
    for i, macro in enumerate(inclusion["macro"]):
        average = sum(values[i] for values in inclusion["sets"].values()) / 6
        assert macro == pytest.approx(average, abs=0.0101)
    # The text of Section 5 rounds to one digit.
    assert [round(inclusion["macro"][i], 1) for i in (0, 4)] == [11.2, 15.7]
    assert inclusion["sets"]["megadepth1500"] == pytest.approx(
        [55.1, 55.9, 52.1, 47.4, 42.5], abs=0.051
    )
    auc = paper_numbers("q1_auc")
    for before, after, (low, high) in zip(*auc["macro"], auc["macro_range"], strict=True):
        assert low <= after - before <= high


def test_q2_auc():
    paper = paper_numbers("q2_auc")
    for other, gains in paper["gain"].items():
        for i, gain in enumerate(gains):
            differences = [
                paper["auc"]["hcm-mcm"][name][i] - values[i]
                for name, values in paper["auc"][other].items()
            ]
            # The table has one digit, the text two.
            assert gain == pytest.approx(sum(differences) / 6, abs=0.06)
    for name, winners in paper["best"].items():
        for i, winner in enumerate(winners):
            assert paper["auc"][winner][name][i] == max(
                values[name][i] for values in paper["auc"].values()
            )
    wins = [winner for winners in paper["best"].values() for winner in winners]
    assert wins.count("hcm-mcm") == paper["complementary"]["positive"]
    assert len(wins) == paper["complementary"]["cells"]
    for values in (paper["auc"][name] for name in ("hcm", "mcm", "hcm-mcm")):
        for name, cm in paper["auc"]["cm"].items():
            assert all(a > b for a, b in zip(values[name], cm, strict=True))


def test_q2_runtimes():
    paper = paper_numbers("q2_runtime")
    us, ms = paper["us"], paper["ms"]
    # The extremes of the text were taken before rounding to one digit.
    ratios = [us["mcm"][name] / us["hcm"][name] for name in us["hcm"]]
    assert min(ratios) == pytest.approx(1.25, abs=0.02)
    assert max(ratios) == pytest.approx(1.46, abs=0.02)
    extra = [ms["hcm-mcm"][name] / ms["hcm"][name] - 1.0 for name in ms["hcm"]]
    assert min(extra) >= 0.005
    assert max(extra) <= 0.065
    assert all(ms["hcm-mcm"][name] < ms["mcm"][name] for name in ms["mcm"])
    assert all(ms["cm"][name] < ms["hcm"][name] for name in ms["cm"])
    assert min(ms["hcm"], key=ms["hcm"].get) == max(us["hcm"], key=us["hcm"].get)


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
def test_numbers_of_q3_agree(name, text):
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


@pytest.mark.parametrize("name", SETS)
def test_q4_ranking_gives_bold_and_underlined_cells(name):
    paper = paper_numbers("q4")
    rows = [
        MethodRow([method], {name: auc[name]}, group=None if method in paper["specialists"] else "")
        for method, auc in paper["auc"].items()
    ]
    table = method_table("Q4", ["Method"], {name: name}, rows, [], second=True)
    for i in range(3):
        for look, best in zip(("bold", "underline"), BEST[name], strict=True):
            chosen = [row[0].text for row in table.cells() if getattr(row[1].parts[i], look)]
            assert chosen == [best[i]]


def test_numbers_of_q4_agree():
    auc = paper_numbers("q4")["auc"]
    assert all(set(rows) == set(SETS) for rows in auc.values())
    assert auc["mast3r"]["navi-multi"] == [18.7, 40.3, 58.1]
    assert auc["mast3r"]["navi-wild"] == [4.0, 9.6, 15.9]
    assert auc["ours"]["navi-multi"] == [11.6, 23.9, 35.4]
    assert auc["ours"]["navi-wild"] == [6.4, 15.5, 27.1]
    # The same runs as the two-stage row of Q2.
    assert auc["ours"] == paper_numbers("q2_auc")["auc"]["hcm-mcm"]
    for rows in auc.values():
        assert all(a <= b <= c for a, b, c in rows.values())
    # "The modality-specialist XoFTR remains substantially stronger" where it was trained.
    for name in ("metu-cc", "metu-cs"):
        best = max(rows[name][2] for method, rows in auc.items() if method != "xoftr")
        assert auc["xoftr"][name][2] > best + 10.0


def test_numbers_of_the_sensitivity_agree():
    paper = paper_numbers("sensitivity")
    assert paper["cells"] == paper["settings"] * 6 * len(paper["thresholds"])
    assert paper["q_range"] == [QS[0], QS[-1]]
    assert paper["delta_range"] == [DELTAS[0], DELTAS[-1]]
    options = Options()
    assert paper["default"] == {"q": options.q, "delta": options.delta}

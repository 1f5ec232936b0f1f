"""One table in three forms."""

import io

import pytest
from rich.console import Console

from manymatch.evaluate.tables import Cell, Table

TABLE = Table(
    "AUC | 5°",
    ["set", "HCM → MCM", "50 %"],
    [
        ["a_b", Cell("1.0 ± 0.2", bold=True), Cell("x|y", dim=True)],
        ["c", Cell("2", underline=True), ""],
    ],
    ["A note & more."],
)


def test_markdown():
    assert TABLE.markdown() == (
        "### AUC | 5°\n\n"
        "| set | HCM → MCM | 50 % |\n"
        "| :--- | ---: | ---: |\n"
        "| a_b | **1.0 ± 0.2** | *x\\|y* |\n"
        "| c | <u>2</u> |  |\n"
        "\nA note & more.\n"
    )


def test_latex_escapes_and_marks():
    text = TABLE.latex()
    assert r"\caption{AUC | 5$^\circ$. A note \& more.}" in text
    assert r"set & HCM $\rightarrow$ MCM & 50 \% \\" in text
    assert r"a\_b & \textbf{1.0 $\pm$ 0.2} & \textit{x|y} \\" in text
    assert r"c & \underline{2} &  \\" in text
    assert r"\begin{tabular}{lrr}" in text


def test_every_special_character_of_latex_is_escaped():
    text = Table("t", ["a"], [["\\ & % $ # _ { } ~ ^"]]).latex()
    row = next(line for line in text.splitlines() if "textbackslash" in line)
    assert row == (r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{} \\")


def test_terminal_takes_text_literally():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Table("[bold]t[/bold]", ["[red]h"], [["[link]cell"]]).rich())
    text = console.export_text()
    assert "[bold]t[/bold]" in text
    assert "[red]h" in text
    assert "[link]cell" in text


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="rows must have 2 cells"):
        Table("t", ["a", "b"], [["1"]])

"""One table in three forms."""

import io

import pytest
from rich.console import Console

from manymatch.evaluate.tables import Table


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

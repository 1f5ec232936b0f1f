"""One panel a set, every representation in rows of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manymatch_paper.experiments.style import INK, PAGE_CM, new_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

_COLUMNS = 4
_ROW_CM, _EDGE_CM = 4.1, 1.6
# Width of an entry of a legend.
_ENTRY_CM = 2.1


def panel_rows(
    runs: Sequence[dict[str, Any]], row_cm: float = _ROW_CM
) -> tuple[Figure, list[tuple[Any, dict[str, Any]]]]:
    """Make a figure with an axis for every set of every run.

    Parameters
    ----------
    runs : sequence of {"representation", "sets"}
        A representation starts a new row; with several ones its name stands above its first.
    row_cm : float
        Height of a row of panels in centimetres.

    Returns
    -------
    figure, list of (axis, set)
    """
    columns = max(1, min(_COLUMNS, max(len(run["sets"]) for run in runs)))
    # Seven panels are better as four and three, six as three and three.
    widest = max(len(run["sets"]) for run in runs)
    columns = -(-widest // -(-widest // columns))
    rows = [-(-len(run["sets"]) // columns) for run in runs]
    width = min(PAGE_CM, _EDGE_CM + 5.2 * columns)
    figure = new_figure(width, _EDGE_CM + row_cm * sum(rows))
    grid = figure.add_gridspec(sum(rows), columns)
    axes = []
    for first, run in zip(_starts(rows), runs, strict=True):
        for i, entry in enumerate(run["sets"]):
            axis = figure.add_subplot(grid[first + i // columns, i % columns])
            axes.append((axis, entry))
            if i == 0 and len(runs) > 1:
                axis.annotate(
                    run["representation"],
                    (0.0, 1.0),
                    xytext=(-16, 19),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    fontsize=8.5,
                    fontweight="bold",
                    color=INK,
                )
    return figure, axes


def legend_above(figure: Figure, handles: Sequence[Any]) -> None:
    """Put a legend above all panels, in as many rows as the width needs."""
    fit = max(1, int(2.54 * figure.get_figwidth() / _ENTRY_CM))
    rows = -(-len(handles) // fit)
    columns = -(-len(handles) // rows)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, columnspacing=1.4)


def panel_title(axis: Any, text: str) -> None:
    """Write a title above a panel, a long one smaller so that it stays above its own."""
    axis.set_title(text, loc="left", fontsize=8.0 * min(1.0, 23 / max(len(text), 1)))


def _starts(rows: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for count in rows:
        starts.append(total)
        total += count
    return starts

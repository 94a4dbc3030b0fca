"""The figures as a person reads them: a table on the terminal, or Markdown to paste into docs/figures.md."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure

VERDICTS = {True: "met", False: "MISSED", None: ""}
COLUMNS = ("figure", "p50", "p95", "p99", "unit", "beside", "ratio", "target", "")
NUMBERS = {"p50", "p95", "p99", "ratio"}


def cells(figure: Figure) -> tuple[str, ...]:
    """One line's cells, in the order of COLUMNS."""
    numbers = (_number(value) for value in (figure.p50, figure.p95, figure.p99))
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g}"
    target = ", ".join(map(str, figure.targets))
    return (figure.name, *numbers, figure.unit, figure.beside or "", ratio, target, VERDICTS[figure.met])


def show(figures: Sequence[Figure], title: str) -> None:
    """Print the table, as wide as it needs to be."""
    table = Table(title=title, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold")
    for figure in figures:
        table.add_row(*cells(figure), style="red" if figure.met is False else None)
    console = Console()
    Console(width=max(console.width, 160)).print(table)


def markdown(figures: Sequence[Figure]) -> str:
    """The same as a Markdown table."""
    lines = [COLUMNS, tuple("--:" if column in NUMBERS else "---" for column in COLUMNS)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, *map(cells, figures)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

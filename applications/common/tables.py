"""Writes Markdown tables: metrics of one run, means over seeds, and differences between models."""

import dataclasses
import math
import numbers
import typing

from applications.common.significance import mean_interval, paired_interval

# Standard deviation of attention weights below which tables add "effectively deterministic".
DETERMINISTIC = 1e-3


@dataclasses.dataclass(frozen=True)
class Column:
    """A table column that shows one metric of each run.

    The record of a run is the content of metrics.json.

    Attributes:
        title: Heading of the column, with the unit.
        of: Path of the metric in the record, such as "report.likelihood.perplexity", or a function of the record.
        digits: Digits after the decimal point.
        scale: Factor by which the metric is multiplied, for instance 100 for per cent.
        logarithm: Whether the table of differences compares logarithms, as for perplexities.
        differs: Whether the table of differences includes the column.
        against: Path of the metric of the baseline in the table of differences. Defaults to `of`.
    """

    title: str
    of: str | typing.Callable
    digits: int = 3
    scale: float = 1.0
    logarithm: bool = False
    differs: bool = True
    against: str | None = None

    def value(self, record):
        """Return the metric of the column from a record, as a number or str, or `None` if it is missing."""
        value = self.of(record) if callable(self.of) else record
        for name in () if callable(self.of) else self.of.split("."):
            if isinstance(value, list):
                value = value[int(name)]
            else:
                value = value.get(name) if isinstance(value, dict) else None
        return value * self.scale if isinstance(value, numbers.Real) and self.scale != 1.0 else value

    def cell(self, values):
        """Return the text of a cell: the mean and its interval, an unchanged str, or "-" for missing values."""
        if any(value is None for value in values):
            return "-"
        if isinstance(values[0], str):
            return values[0]
        return interval_text(mean_interval(values), self.digits)

    def difference(self, values, baseline_values):
        """Return the mean and interval of paired differences from the baseline as text, or "-"."""
        if any(value is None or isinstance(value, str) for value in (*values, *baseline_values)):
            return "-"
        if self.logarithm:
            values, baseline_values = ([math.log(value) for value in row] for row in (values, baseline_values))
        return interval_text(paired_interval(values, baseline_values), self.digits)


def figures_of(columns, record):
    """Return the table of one run, with one row per available metric."""
    cells = [(column.title, column.cell([column.value(record)])) for column in columns]
    return table(("metric", "value"), [cell for cell in cells if cell[1] != "-"])


def main_table(columns, records, first=("model",), first_of=lambda name: (name,), published=lambda name, head: "-"):
    """Return a table with a row per model that shows means over seeds with 95% intervals.

    Args:
        columns: `Column`s. A column is omitted if no record contains its metric.
        records: Dictionary that maps the name of a model to a list of records, one per seed.
        first: Headings of the columns to the left of the metrics.
        first_of: Function from the name of a model to the cells in the columns `first`.
        published: Function (model name, column title) that returns the value in the paper, or "-".
    """
    cells = dict(zip(first, zip(*map(first_of, records), strict=True), strict=True))
    for column in _available(columns, records):
        cells[column.title] = [column.cell([column.value(x) for x in rows]) for rows in records.values()]
        paper_values = [published(name, column.title) for name in records]
        if set(paper_values) != {"-"}:
            cells[f"{column.title}, paper"] = paper_values
    return table(cells, zip(*cells.values(), strict=True))


def difference_table(columns, records, baseline):
    """Return a table with a row per model: mean paired differences from the baseline."""
    cells = {"model": [name for name in records if name != baseline]}
    for column in (column for column in _available(columns, records) if column.differs):
        baseline_column = dataclasses.replace(column, of=column.against or column.of)
        base = [baseline_column.value(record) for record in records[baseline]]
        if isinstance(base[0], numbers.Real):
            cells[f"{'log ' if column.logarithm else ''}{column.title}"] = [
                column.difference([column.value(record) for record in records[name]], base) for name in cells["model"]
            ]
    return table(cells, zip(*cells.values(), strict=True))


def _available(columns, records):
    return [each for each in columns if any(each.value(x) is not None for rows in records.values() for x in rows)]


def titled(title, text):
    """Return Markdown: a title, a blank line and a table."""
    return f"{title}\n\n{text}"


def table(heads, rows):
    """Return a Markdown table with the headings `heads` and padded cells."""
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in (heads, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in lines)


def interval_text(interval, digits=3):
    """Format an `Interval` as "mean [low, high]", or as "mean" if the limits are NaN."""
    mean, low, high = interval
    if low != low:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def title_from(name, title_of):
    """Return a title for an entry of `compare --models`: MODEL[@START][:options].
    `title_of` maps models to titles."""
    model, at, rest = name.partition("@")
    start, colon, options = (rest if at else model).partition(":")
    title = title_of(model.partition(":")[0]) + (f", from {title_of(start)}" if at else "")
    return title + (f" ({options})" if colon else "")


def out_of(share, count):
    """Format a fraction of `count` examples: a `share` of 0.91 of 1200 examples is "1,092 of 1,200"."""
    return f"{round(share * count):,} of {count:,}"


def spread(deviation):
    """Format a standard deviation of attention weights, with a remark if it is nearly 0. Keep `None`."""
    if deviation is None:
        return None
    return f"{deviation:.1e}, effectively deterministic" if deviation < DETERMINISTIC else f"{deviation:.4f}"

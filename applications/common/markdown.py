"""Tables in Markdown."""


def table(heads, rows):
    """Return a table as one text without a line end.

    Args:
        heads: Heads of the columns.
        rows: Lists of cells, one for each head; other values than str are written as such.
    """
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval_text(interval, digits=3):
    """Return a mean with its interval, or the mean alone where a single value has none."""
    mean, low, high = interval
    if low != low:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

"""Tables 2 and 4 of the paper, over several seeds."""

from applications.common.errors import InputError
from applications.common.markdown import interval_text, table
from applications.text.metrics import mean_interval, paired_interval
from applications.ved.options import find_row

COLUMNS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "entropy", "dist_1", "dist_2")


def split_name(name):
    """Return the row and the gamma_a, or `None`, of a name such as "ved_vattn_mean:0.01"; `InputError` otherwise."""
    row, _, gamma = name.partition(":")
    find_row(row)
    try:
        gamma = float(gamma) if gamma else None
    except ValueError as error:
        raise InputError(f"--rows: {name}: gamma_a must be a number.") from error
    if gamma is not None and not gamma >= 0:
        raise InputError(f"--rows: gamma_a must be at least 0. Received: {name}")
    return row, gamma


def is_stochastic(name):
    """Return whether the row of that name draws."""
    return find_row(split_name(name)[0]).stochastic


def table_of(options, records):
    """Return the table in Markdown: means with 95% intervals, then paired differences against the baseline."""
    columns = COLUMNS if options.layout == "table_2" else ("bleu_2", *COLUMNS[4:])
    claim = "one seed, no claim" if options.seeds == 1 else f"{options.seeds} seeds, mean [95% interval]"
    first = next(iter(records.values()))
    head = f"{first['report']['num_sources']} {first['split']} sources; {first['report']['map']['bleu_signature']}"
    lines = []
    for name in options.rows:
        for inference in ("map", "sampling"):
            values = [
                [records[name, seed]["report"].get(inference, {}).get(column) for seed in range(options.seeds)]
                for column in columns
            ]
            if any(None not in entries for entries in values):
                cells = [_cell(mean_interval, *pair) for pair in zip(columns, values, strict=True)]
                lines.append((name, inference, *cells))
    parts = [f"{claim}; {head}", table(("row", "inference", *columns), lines)]
    if options.seeds > 1 and options.baseline not in options.rows:
        parts.append(f"No differences: {options.baseline} is not among the rows.")
    elif options.seeds > 1:
        lines = []
        for name in options.rows:
            if name == options.baseline or not is_stochastic(name):
                continue
            cells = []
            for column in columns:
                pair = [
                    [records[row, seed]["report"]["sampling"][column] for seed in range(options.seeds)]
                    for row in (name, options.baseline)
                ]
                cells.append(_cell(lambda entries: paired_interval(*entries), column, pair))
            lines.append((name, *cells))
        parts += [f"Paired differences against {options.baseline}, sampling:", table(("row", *columns), lines)]
    return "\n\n".join(parts) + "\n"


def _cell(interval_of, column, values):
    if any(value is None for value in values):
        return "-"
    return interval_text(interval_of(values), 2 if column.startswith("bleu") else 3)

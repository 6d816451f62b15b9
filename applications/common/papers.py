"""Figures of the papers, in papers.yaml, which the layouts of `compare` show beside ours."""

import functools
import pathlib

import yaml

from applications.common.tables import main_table, titled


@functools.cache
def _papers():
    text = pathlib.Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8")
    # `BaseLoader` reads figures as strings, which preserves trailing zeros.
    return yaml.load(text, yaml.BaseLoader)


def published_figure(paper, name, head):
    """Return the figure in the column `head` of a table of papers.yaml, a str; "-" if the paper has no such figure.

    `name` is an entry of `compare`, MODEL[@START][:options]; a table may have lines with options and starts.
    """
    table, model = _papers()[paper], name.partition(":")[0]
    line = table.get(name) or table.get(model) or table.get(model.partition("@")[0])
    return line[table["heads"].index(head)] if line and head in table["heads"] else "-"


def data_of_both(paper, records):
    """Return a phrase for a title: the data of the paper's figures and of ours."""
    record = next(iter(records.values()))[0]
    # The first entry is the number of examples.
    unit, count = next(iter(record["data"]["train"].items()))
    return f"paper: {_papers()[paper]['of']}; here: {count:,} {unit}, {record['epochs']} epochs"


def with_paper(title, paper, columns, records, **first):
    """Return a `main_table` with its title, and beside each column the paper's, from the table `paper` in
    papers.yaml."""
    text = main_table(columns, records, published=functools.partial(published_figure, paper), **first)
    return titled(f"{title}; {data_of_both(paper, records)}", text)

"""Reads the published results from papers.yaml, which the tables of `compare` show."""

import functools
import pathlib

import yaml

from applications.common.tables import main_table, titled


@functools.cache
def _papers():
    text = pathlib.Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8")
    # Other loaders read numbers as floats, which drops trailing zeros.
    return yaml.load(text, yaml.BaseLoader)


def published_figure(paper, name, head):
    """Return a number of the table `paper` in papers.yaml as text, or "-" if the paper gives no number.

    `head` is the column. The row is the first of these names in the table: `name`, `name` without its options, MODEL.
    `name` is an entry of `compare --models`: MODEL[@START][:options].
    """
    table, model = _papers()[paper], name.partition(":")[0]
    line = table.get(name) or table.get(model) or table.get(model.partition("@")[0])
    return line[table["heads"].index(head)] if line and head in table["heads"] else "-"


def data_of_both(paper, records):
    """Return a phrase for a table's title: the data set of the paper, and the size of our data."""
    record = next(iter(records.values()))[0]
    # The first key is the counted unit, for instance "sentences".
    unit, count = next(iter(record["data"]["train"].items()))
    return f"paper: {_papers()[paper]['of']}; here: {count:,} {unit}, {record['epochs']} epochs"


def with_paper(title, paper, columns, records, **first):
    """Return a titled `main_table` of our numbers and of the table `paper` in papers.yaml."""
    text = main_table(columns, records, published=functools.partial(published_figure, paper), **first)
    return titled(f"{title}; {data_of_both(paper, records)}", text)

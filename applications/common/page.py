"""Writes report.html, which shows the tables, pictures, samples and alignments of a run or comparison."""

import base64
import dataclasses
import functools
import hashlib
import pathlib

import jinja2
import markdown_it
import numpy as np

from applications.common.runs import write_text_atomically
from applications.common.shown import Shown, random_rows
from keras_vattn.plots.chart import require_altair, styled
from keras_vattn.plots.interactive_alignment import alignment_chart

MOST_SAMPLES, MOST_LINES, MOST_ALIGNMENTS = 24, 60, 24
_START = """
const spec = JSON.parse(document.querySelector("figure script").textContent);
vegaEmbed("#view", spec, {actions: false, bind: "#choices"});
"""


@dataclasses.dataclass
class Page:
    """The content of report.html.

    Attributes:
        title, heading: The title, and the line above the tables.
        tables: Markdown.
        summary: Sentences below the title.
        pictures: Paths of PNG files.
        shown: `Shown`.
        details: Dictionary that maps titles of collapsible sections to dictionaries.
    """

    title: str
    heading: str
    tables: str
    summary: list = dataclasses.field(default_factory=list)
    pictures: list = dataclasses.field(default_factory=list)
    shown: Shown = dataclasses.field(default_factory=Shown)
    details: dict = dataclasses.field(default_factory=dict)


def pictures_in(folder):
    """Return the PNG files in the folder of a run or a comparison, and in its subfolder pictures/."""
    return [*sorted(folder.glob("*.png")), *sorted(folder.glob("pictures/*.png"))]


def write_page(path, page):
    """Write a `Page` as a self-contained HTML file."""
    samples, alignments = page.shown.samples, _drawable(page.shown.alignments)
    samples = [samples[row][:MOST_LINES] for row in random_rows(len(samples), MOST_SAMPLES)]
    nats = [x for sample in samples for _, text in sample if not isinstance(text, str) for _, x in text]
    scripts = [bundle(), _START] if alignments else []
    text = _template().render(
        page=page,
        # Other Markdown rules would change text with special characters.
        tables=markdown_it.MarkdownIt("zero").enable("table").render(page.tables),
        pictures=[(path.stem, base64.b64encode(path.read_bytes()).decode()) for path in page.pictures],
        samples=samples,
        chart=_chart(alignments) if alignments else None,
        is_drawn=any(one.spread for one in alignments),
        # The template divides by this value, so it must not be 0.
        most_nats=max([1e-9, *nats]) if nats else None,
        counts={"samples": (samples, page.shown.samples), "alignments": (alignments, page.shown.alignments)},
        scripts=scripts,
        # The page forbids all scripts except those with these digests.
        digests=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
    )
    write_text_atomically(path, text)


def _drawable(alignments):
    """Return up to `MOST_ALIGNMENTS` alignments with numbered titles, without NaN and infinity."""
    finite = [
        alignment
        for alignment in alignments
        if alignment.weights
        and all(np.isfinite(x).all() for x in (*alignment.weights.values(), *alignment.spread.values()))
    ]
    numbered = enumerate(finite[:MOST_ALIGNMENTS], start=1)
    return [dataclasses.replace(one, title=f"{number}. {one.title[:80]}") for number, one in numbered]


def _chart(alignments):
    require_altair()
    chart, datasets = alignment_chart([dataclasses.asdict(alignment) for alignment in alignments])
    return styled(chart).to_dict(validate=False) | {"datasets": datasets}


@functools.cache
def _template():
    loader = jinja2.FileSystemLoader(pathlib.Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment.get_template("page.html")


@functools.cache
def bundle():
    """Return the JavaScript of Vega, Vega-Lite and vegaEmbed. Building it takes more than a second."""
    require_altair()
    import vl_convert

    return vl_convert.javascript_bundle()

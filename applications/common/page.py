"""report.html: one file with the tables, curves, samples and alignments of a run, an evaluation or a comparison."""

import base64
import dataclasses
import functools
import hashlib
import json
import pathlib

import numpy as np

from applications.common.page_charts import alignment_spec, curve_charts, region_spec
from applications.common.runs import write_text_atomically
from applications.common.shown import Shown, random_rows
from applications.common.tables import blocks_of
from applications.common.training_curves import panels_of
from keras_vattn.plots.chart import CONFIG, require_altair

# The file has at most so many bytes. What it shows is halved until it fits.
MOST_BYTES = 3_000_000
# Samples and the lines of one, alignments of sentences and of images, weights of one panel of an alignment, epochs of
# one curve, characters of one text.
MOST_SAMPLES, MOST_LINES, MOST_ALIGNMENTS, MOST_CELLS, MOST_EPOCHS, LONGEST = 24, 60, 24, 10_000, 200, 600
# The charts are of a width that the window has, and what chooses stands above them.
_START = """
for (const figure of document.querySelectorAll("figure")) {
  const [choices, view, spec] = figure.querySelectorAll(".choices, .view, script");
  vegaEmbed(view, JSON.parse(spec.textContent), {renderer: "svg", actions: false, bind: choices, config: CONFIG});
}
"""


@dataclasses.dataclass
class Page:
    """What report.html has.

    Attributes:
        title: The run, or what is compared.
        heading: A line below the title.
        tables: Markdown, tables with their titles.
        summary: Sentences above the heading.
        histories, curves: As of `training_curves.training_curves`.
        shown: `Shown`.
        details: Dictionary from titles to dictionaries of names and values, which are opened by a click.
    """

    title: str
    heading: str
    tables: str
    summary: list = dataclasses.field(default_factory=list)
    histories: dict = dataclasses.field(default_factory=dict)
    curves: dict = dataclasses.field(default_factory=dict)
    shown: Shown = dataclasses.field(default_factory=Shown)
    details: dict = dataclasses.field(default_factory=dict)


def write_page(path, page):
    """Write a `Page` into an HTML file that needs no other file and no network, at most `MOST_BYTES` long."""
    for share in (1, 2, 4, 8, 16, 32):
        text = _rendered(page, share)
        if len(text.encode()) <= MOST_BYTES:
            break
    write_text_atomically(path, text)


def _rendered(page, share):
    left_out, shown = [], page.shown

    def some(what, items, most):
        samples = items if len(items) <= most else [items[place] for place in random_rows(len(items), most)]
        if len(samples) < len(items):
            left_out.append(f"{len(samples)} of {len(items)} {what}, drawn at random")
        return samples

    samples = [
        [(label, _cut(text)) for label, text in sample[:MOST_LINES]]
        for sample in some("samples", shown.samples, MOST_SAMPLES // share)
    ]
    if any(len(sample) > MOST_LINES for sample in shown.samples):
        left_out.append(f"the first {MOST_LINES} lines of a sample")
    fitting = [one for one in shown.alignments if _can_be_drawn(one)]
    if len(fitting) < len(shown.alignments):
        left_out.append(f"alignments of at most {MOST_CELLS:,} weights, all finite")
    if any(len(rows) > MOST_EPOCHS // share for seeds in page.histories.values() for rows in seeds):
        left_out.append(f"{MOST_EPOCHS // share} epochs of each curve, spread evenly")
    alignments = [
        some(what, [one for one in fitting if (one.image is None) == is_text], MOST_ALIGNMENTS // share)
        for what, is_text in (("alignments", True), ("pictures", False))
    ]
    sentences, pictures = (
        [dataclasses.replace(one, title=f"{number}. {_cut(one.title, 80)}") for number, one in enumerate(of, start=1)]
        for of in alignments
    )
    labels, constants = panels_of(page.histories, page.curves)
    specs = {
        "curves": curve_charts(page.histories, labels, MOST_EPOCHS // share),
        "sentences": alignment_spec(sentences) if sentences else None,
        "pictures": region_spec(pictures) if pictures else None,
    }
    scripts = [bundle(), _start()] if any(specs.values()) else []
    return _template().render(
        page=page,
        blocks=blocks_of(page.tables),
        samples=samples,
        specs=specs,
        constants=constants,
        is_drawn={"sentences": any(one.spread for one in sentences), "pictures": any(one.spread for one in pictures)},
        is_framed=any(one.unsure is not None for one in pictures),
        most_nats=max((nats for sample in samples for nats in _nats(sample)), default=None),
        left_out=left_out,
        scripts=scripts,
        # No other script runs, and nothing is loaded.
        digests=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
    )


def _can_be_drawn(alignment):
    panels = [np.asarray(panel, "float64") for of in (alignment.weights, alignment.spread) for panel in of.values()]
    fit = (0 < panel.size <= MOST_CELLS and np.isfinite(panel).all() for panel in panels)
    return bool(alignment.weights) and all(fit)


def _nats(sample):
    # A word of which the model is sure has a colour all the same, of no strength.
    return [max(nats, 1e-9) for _, text in sample if not isinstance(text, str) for _, nats in text]


def _cut(text, longest=LONGEST):
    if not isinstance(text, str):
        return text[:longest]
    return text if len(text) <= longest else f"{text[:longest]}…"


@functools.cache
def _template():
    import jinja2

    folder = pathlib.Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment.get_template("page.html")


@functools.cache
def bundle():
    """Return the JavaScript of Vega, Vega-Lite and vegaEmbed; it takes more than a second to make."""
    require_altair()
    import vl_convert

    return vl_convert.javascript_bundle()


@functools.cache
def _start():
    return _START.replace("CONFIG", json.dumps(CONFIG))

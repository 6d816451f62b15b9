"""Tests the content of report.html, and that all content is escaped."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from applications.common import page
from applications.common.page import Page, write_page
from applications.common.shown import Alignment, Shown, joined, random_rows
from applications.common.tables import table, titled

ATTACK = "</script><script>alert('x')</script><img src=x onerror=alert(1)> & \"q\""
# A PNG with one grey pixel.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


def weights(rows, columns=2, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(columns), rows)


def sentence(title="one", source=("ein", ATTACK), target=("a", ATTACK), **panels):
    return Alignment(title, list(target), panels or {"": weights(len(target))}, source=list(source))


def written(tmp_path, **fields):
    """Write a page with these fields, and return the HTML text."""
    path = tmp_path / "report.html"
    figures = table(("figure", "value"), [("a", 1)])
    write_page(path, Page(**{"title": "run", "heading": "head", "tables": figures, **fields}))
    return path.read_text(encoding="utf-8")


class Elements(html.parser.HTMLParser):
    """Parses a page into elements with attributes, texts, scripts and the JSON of charts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.charts, self.scripts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and data.strip():
            (self.charts if "type" in attributes else self.scripts).append(data)
        elif tag != "style" and data.strip():
            self.texts.append(data.strip())


def test_the_content_of_a_page_is_escaped(tmp_path):
    """Titles, tables, samples, options and chart data are escaped."""
    (tmp_path / "curves.png").write_bytes(PNG)
    text = written(
        tmp_path,
        title=ATTACK,
        heading=ATTACK,
        tables=titled(ATTACK, table(("model", ATTACK), [(ATTACK, "1 | 2")])),
        summary=[ATTACK],
        pictures=[tmp_path / "curves.png"],
        shown=Shown([[("source", ATTACK), (ATTACK, [(ATTACK, 0.25)])]], [sentence(ATTACK)]),
        details={"Options": {"data": ATTACK}},
    )
    elements = Elements(text)
    assert {tag for tag, _ in elements.tags} == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr"),
        *("th", "td", "figure", "figcaption", "img", "script", "dl", "dt", "dd", "mark", "details", "summary"),
    }
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert elements.texts.count(ATTACK) >= 9 and "1 | 2" in elements.texts
    (chart,) = map(json.loads, elements.charts)
    assert chart["datasets"]["cells"][0]["example"] == f"1. {ATTACK}"[:83]
    # The content security policy allows only scripts with these digests, and no network access.
    policy = next(attributes["content"] for _, attributes in elements.tags if "http-equiv" in attributes)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in elements.scripts]
    assert len(digests) == 2 and re.findall("'sha256-(.*?)'", policy) == digests
    assert policy.startswith("default-src 'none'")
    places = [value for _, attributes in elements.tags for name, value in attributes.items() if name in ("src", "href")]
    assert places == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]


def test_a_page_is_as_small_as_it_must_be(tmp_path):
    samples = [[("source", f"{number} word")] for number in range(100)]
    text = written(tmp_path, shown=Shown(samples, [sentence(str(number)) for number in range(30)]))
    assert "24 of 100 samples are shown." in text and "24 of 30 alignments are shown." in text
    lines = [("draw", f"line {number}") for number in range(3000)]
    text = written(tmp_path, shown=Shown([lines]))
    assert "line 59<" in text and "line 60<" not in text


@pytest.mark.parametrize("field", ["weights", "spread"])
def test_an_alignment_that_is_not_finite_is_left_out(tmp_path, field):
    """An alignment with NaN is omitted from the chart, because NaN would leave the whole chart empty."""
    bad = sentence("bad", q=weights(2))
    setattr(bad, field, {"q": np.full((2, 2), np.nan)})
    text = written(tmp_path, shown=Shown([], [sentence("good"), bad, Alignment("none", [], {})]))
    (chart,) = map(json.loads, Elements(text).charts)
    assert {row["example"] for row in chart["datasets"]["cells"]} == {"1. good"}
    assert "1 of 3 alignments are shown." in text


def test_models_beside_each_other():
    def shown(translation, panel, target=("a", "b")):
        sample = [("source", "Satz"), ("reference", "line"), ("translation", translation)]
        return Shown([sample, sample], [sentence(target=target, **{panel: weights(2)})])

    both = joined({"soft": shown("x", "prior"), "wc": shown("y", "q")})
    lines = [("source", "Satz"), ("reference", "line"), ("soft: translation", "x"), ("wc: translation", "y")]
    assert both.samples == [lines, lines]
    (alignment,) = both.alignments
    assert list(alignment.weights) == ["soft: prior", "wc: q"] and alignment.title == "one"
    apart = joined({"soft": shown("x", "p"), "hard": shown("x", "p"), "wc": shown("x", "p", target=("a", "c"))})
    assert [(one.title, list(one.weights)) for one in apart.alignments] == [
        ("one (soft, hard)", ["soft: p", "hard: p"]),
        ("one (wc)", ["wc: p"]),
    ]
    assert apart.samples[0][2] == ("translation", "x")


def test_shown_examples_are_read_again():
    shown = Shown([[("source", "a"), ("translation", [("b", 0.5)])]], [sentence()])
    again = Shown.of(json.loads(json.dumps(shown.record())))
    assert again.samples[0][0] == ("source", "a")
    (one,), (other,) = again.alignments, shown.alignments
    np.testing.assert_allclose(one.weights[""], other.weights[""], atol=1e-4)
    assert (one.title, one.target, one.source) == (other.title, other.target, other.source)
    many = Shown([[("source", str(number))] for number in range(1000)]).record()["samples"]
    assert len(many) == 100 and many[-1] == [("source", "979")]


def test_random_rows():
    """Every call returns the same rows. A smaller sample is a subset of a larger one."""
    assert random_rows(17, 5).tolist() == random_rows(17, 5).tolist() == [0, 2, 3, 10, 11]
    assert set(random_rows(1000, 5)) < set(random_rows(1000, 24))


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser(tmp_path, with_the_bundle):
    """The browser does not execute text of the page, uses no network, and redraws the chart after a selection."""
    from browser import browser

    q = np.stack([weights(2, seed=1), weights(2, seed=2)])
    shown = Shown(
        [[("source", ATTACK), ("translation", [("sure", 0.0), ("unsure", 0.9)])]],
        [sentence(ATTACK, p=weights(2), q=q), sentence("two", target=("c", "b", "a"))],
    )
    (tmp_path / "curves.png").write_bytes(PNG)
    text = written(tmp_path, title=ATTACK, pictures=page.pictures_in(tmp_path), shown=shown)
    assert 0.8e6 < len(text) < 1.2e6
    with browser() as window:
        read = window.open(tmp_path / "report.html", "figure #view svg")
        assert ATTACK in read
        (image,) = window.elements("img")
        assert image.get_property("naturalWidth") == 1 and len(window.elements("body > script")) == 2
        # Labels contain a word joiner, because "</script>" would close the script element.
        assert "<\N{WORD JOINER}/script>" in "".join(window.texts("svg text"))

        def rows_of_words():
            return [text for text in window.texts("svg text") if text in ("a", "b", "c")]

        def darkness():
            return [cell.get_attribute("opacity") for cell in window.elements(".mark-rect path[fill=currentColor]")]

        assert rows_of_words().count("c") == 0
        first = darkness()
        window.select("select[name=head]", "2")
        window.wait_until(lambda: darkness() != first)
        np.testing.assert_allclose(np.array(darkness(), float)[-4:], q[1].ravel(), atol=1e-3)
        window.select("select[name=example]", "2. two")
        window.wait_until(lambda: rows_of_words().count("c"))
        for width, scheme in ((1200, "dark"), (400, "light")):
            window.look(width, 800, scheme)
            assert window.overflow() <= 0
        assert (window.errors, window.requests) == ([], [])

"""report.html: what it shows of a record, and that what it shows is text."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from applications.common import page
from applications.common.page import Page, write_page
from applications.common.page_charts import alignment_spec, curve_charts, region_spec
from applications.common.shown import Alignment, Shown, joined, random_rows, sample_lines
from applications.common.tables import table, titled
from applications.common.training_curves import panels_of

ATTACK = "</script><script>alert('x')</script><img src=x onerror=alert(1)> & \"q\""
HALVES = [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]


def weights(rows, columns=2, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(columns), rows)


def sentence(title="one", source=("ein", ATTACK), target=("a", ATTACK), **panels):
    return Alignment(title, list(target), panels or {"": weights(len(target))}, source=list(source))


def picture(title="picture", **changes):
    kind = {"target": ["a", "dog"], "weights": {"q": weights(2)}, "image": "data:image/gif;base64,", "boxes": HALVES}
    return Alignment(**{"title": title, "size": (280, 140), **kind, **changes})


def written(tmp_path, **fields):
    """Write a page, and return its text."""
    path = tmp_path / "report.html"
    figures = table(("figure", "value"), [("a", 1)])
    write_page(path, Page(**{"title": "run", "heading": "head", "tables": figures, **fields}))
    return path.read_text(encoding="utf-8")


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes, their texts, and the JSON of its charts."""

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


def test_what_a_page_shows_is_text(tmp_path):
    """Of the title, tables, samples, options, and the data of the charts."""
    text = written(
        tmp_path,
        title=ATTACK,
        heading=ATTACK,
        tables=titled(ATTACK, table(("model", ATTACK), [(ATTACK, "1 | 2")])),
        summary=[ATTACK],
        histories={
            ATTACK: [[{"epoch": epoch, "loss": epoch, "val_loss": 1.0} for epoch in (1, 2)]],
            "other": [[{"epoch": 1, "loss": 2.0}]],
        },
        shown=Shown([[("source", ATTACK), (ATTACK, [(ATTACK, 0.25)])]], [sentence(ATTACK), picture(ATTACK)]),
        details={"Options": {"data": ATTACK}},
    )
    elements = Elements(text)
    assert {tag for tag, _ in elements.tags} == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr"),
        *("th", "td", "figure", "figcaption", "script", "dl", "dt", "dd", "mark", "details", "summary"),
    }
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert elements.texts.count(ATTACK) >= 9
    assert {"1 | 2", f"loss, validation (nats): 1 ({ATTACK}) throughout"} <= set(elements.texts)
    curve, of_sentence, of_picture = (json.loads(chart) for chart in elements.charts)
    assert {point["model"] for point in curve["datasets"]["points"]} == {ATTACK, "other"}
    assert of_sentence["datasets"]["cells"][0]["example"] == of_picture["datasets"]["images"][0]["picture"][:83]
    # What runs is what the policy has the digest of, and nothing is loaded.
    policy = next(attributes["content"] for _, attributes in elements.tags if "http-equiv" in attributes)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in elements.scripts]
    assert len(digests) == 2 and re.findall("'sha256-(.*?)'", policy) == digests
    assert policy.startswith("default-src 'none'")
    assert not [
        value for _, attributes in elements.tags for name, value in attributes.items() if name in ("src", "href")
    ]


def test_a_page_without_charts_has_no_script(tmp_path):
    elements = Elements(written(tmp_path))
    assert not elements.scripts
    assert elements.texts == ["run", "run", "head", "Figures", "figure", "value", "a", "1"]


def test_a_page_is_as_small_as_it_must_be(tmp_path, monkeypatch):
    samples = [[("source", f"{number} " + 40 * "word ")] for number in range(100)]
    everything = {"shown": Shown(samples, [sentence(str(number)) for number in range(30)])}
    text = written(tmp_path, **everything)
    assert "24 of 100 samples, drawn at random; 24 of 30 alignments, drawn at random" in text
    monkeypatch.setattr(page, "MOST_BYTES", len(text.encode()) // 2)
    text = written(tmp_path, **everything)
    assert len(text.encode()) <= page.MOST_BYTES
    assert re.search(r"(12|6|3) of 100 samples", text)
    # A text is cut, and what cannot be drawn is left out.
    monkeypatch.setattr(page, "MOST_CELLS", 3)
    text = written(tmp_path, shown=Shown([[("source", 700 * "x")]], [sentence()]))
    assert 600 * "x" + "…" in text and 601 * "x" not in text
    assert "alignments of at most 3 weights, all finite" in text and "Where it looks" not in text
    # The weights of one panel are counted, however many models stand beside it.
    text = written(tmp_path, shown=Shown([], [sentence(target=("a",), **{name: weights(1) for name in "pqr"})]))
    assert "Where it looks" in text and "at most 3 weights" not in text


def test_what_does_not_fit_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_BYTES", 25_000)
    many = sentence(target=range(10), source=range(10), **{f"panel {number}": weights(10, 10) for number in range(24)})
    text = written(tmp_path, shown=Shown([[("source", "short")]], [many, Alignment("none", [], {})]))
    assert len(text.encode()) <= page.MOST_BYTES
    assert "0 of 1 alignments" in text and "Where it looks" not in text


@pytest.mark.parametrize("field", ["weights", "spread"])
def test_an_alignment_that_is_not_finite_is_left_out(tmp_path, field):
    """A chart with it would show nothing of the others."""
    bad = sentence("bad", q=weights(2))
    setattr(bad, field, {"q": np.full((2, 2), np.nan)})
    text = written(tmp_path, shown=Shown([], [sentence("good"), bad]))
    (chart,) = map(json.loads, Elements(text).charts)
    assert {row["example"] for row in chart["datasets"]["cells"]} == {"1. good"}
    assert "all finite" in text


def test_the_lines_of_a_sample_are_limited(tmp_path):
    """Of a comparison of many models, or of a paragraph with its sentences."""
    lines = [("draw", f"line {number} " + 600 * "word ") for number in range(3000)]
    text = written(tmp_path, shown=Shown([lines for _ in range(24)]))
    assert len(text.encode()) <= page.MOST_BYTES
    assert "line 59 " in text and "line 60 " not in text and "the first 60 lines of a sample" in text


def test_curves():
    seeds = [
        [
            {"epoch": epoch, "loss": epoch + seed, "val_z_kl": 336.66, "val_z_kl_above_floor": 1.0 / epoch}
            for epoch in (1, 2)
        ]
        for seed in (0, 1)
    ]
    late = [[{"epoch": 5, "loss": None, "val_bleu": float("nan")}, {"epoch": 6, "loss": 3.0, "val_bleu": 2.0}]]
    charts = curve_charts({"soft": seeds, "wc": late}, panels_of({"soft": seeds, "wc": late}, {"val_bleu": "BLEU"})[0])
    assert list(charts) == ["loss, training (nats)", "KL of z above its floor, validation (nats)"]
    assert [point["value"] for point in charts["KL of z above its floor, validation (nats)"]["datasets"]["points"]] == [
        1.0, 0.5, 1.0, 0.5,
    ]  # fmt: skip
    points = charts["loss, training (nats)"]["datasets"]["points"]
    assert [tuple(point.values()) for point in points] == [
        ("soft", 1, 1, 1.0), ("soft", 1, 2, 2.0), ("soft", 2, 1, 2.0), ("soft", 2, 2, 3.0), ("wc", 1, 6, 3.0),
    ]  # fmt: skip
    long = [[{"epoch": epoch, "loss": 0.0} for epoch in range(1, 1001)]]
    (chart,) = curve_charts({"soft": long}, {"loss": "loss"}, 10).values()
    assert [point["epoch"] for point in chart["datasets"]["points"]] == list(range(1, 1001, 111))
    assert curve_charts({"soft": [[{"epoch": 1}]]}, {}, 10) == {}


def test_a_constant_curve_is_a_line_of_text():
    """By model; a curve that changes in the third digit is drawn, and missing values are not counted."""

    def rows(**columns):
        first = {"epoch": 0.0, **dict.fromkeys(columns)}
        return [[first, *({"epoch": 1.0, **dict(zip(columns, x))} for x in zip(*columns.values(), strict=True))]]

    histories = {
        "wf": rows(val_a_kl=[336.661, 336.664], val_b_kl=[0.0001, 0.0004], loss=[1.0, 1.01]),
        "wc": rows(val_a_kl=[40.0, 40.001], loss=[2.0, 2.0]),
    }
    panels, constants = panels_of(histories, {"val_bleu": "BLEU"})
    assert panels == {"loss": "loss, training (nats)"}
    assert constants == [
        "KL of a, validation (nats): 337 (wf), 40 (wc) throughout",
        "KL of b, validation (nats): 0 (wf) throughout",
    ]
    assert panels_of({"wc": rows(loss=[2.0, 2.0])}, {}) == ({}, ["loss, training (nats): 2 throughout"])


def test_every_model_has_its_own_line():
    """Eleven models, more than there are colours."""
    rows = [[{"epoch": epoch, "loss": 1.0 / epoch} for epoch in (1, 2)]]
    (chart,) = curve_charts({f"model {number}": rows for number in range(11)}, {"loss": "loss"}, 10).values()
    encoding = chart["layer"][0]["encoding"]
    color, dash = (encoding[channel]["scale"]["range"] for channel in ("color", "strokeDash"))
    assert len({(one, tuple(other)) for one, other in zip(color, dash, strict=True)}) == 11


def test_sentences_and_images_are_chosen():
    by_words = alignment_spec([sentence("one"), sentence("two", target=("b",))])
    (choice,) = by_words["params"]
    assert choice["bind"]["options"] == ["one", "two"] and choice["value"] == "one"
    assert [row["example"] for row in by_words["datasets"]["cells"]] == ["one", "one", "two"]
    drawn = picture("one", spread={"q": 0.1 * weights(2)}, unsure=[0.1, 0.9])
    overlapping = picture("two", boxes=[[0.0, 0.0, 0.8, 1.0], [0.0, 0.0, 0.0, 0.0]])
    by_regions = region_spec([drawn, overlapping])
    looks = by_regions["datasets"]["looks"]
    assert [(row["picture"], row["place"], row["tiled"]) for row in looks] == [
        ("one", 0, True), ("one", 1, True), ("two", 0, False), ("two", 1, False),
    ]  # fmt: skip
    for place in range(2):
        assert [looks[place][name] for name in ("x", "y", "x2", "y2")] == [[0, 140], [0, 0], [140, 280], [140, 140]]
        np.testing.assert_allclose(looks[place]["weight"], weights(2)[place], atol=1e-4)
        np.testing.assert_allclose(looks[place]["spread"], 0.1 * weights(2)[place], atol=1e-4)
        # A region without an area is padding.
        np.testing.assert_allclose(looks[2 + place]["weight"], weights(2)[place, :1], atol=1e-4)
    assert [word["unsure"] for word in by_regions["datasets"]["words"]] == [0.1, 0.9, 0.0, 0.0]


def test_a_long_caption_has_lines():
    long = picture(weights={"q": weights(40)}, target=[f"word{number}" for number in range(40)])
    words = region_spec([long])["datasets"]["words"]
    assert len({word["line"] for word in words}) > 5
    assert all(word["x"] < word["x2"] <= 280 for word in words)


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
    # Two equal draws of one model are not one of each model.
    draws = {
        "soft": Shown([[("source", "Satz"), ("draw", "x"), ("draw", "x")]]),
        "wc": Shown([[("source", "Satz"), ("draw", "y")]]),
    }
    assert joined({"wc": draws["wc"], "old": Shown()}).samples == [[("wc: source", "Satz"), ("wc: draw", "y")]]
    assert joined(draws).samples == [[("source", "Satz"), ("soft: draw", "x"), ("wc: draw", "y")]]


def test_what_is_shown_is_read_again():
    shown = Shown([[("source", "a"), ("translation", [("b", 0.5)])]], [sentence(), picture()], drawn=object())
    again = Shown.of(json.loads(json.dumps(shown.record())))
    assert again.samples[0][0] == ("source", "a")
    for one, other in zip(again.alignments, shown.alignments, strict=True):
        (name,) = other.weights
        np.testing.assert_allclose(one.weights[name], other.weights[name], atol=1e-4)
        assert (one.title, one.target, one.source, one.image) == (other.title, other.target, other.source, other.image)
    many = Shown([[("source", str(number))] for number in range(1000)]).record()["samples"]
    assert len(many) == 100 and many[-1] == [("source", "979")]


def test_random_rows():
    """The same rows at every call; fewer of them are among more."""
    assert random_rows(17, 5).tolist() == random_rows(17, 5).tolist() == [0, 2, 3, 10, 11]
    assert random_rows(3, 5).tolist() == [0, 1, 2] and random_rows(0, 5).tolist() == []
    assert set(random_rows(1000, 5)) < set(random_rows(1000, 24)) < set(random_rows(1000, 100))
    lines = sample_lines([[("node", str(row)), ("judged", "right")] for row in range(17)], 5)
    assert lines == [*(f"node: {row}; judged: right" for row in (0, 2, 3, 10, 11)), ""]


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser(tmp_path, with_the_bundle):
    """Nothing that is shown runs, nothing is asked for, and what is clicked changes the picture."""
    from browser import browser

    q = np.stack([weights(2, seed=1), weights(2, seed=2)])
    pictures = [picture("one"), picture("two", boxes=[[0, 0, 1, 1], [0, 0, 0.5, 1]])]
    shown = Shown(
        [[("source", ATTACK), ("translation", [("sure", 0.0), ("unsure", 0.9)])]],
        [sentence(ATTACK, p=weights(2), q=q), sentence("two", target=("c", "b", "a")), *pictures],
    )
    rows = [{"epoch": epoch, "loss": 1.0 / epoch, "val_z_kl": epoch} for epoch in (1, 2, 3)]
    histories = {"soft": [rows], "wc": [rows]}
    text = written(tmp_path, title=ATTACK, histories=histories, shown=shown, curves={})
    assert 0.8e6 < len(text) < 1.2e6
    with browser() as seen:
        read = seen.open(tmp_path / "report.html", "figure .view svg")
        assert ATTACK in read
        seen.wait_until(lambda: len(seen.elements("figure .view svg")) == 4)
        assert not seen.elements("img") and len(seen.elements("body > script")) == 2
        # Labels of words, with what keeps them from ending a script.
        assert "<\N{WORD JOINER}/script>" in "".join(seen.texts("svg text"))

        def rows_of_words():
            return [text for text in seen.texts("svg text") if text in ("a", "b", "c")]

        def darkness():
            return [cell.get_attribute("opacity") for cell in seen.elements(".mark-rect path[fill=currentColor]")]

        assert rows_of_words().count("c") == 0
        first = darkness()
        seen.select("select[name=head]", "2")
        seen.wait_until(lambda: darkness() != first)
        np.testing.assert_allclose(np.array(darkness(), float)[-4:], q[1].ravel(), atol=1e-3)
        seen.select("select[name=example]", "2. two")
        seen.wait_until(lambda: rows_of_words().count("c"))
        fog = lambda: [cell.get_attribute("opacity") for cell in seen.elements("path[fill='#222']")]  # noqa: E731
        before = fog()
        seen.click("path[aria-label*='word: dog']")
        seen.wait_until(lambda: fog() != before)
        for width, scheme in ((1200, "dark"), (400, "light")):
            seen.look(width, 800, scheme)
            assert seen.overflow() <= 0
        ink = seen.driver.execute_script("return getComputedStyle(document.body).color")
        assert ink == "rgb(31, 35, 40)"
        assert (seen.errors, seen.requests) == ([], [])

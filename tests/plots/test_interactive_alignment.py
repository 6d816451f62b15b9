"""Tests interactive alignments: contents of the chart, and errors."""

import sys

import numpy as np
import pytest

from keras_vattn import plots

SOURCE, TARGET = ["ein", "ein", "Hund"], ["a", "dog"]


def weights(*shape):
    return np.random.default_rng(0).dirichlet(np.ones(len(SOURCE)), size=shape)


def cells(chart, **values_of_row):
    """Return the data rows with these values: a list of (panel, target, [(source, weight, standard deviation)])."""
    rows = [row for row in chart.to_dict()["datasets"]["cells"] if values_of_row.items() <= row.items()]
    return [
        (row["panel"], row["target"], list(zip(row["source"], row["weight"], row.get("spread", 3 * [None]))))
        for row in rows
    ]


def test_every_weight_has_its_words_and_its_deviation():
    p, q = weights(2), weights(2)[::-1]
    chart = plots.interactive_alignment({"p": p, "q": q}, SOURCE, TARGET, {"q": 0.1 * q}, title="one")
    assert [(panel, target) for panel, target, _ in cells(chart)] == [
        ("p", "00000 a"), ("p", "00001 dog"), ("q", "00000 a"), ("q", "00001 dog"),
    ]  # fmt: skip
    for row, (_, _, entries) in enumerate(cells(chart)):
        words, values, spread = zip(*entries)
        # Equal words have separate columns, in the order of the sentence.
        assert words == ("00000 ein", "00001 ein", "00002 Hund")
        np.testing.assert_allclose(values, np.concatenate([p, q])[row], atol=1e-4)
        if row < 2:
            assert spread == (None, None, None)
        else:
            np.testing.assert_allclose(spread, 0.1 * q[row - 2], atol=1e-4)
    specification = chart.to_dict()
    assert specification["title"] == "one"
    assert specification["facet"]["sort"] == ["p", "q"]
    assert "params" not in specification


def test_layers_and_heads_can_be_selected():
    q = weights(2, 3, 2)
    chart = plots.interactive_alignment({"p": weights(2), "q": q}, SOURCE, TARGET)
    choices = {parameter["name"]: parameter["bind"]["options"] for parameter in chart.to_dict()["params"]}
    assert choices == {"layer": [1, 2], "head": [1, 2, 3]}
    for layer in range(2):
        for head in range(3):
            head_cells = cells(chart, panel="q", layer=layer + 1, head=head + 1)
            values = [[value for _, value, _ in entries] for _, _, entries in head_cells]
            np.testing.assert_allclose(values, q[layer, head], atol=1e-4)
    filters = [transform["filter"] for transform in chart.to_dict()["transform"] if "filter" in transform]
    assert filters == [f"!isValid(datum.{name}) || datum.{name} === {name}" for name in ("layer", "head")]


def test_words_are_escaped_in_scripts():
    """Words are escaped, because Altair writes data into a script element of its HTML without escapes."""
    chart = plots.interactive_alignment(weights(1), ["</script>", "<!--", "<script>"], ["</SCRIPT>"])
    text = chart.to_json()
    assert "</" not in text and "<!" not in text and "<script" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((weights(2).T, SOURCE, TARGET), r"\(target, source\) = \(2, 3\)"),
        ((weights(1, 1, 1, 2), SOURCE, TARGET), "Received: weights of one panel"),
        (({}, SOURCE, TARGET), "at least one panel"),
        ((np.zeros((0, 3)), SOURCE, []), "not be empty"),
        ((2 * weights(2), SOURCE, TARGET), "at most 1"),
        ((np.full((2, 3), np.nan), SOURCE, TARGET), "finite"),
        ((weights(2), SOURCE, TARGET, {"q": weights(2)}), "names and shapes of the weights"),
        ((weights(4, 2), SOURCE, TARGET, weights(2)), "names and shapes of the weights"),
        ((weights(2), SOURCE, TARGET, -weights(2)), "`spread` must be finite and at least 0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.interactive_alignment(*arguments)


def test_a_missing_altair_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ImportError, match=r'pip install "keras_vattn\[plots\]"'):
        plots.interactive_alignment(weights(2), SOURCE, TARGET)

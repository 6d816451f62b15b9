"""Tests questions with answer spans: SQuAD files, windows, the best span, and the official metrics."""

import json

import keras_hub
import numpy as np
import pytest
from finetuning_cases import PIECES, albert_tokenizer, options_of

from applications.common.errors import InputError
from applications.finetuning import data, spans
from applications.finetuning.tokens import TextEncoder

CONTEXT = "The dogs barked at a cat. A cat barked at the dog, the dogs, a dog."


def entry(answers, context=CONTEXT, question="at a cat", number=1, **fields):
    records = [{"text": text, "answer_start": start} for text, start in answers]
    return {"context": context, "qas": [{"id": f"q{number}", "question": question, "answers": records, **fields}]}


def write(folder, *paragraphs):
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return str(path)


def encoder(max_length):
    return TextEncoder(keras_hub.models.BertTokenizer(PIECES, lowercase=True), max_length)


def windows_of(part, max_length, stride):
    return data.Encoded(part, report={}, **spans.windows_of(encoder(max_length), part, stride))


def test_files_of_both_versions(tmp_path):
    impossible = entry([], number=2, is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}])
    questions = data.read_examples(
        write(tmp_path, entry([("dogs", 4), ("The dogs", 0)]), impossible), options_of(tmp_path, task="squad2").texts
    )
    assert questions.ids == ["q1", "q2"] and questions.answers == [[("dogs", 4), ("The dogs", 0)], []]
    assert len(questions.rows([1])) == 1 and questions.rows([1]).ids == ["q2"]


@pytest.mark.parametrize(
    ("paragraph", "message"),
    [
        (entry([("dogs", 5)]), "question q1: expected the answer 'dogs' at character 5 of the context"),
        (entry([("dogs", 900)]), "at character 900 of the context. Received: ''"),
        (entry([("", 3)]), "expected the answer '' at character 3"),
        (entry([(CONTEXT[-5:-2], -5)]), "at character -5 of the context"),
        ({"context": CONTEXT}, "expected a SQuAD file"),
    ],
)
def test_invalid_files(tmp_path, paragraph, message):
    with pytest.raises(InputError) as error:
        spans.read_squad(write(tmp_path, paragraph))
    assert message in str(error.value)
    with pytest.raises(InputError, match=r"expected questions\. Received: none"):
        spans.read_squad(write(tmp_path))


def test_the_context_of_an_albert():
    """`located` returns the pieces of a context and, for each piece, the character offsets of the word."""
    encoder, context = TextEncoder(albert_tokenizer(), 40), "My  dog’s é barked, twice."
    ids, places = encoder.located(context)
    assert ids == encoder.pieces([context]).to_list()[0]
    names = [encoder.tokenizer.id_to_token(index) for index in ids]
    assert {context[start:end] for start, end in places} >= {"My", "dog", "é", "barked", ",", "twice", "."}
    assert context[slice(*places[names.index("\u2581dog")])] == "dog"
    first, last = spans.answer_tokens([("é barked", context.index("é"))], places)
    assert context[places[first][0] : places[last][1]] == "é barked"


@pytest.mark.parametrize(("max_length", "windows"), [(40, 1), (16, 5)])
def test_windows(tmp_path, max_length, windows):
    """Every context token is in a window, and the target tokens match the characters of the answer."""
    part = spans.Questions(["q"], ["at a cat"], [CONTEXT], [[("a dog", CONTEXT.index("a dog"))]])
    encoded = windows_of(part, max_length, 4)
    assert len(encoded.targets) == windows
    names = [[PIECES[index] for index in row] for row in encoded.ids]
    assert all(row[:5] == ["[CLS]", "at", "a", "cat", "[SEP]"] and row[-1] == "[SEP]" for row in names)
    assert all(len(row) <= max_length for row in names)
    assert {place for places in encoded.places for place in places} == set(encoder(9).located(CONTEXT)[1])
    for row, (first, last), places in zip(names, encoded.targets, encoded.places, strict=True):
        if (first, last) == (0, 0):
            continue
        assert row[first : last + 1] == ["a", "dog"]
        assert CONTEXT[places[first - 5][0] : places[last - 5][1]] == "a dog"
    assert any(tuple(target) != (0, 0) for target in encoded.targets)


def test_the_best_span(monkeypatch):
    part = spans.Questions(["q"], ["at a cat"], [CONTEXT], [[]])
    windows = windows_of(part, 40, 8)
    places = windows.places[0]
    scores = np.full((windows.ids[0].shape[0], 2), -9.0)
    first = next(index for index, (start, _) in enumerate(places) if start == CONTEXT.index("at a"))
    scores[5 + first, 0] = scores[5 + first + 2, 1] = -0.1

    def find(may_have_none=True):
        return spans.best_spans(windows, [scores], may_have_none)

    assert find() == ["at a cat"]
    # A span that is too long, or that ends before its start, is not chosen.
    monkeypatch.setattr(spans, "MAX_ANSWER_LENGTH", 2)
    assert find() != ["at a cat"]
    monkeypatch.setattr(spans, "MAX_ANSWER_LENGTH", 3)
    scores[5 + first - 1, 1] = 0.0
    assert find() == ["at a cat"]
    # If the best span starts and ends at [CLS], there is no answer.
    scores[0] = -0.05
    assert find() == [""] and find(may_have_none=False) == ["at a cat"]


def test_a_window_without_the_answer():
    """An answer in one window is returned, even if other windows are certain that there is no answer."""
    part = spans.Questions(["q"], ["at a cat"], [CONTEXT], [[]])
    windows = windows_of(part, 12, 3)
    scores = [np.full((ids.shape[0], 2), -9.0) for ids in windows.ids]
    before, last = windows.num_first[-1], len(windows.places[-1]) - 1
    scores[0][0], scores[-1][before + last] = 0.0, -0.1
    left, right = windows.places[-1][last]
    assert len(scores) > 1 and spans.best_spans(windows, scores, True) == [CONTEXT[left:right]]


def test_official_figures():
    """Exact match and F1 equal the values of the official SQuAD script."""
    assert spans.normalized("The  Dog's, a cat!") == "dogs cat"
    assert spans.f1("the dog barked", "a dog") == pytest.approx(2 / 3)
    assert spans.f1("cat", "dog") == 0.0 and spans.f1("", "") == 1.0 and spans.f1("", "dog") == 0.0
    part = spans.Questions(["1", "2", "3"], [""] * 3, [""] * 3, [[("the dog", 0), ("big dog", 0)], [], [("cat", 0)]])
    figures = spans.figures(["dog", "", "dog"], part)
    assert figures["exact"] == pytest.approx(2 / 3) and figures["f1"] == pytest.approx(2 / 3)
    assert spans.figures(["big", "x", "cat"], part)["f1"] == pytest.approx((2 / 3 + 0 + 1) / 3)

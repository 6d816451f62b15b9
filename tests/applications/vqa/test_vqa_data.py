"""Tests batches: answers sampled by votes, reproducible epochs, and unknown answers."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from application_cases import changed
from vqa_cases import run_of

from applications.common.errors import InputError
from applications.vqa import data
from applications.vqa.options import PROGRAM, QuestionOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("run"))


def drawn_answers(part, options, epochs):
    """Return the answers sampled in `epochs` epochs, a dictionary with question and regions as the key."""
    answers = {}
    batches = iter(part.batches(options, first_epoch=0))
    for _ in range(epochs * part.num_batches(options.fit.batch_size)):
        inputs, target = next(batches)
        np.testing.assert_array_equal(inputs["answer"], target)
        for words, regions, answer in zip(inputs["question"].numpy(), inputs["regions"].numpy(), target.numpy()):
            answers.setdefault((words.tobytes(), regions.tobytes()), []).append(answer)
    return answers


@pytest.mark.slow
def test_answers_are_drawn_in_proportion_to_votes(run):
    """Proportions match within 4 standard errors over 400 epochs. Answers without votes are never sampled."""
    part = dataclasses.replace(run.data["valid"])
    chosen = [0, 1, 3]
    votes = np.zeros((3, len(part.codec.answers)), np.float32)
    votes[[0, 0, 1, 2, 2], [1, 4, 0, 0, 5]] = 7, 3, 10, 1, 1
    part.questions, part.votes = part.questions.rows(chosen), scipy.sparse.csr_matrix(votes)
    part.rows, part.words = part.rows[chosen], part.words[chosen]
    answers_by_question = drawn_answers(part, run.options, 400)
    assert len(answers_by_question) == 3
    shares = sorted((np.bincount(answers, minlength=6) / 400 for answers in answers_by_question.values()), key=max)
    for share, expected in zip(shares, ([0.5, 0, 0, 0, 0, 0.5], [0, 0.7, 0, 0, 0.3, 0], [1, 0, 0, 0, 0, 0])):
        expected = np.array(expected)
        assert (np.abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / 400)).all()


@pytest.mark.slow
def test_an_epoch_depends_only_on_its_number(run):
    part, count = run.data["train"], run.data["train"].num_batches(run.options.fit.batch_size)
    assert count == 4
    both_epochs = [batch for _, batch in zip(range(2 * count), part.batches(run.options, first_epoch=0))]
    second = [batch for _, batch in zip(range(count), part.batches(run.options, first_epoch=1))]
    for batch, repeated in zip(both_epochs[count:], second):
        for name in batch[0]:
            np.testing.assert_array_equal(batch[0][name], repeated[0][name])
    assert any(np.any(batch[1] != repeated[1]) for batch, repeated in zip(both_epochs[:count], second))
    words = np.concatenate([inputs["question"] for inputs, _ in both_epochs[:count]])
    assert sorted(map(bytes, words)) == sorted(map(bytes, part.words))


def test_training_skips_questions_without_a_known_answer(run):
    votes = run.data["valid"].votes.toarray()
    votes[::2] = 0
    part = dataclasses.replace(run.data["valid"], votes=scipy.sparse.csr_matrix(votes))
    assert sum(len(target) for _, target in part.batches(run.options)) == len(part) // 2
    assert sum(len(inputs["question"]) for (inputs,) in part.questions_in_order(run.options)) == len(part)
    with pytest.raises(InputError, match=r"none of 12 questions .* of the 2 known answers.* --valid-questions"):
        codec = dataclasses.replace(run.codec, answers=["nothing", "of this"])
        data.encode(run.options, codec, data.Part(part.questions, part.sources))


def test_the_embedded_scenes():
    parts = data.read(changed(PROGRAM.default, num_scenes=30))
    assert {name: len(part.questions) for name, part in parts.items()} == {"train": 144, "valid": 18, "test": 18}
    questions, images = parts["train"].questions, parts["train"].sources.images
    assert images.pixels.shape == (30, 64, 64, 3) and set(parts["train"].tags) == set(images.ids)
    assert all(len(votes) == 10 for votes in questions.votes) and set(questions.types) == {"yes/no", "number", "other"}
    assert all(-1 <= cell < 16 for cell in questions.cells)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"valid_annotations": "a.json"}, "--valid-annotations requires --valid-questions"),
        ({"valid_questions": "q.json"}, "--valid-questions requires --train-questions"),
        (
            {"train_questions": "q", "test_questions": "q", "test_from_validation": 0.5},
            "expected at most one of --test-from-validation and --test-questions",
        ),
    ],
)
def test_incompatible_options(values, message):
    with pytest.raises(InputError, match=message):
        QuestionOptions(**values).check()

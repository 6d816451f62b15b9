"""Tests all formats of question files, and invalid files."""

import gzip
import json

import pytest

from applications.common.errors import InputError
from applications.vqa.questions import read_questions, split_by_image

VOTES = ["Yes"] * 7 + ["no"] * 3
OFFICIAL = {"questions": [{"question_id": 7, "image_id": 42, "question": "Is it ?"}]}
ANNOTATIONS = {
    "annotations": [
        {"question_id": 7, "image_id": 42, "answer_type": "yes/no", "answers": [{"answer": vote} for vote in VOTES]}
    ]
}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return write


def test_the_official_layout(write):
    questions = read_questions(write("q.json.gz", OFFICIAL), write("a.json", ANNOTATIONS))
    assert (questions.ids, questions.images, questions.texts, questions.types) == (
        ["7"],
        ["42"],
        ["Is it ?"],
        ["yes/no"],
    )
    assert questions.votes == [["yes"] * 7 + ["no"] * 3] and questions.answers == ["yes"]
    assert questions.rows([0, 0]).answers == ["yes", "yes"]


@pytest.mark.parametrize(
    "name, content",
    [
        ("table.csv", "question,answer,image\nwhat is it ?,circle,3\nhow many ?,2,3\n"),
        ("table.tsv", "image\tquestion\tanswer\n003.png\twhat is it ?\tthe circle\n3\thow many ?\t2\n"),
    ],
)
def test_one_answer_counts_ten_times(write, name, content):
    questions = read_questions(write(name, content))
    assert (questions.ids, questions.images, questions.texts) == (
        ["1", "2"],
        ["3", "3"],
        ["what is it ?", "how many ?"],
    )
    assert questions.votes == [["circle"] * 10, ["2"] * 10] and questions.types == ["other", "number"]


def official(write, rows):
    """Write rows (question, answer, image) as VQA v2 files with ids from 1."""
    questions = [{"question_id": n, "image_id": image, "question": text} for n, (text, _, image) in enumerate(rows, 1)]
    answers = [{"question_id": n, "answers": [{"answer": answer}]} for n, (_, answer, _) in enumerate(rows, 1)]
    return write("questions.json", {"questions": questions}), write("annotations.json", {"annotations": answers})


def test_the_multiple_choice_answer_breaks_ties(write):
    votes = [{"answer": answer} for answer in ("no", "no", "yes", "yes")]
    entry = {"question_id": 5, "answers": votes, "multiple_choice_answer": "yes"}
    questions = write("questions.json", {"questions": [{"question_id": 5, "image_id": 1, "question": "is it ?"}]})
    assert read_questions(questions, write("annotations.json", {"annotations": [entry]})).answers == ["yes"]


def test_empty_answers_are_kept_and_empty_questions_are_errors(write):
    paths = official(write, [["what ?", "a", 1], ["is it ?", "yes", 1]])
    assert read_questions(*paths).answers == ["", "yes"]
    with pytest.raises(InputError, match=r"questions.json: question 2: expected at least one word"):
        read_questions(*official(write, [["is it ?", "yes", 1], ["?", "yes", 1]]))


@pytest.mark.parametrize(
    "questions, annotations, message",
    [
        (OFFICIAL, None, "require annotations"),
        (OFFICIAL, {"annotations": []}, r"^[^ ]*a.json: 1 questions of .*q.json have no annotation: 7$"),
        (OFFICIAL, {"annotations": [{"question_id": 7, "answers": []}]}, r"Received at annotations.0.answers: \[\]"),
        ({"questions": OFFICIAL["questions"] * 2}, ANNOTATIONS, "expected unique question ids. Received: 1 repeated"),
        ({"questions": [{"question_id": 7, "image_id": 1, "question": None}]}, ANNOTATIONS, "questions.0.question"),
        ([["what ?", "red", 1]], ANNOTATIONS, "expected VQA v2's .*Received at questions: None"),
        ({"questions": []}, ANNOTATIONS, "expected at least one question"),
    ],
)
def test_wrong_files(write, questions, annotations, message):
    with pytest.raises(InputError, match=message):
        read_questions(write("q.json", questions), None if annotations is None else write("a.json", annotations))


def test_images_are_not_shared_between_splits(write):
    questions = read_questions(*official(write, [["what ?", "red", row // 3] for row in range(30)]))
    rest, held_out = split_by_image(questions, 0.3, 0)
    assert len(set(held_out.images)) == 3 and not set(rest.images) & set(held_out.images)
    assert sorted(rest.ids + held_out.ids, key=int) == questions.ids

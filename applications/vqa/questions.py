"""Read questions about images from tables or from the JSON files of VQA v2."""

import dataclasses
import pathlib
import statistics
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from applications.common.errors import InputError
from applications.text.readers import ParallelText, json_entries, read_json, read_table, split_by_group
from applications.vision.images import image_id
from applications.vqa.answers import normalize_answer

TYPES = ("yes/no", "number", "other")
# A single answer counts as this many votes.
NUM_VOTES = 10


@dataclasses.dataclass
class Questions:
    """Columns with one entry per question.

    An entry of `votes` lists the normalised answers of several people. An entry of `types` is one of `TYPES`. If known,
    `cells` contains the region that shows the answer; the entry is -1 if no region shows it.
    """

    ids: list
    images: list
    texts: list
    votes: list
    types: list
    cells: list | None = None

    def __len__(self):
        return len(self.ids)

    def rows(self, rows):
        columns = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return Questions(*(column and [column[row] for row in rows] for column in columns))

    @property
    def answers(self):
        """The most common answer to each question. Of equally common answers, the first is used."""
        return [statistics.mode(votes) for votes in self.votes]


class _Question(TypedDict):
    question_id: int | str
    image_id: int | str
    question: str


class _Vote(TypedDict):
    answer: str


class _Annotation(TypedDict):
    question_id: int | str
    answers: Annotated[list[_Vote], Field(min_length=1)]
    answer_type: NotRequired[str | None]
    multiple_choice_answer: NotRequired[str | None]


def read_questions(path, annotations=None):
    """Return the `Questions` in a file, plain or .gz.

    The file is the JSON of VQA v2, with its `annotations`, or a CSV or TSV with the columns image, question and answer.
    """
    if pathlib.Path(path).name.removesuffix(".gz").endswith((".csv", ".tsv")):
        if annotations is not None:
            raise InputError(f"{annotations}: expected no annotations, because {path} contains the answers.")
        table = read_table(path, "question", "answer", "image")
        rows = zip(table.groups, table.sources, table.targets, strict=True)
        return _questions(path, [(number, *row[:2], [row[2]], None) for number, row in enumerate(rows, start=1)])
    layout = 'VQA v2\'s {"questions": [{question_id, image_id, question}]}, or a table'
    questions = json_entries(path, read_json(path), "questions", _Question, layout)
    if annotations is None:
        raise InputError(f"{path}: VQA v2 questions require annotations; pass both files.")
    return _questions(path, _annotated(path, questions, annotations))


def _annotated(path, questions, annotations):
    """Yield (question id, image id, question, answers, answer type or `None`) for each question."""
    layout = '{"annotations": [{question_id, answers: [{answer}]}]}'
    entries = json_entries(annotations, read_json(annotations), "annotations", _Annotation, layout)
    entry_of = {entry["question_id"]: entry for entry in entries}
    missing = [str(question["question_id"]) for question in questions if question["question_id"] not in entry_of]
    if missing:
        raise InputError(
            f"{annotations}: {len(missing)} questions of {path} have no annotation: {', '.join(missing[:5])}"
        )
    for question in questions:
        entry = entry_of[question["question_id"]]
        # The first of equally frequent answers becomes the target. The multiple-choice answer must therefore be first.
        best = entry.get("multiple_choice_answer")
        votes = sorted((vote["answer"] for vote in entry["answers"]), key=lambda vote: vote != best)
        yield question["question_id"], question["image_id"], question["question"], votes, entry.get("answer_type")


def _questions(path, rows):
    questions = Questions([], [], [], [], [])
    for number, image, text, votes, kind in rows:
        if not any(map(str.isalnum, text)):
            raise InputError(f"{path}: question {number}: expected at least one word. Received: {text!r}")
        # Keep answers that normalisation makes empty: they count as votes.
        votes = [normalize_answer(vote) for vote in votes]
        questions.ids.append(str(number))
        questions.images.append(image_id(image))
        questions.texts.append(" ".join(text.split()))
        questions.votes.append(votes * NUM_VOTES if len(votes) == 1 else votes)
        questions.types.append(kind or _type_of(statistics.mode(votes)))
    repeated = len(questions) - len(set(questions.ids))
    if repeated:
        raise InputError(f"{path}: expected unique question ids. Received: {repeated} repeated ids")
    if not questions.ids:
        raise InputError(f"{path}: expected at least one question.")
    return questions


def _type_of(answer):
    if answer in ("yes", "no"):
        return "yes/no"
    return "number" if answer.replace(".", "", 1).isdigit() else "other"


def split_by_image(questions, fraction, seed, option="--valid-fraction"):
    """Return `(train, held_out)`. All questions about an image are in the same split."""
    rows = list(range(len(questions)))
    text = ParallelText(rows, rows, questions.images)
    parts = split_by_group(text, fraction, seed, option=option, group="image")
    return tuple(questions.rows(part.sources) for part in parts)

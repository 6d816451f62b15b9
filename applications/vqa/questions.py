"""Files of questions about images: VQA v2's, and tables."""

import dataclasses
import pathlib
import statistics

from applications.common.errors import InputError
from applications.text.readers import ParallelText, read_json, read_table, split_by_group
from applications.vision.images import image_id
from applications.vqa.answers import normalize_answer

# Types of answers.
TYPES = ("yes/no", "number", "other")
# A single answer stands for the answers of so many people.
NUM_VOTES = 10


@dataclasses.dataclass
class Questions:
    """Questions, column by column: ids, ids of the images, texts, lists of the normalised answers of several people,
    `TYPES`, and the regions where they are known, -1 for a question about no region."""

    ids: list
    images: list
    texts: list
    votes: list
    types: list
    cells: list | None = None

    def __len__(self):
        return len(self.ids)

    def rows(self, rows):
        """Return the `Questions` of some rows."""
        columns = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return Questions(*(column and [column[row] for row in rows] for column in columns))

    @property
    def answers(self):
        """The answer that most people gave to each; of equals the first."""
        return [statistics.mode(votes) for votes in self.votes]


def read_questions(path, annotations=None):
    """Return the `Questions` of VQA v2's JSON with its annotations, or of a CSV or TSV with the columns image, question
    and answer; plain or .gz."""
    if pathlib.Path(path).name.removesuffix(".gz").endswith((".csv", ".tsv")):
        if annotations is not None:
            raise InputError(f"{annotations}: a table of questions has its answers in itself.")
        table = read_table(path, "question", "answer", "image")
        rows = zip(table.groups, table.sources, table.targets, strict=True)
        return _questions(path, [(number, *row[:2], [row[2]], None) for number, row in enumerate(rows, start=1)])
    return _questions(path, _official(path, read_json(path), annotations))


def _official(path, content, annotations):
    """Return a list of (question id, image, question, answers, type or `None`)."""
    questions = content.get("questions") if isinstance(content, dict) else None
    fields = {"question_id", "image_id", "question"}
    if not isinstance(questions, list) or not all(
        isinstance(row, dict) and fields <= row.keys() and isinstance(row["question_id"], int | str)
        for row in questions
    ):
        raise InputError(
            f'{path}: expected VQA v2\'s {{"questions": [{{question_id, image_id, question}}]}}, or a table.'
        )
    if annotations is None:
        raise InputError(f"{path}: questions of VQA v2 need their annotations.")
    content = read_json(annotations)
    try:
        answered = {}
        for entry in content["annotations"]:
            if entry["question_id"] in answered:
                raise InputError(f"{annotations}: the question {entry['question_id']} is annotated twice.")
            votes, place = [vote["answer"] for vote in entry["answers"]], f"question {entry['question_id']}"
            if not votes:
                raise InputError(f"{annotations}: {place}: expected answers. Received: none")
            for vote in votes:
                _require_text(f"{annotations}: {place}", vote)
            # It is the first of the answers that as many people gave, and so counts for the vocabulary.
            best = entry.get("multiple_choice_answer")
            votes.sort(key=lambda vote: vote != best)
            answered[entry["question_id"]] = (entry["image_id"], votes, entry.get("answer_type"))
    except (KeyError, TypeError) as error:
        layout = '{"annotations": [{question_id, image_id, answers: [{answer}]}]}'
        raise InputError(f"{annotations}: expected {layout} ({type(error).__name__}: {error})") from error
    missing = [entry["question_id"] for entry in questions if entry["question_id"] not in answered]
    if missing:
        raise InputError(
            f"{annotations}: {len(missing)} questions of {path} have no annotation, {', '.join(map(str, missing[:5]))}"
            f"{', ...' if len(missing) > 5 else ''}"
        )
    rows = []
    for entry in questions:
        image, votes, kind = answered[entry["question_id"]]
        if image != entry["image_id"]:
            raise InputError(
                f"{annotations}: question {entry['question_id']} is about image {image}, not as in {path}."
            )
        rows.append((entry["question_id"], image, entry["question"], votes, kind))
    return rows


def _questions(path, rows):
    questions = Questions([], [], [], [], [])
    for number, image, text, votes, kind in rows:
        place = f"{path}: question {number}"
        for value in (image, text):
            _require_text(place, value)
        if not any(map(str.isalnum, str(text))):
            raise InputError(f"{place}: expected a question with a word. Received: {text!r}")
        # An answer without a word in the normal form stays one that no model gives.
        votes = [normalize_answer(str(vote)) for vote in votes]
        questions.ids.append(str(number))
        questions.images.append(image_id(image))
        questions.texts.append(" ".join(str(text).split()))
        questions.votes.append(votes * NUM_VOTES if len(votes) == 1 else votes)
        questions.types.append(kind or _type_of(statistics.mode(votes)))
    repeated = len(questions) - len(set(questions.ids))
    if repeated:
        raise InputError(f"{path}: {repeated} questions have the id of another one.")
    if not questions.ids:
        raise InputError(f"{path}: there is no question in the file.")
    return questions


def _require_text(place, value):
    # A number may be meant; a null of a file is no answer.
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InputError(f"{place}: expected text. Received: {value!r}")


def _type_of(answer):
    """Return the type of an answer, as VQA v2 has it."""
    if answer in ("yes", "no"):
        return "yes/no"
    return "number" if answer.replace(".", "", 1).isdigit() else "other"


def split_by_image(questions, fraction, seed, option="--valid-fraction"):
    """Return questions cut in two by image, `(train, held_out)`, as `split_by_group` does."""
    rows = list(range(len(questions)))
    text = ParallelText(rows, rows, questions.images)
    parts = split_by_group(text, fraction, seed, option=option, group="image")
    return tuple(questions.rows(part.sources) for part in parts)

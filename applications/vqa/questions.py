"""Files of questions about images: those of VQA v2, and tables."""

import dataclasses
import pathlib

import numpy as np

from applications.common.errors import InputError
from applications.text.readers import read_json, read_table
from applications.vision.images import image_id
from applications.vqa.answers import majority, normalize_answer

# One answer stands for that of so many people.
NUM_VOTES = 10


@dataclasses.dataclass
class Questions:
    """Questions with their answers, column by column.

    Attributes:
        ids: Their ids, str.
        images: Ids of their images.
        texts: The questions.
        votes: Normalised answers of several people, a list each.
        types: "yes/no", "number" or "other".
        cells: Region that each is about, where that is known, otherwise -1; or `None`.
        skipped: How many were left out while reading.
    """

    ids: list
    images: list
    texts: list
    votes: list
    types: list
    cells: list | None = None
    skipped: int = 0

    def __len__(self):
        return len(self.ids)

    def rows(self, rows):
        """Return some of them."""
        columns = {
            field.name: [getattr(self, field.name)[row] for row in rows]
            for field in dataclasses.fields(self)
            if isinstance(getattr(self, field.name), list)
        }
        return dataclasses.replace(self, **columns)

    @property
    def answers(self):
        """What most people said, of each."""
        return [majority(votes) for votes in self.votes]


def read_questions(path, annotations=None, skip_invalid=False):
    """Return the `Questions` of a file.

    Args:
        path: JSON of VQA v2, or a CSV or TSV with the columns image, question and answer; plain or .gz.
        annotations: The annotations of VQA v2's questions.
        skip_invalid: Leave out and count questions that are empty, or have no answer.

    Raises:
        InputError: For a file that cannot be read, a question without annotation, ids that occur twice, and questions
            or answers that are empty.
    """
    if pathlib.Path(path).name.removesuffix(".gz").endswith((".csv", ".tsv")):
        if annotations is not None:
            raise InputError(f"{annotations}: a table of questions has its answers in itself.")
        table = read_table(path, "question", "answer", "image", skip_invalid)
        columns = table.groups, table.sources, table.targets
        entries = [(None, image, question, [answer], None) for image, question, answer in zip(*columns, strict=True)]
        return _questions(path, entries, skip_invalid, table.skipped)
    return _questions(path, _official(path, read_json(path), annotations), skip_invalid)


def _official(path, content, annotations):
    """Return a list of (question id or `None`, image, question, answers, type or `None`)."""
    questions = content.get("questions") if isinstance(content, dict) else None
    fields = {"question_id", "image_id", "question"}
    if not isinstance(questions, list) or not all(isinstance(row, dict) and fields <= row.keys() for row in questions):
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
            votes = [vote["answer"] for vote in entry["answers"]]
            # Of the answers that as many people gave it is the first one that counts for the vocabulary.
            best = entry.get("multiple_choice_answer")
            votes = [vote for vote in votes if vote == best] + [vote for vote in votes if vote != best]
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
    found = []
    for entry in questions:
        image, votes, kind = answered[entry["question_id"]]
        if image != entry["image_id"]:
            raise InputError(
                f"{annotations}: question {entry['question_id']} is about image {image}, not as in {path}."
            )
        found.append((entry["question_id"], image, entry["question"], votes, kind))
    return found


def _questions(path, entries, skip_invalid, skipped=0):
    found = Questions([], [], [], [], [], skipped=skipped)
    for number, (question_id, image, text, votes, kind) in enumerate(entries, start=1):
        place = f"{path}: question {number if question_id is None else question_id}"
        fault = _fault_of(image, text, votes)
        if fault is not None:
            if not skip_invalid:
                raise InputError(f"{place}: {fault}. Mend it, or leave such questions out with --skip-invalid.")
            found.skipped += 1
            continue
        text, votes = " ".join(str(text).split()), [normalize_answer(str(vote)) for vote in votes]
        # Nobody is left out of ten: an answer without a word stays one that no model gives.
        found.votes.append(votes * NUM_VOTES if len(votes) == 1 else votes)
        found.ids.append(str(number if question_id is None else question_id))
        found.images.append(image_id(image))
        found.texts.append(text)
        found.types.append(kind or _type_of(majority(votes)))
    repeated = len(found) - len(set(found.ids))
    if repeated:
        raise InputError(f"{path}: {repeated} questions have the id of another one.")
    if not found.ids:
        raise InputError(f"{path}: there is no question in the file.")
    return found


def _fault_of(image, text, votes):
    """Return what is wrong with a question, in words, or `None`."""
    for value in (image, text, *votes):
        # A number may be meant; a null of a file is no answer.
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            return f"expected text. Received: {value!r}"
    if not any(map(str.isalnum, str(text))):
        return "it has no word"
    if not any(normalize_answer(str(vote)) for vote in votes):
        return "nothing is left of its answer in the official normal form"
    return None


def _type_of(answer):
    """Return the type of an answer, as VQA v2 has it."""
    if answer in ("yes", "no"):
        return "yes/no"
    return "number" if answer.replace(".", "", 1).isdigit() else "other"


def split_by_image(questions, fraction, seed):
    """Return the questions of what is left and of a share of the images, drawn at random."""
    images = sorted(set(questions.images))
    count = round(fraction * len(images))
    if not 0 < count < len(images):
        raise InputError(f"A share of {fraction} of {len(images)} images leaves a part empty.")
    held = {images[index] for index in np.random.default_rng(seed).permutation(len(images))[:count]}
    rows = [[], []]
    for row, image in enumerate(questions.images):
        rows[image in held].append(row)
    return questions.rows(rows[0]), questions.rows(rows[1])

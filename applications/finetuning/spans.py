"""Questions whose answers are spans of a context: SQuAD's files, windows of tokens, and the official figures.

Shapes: N windows.
"""

import collections
import dataclasses
import re
import string

import numpy as np

from applications.common.errors import InputError
from applications.text.readers import read_json

# A word, or a mark alone, as BERT cuts a text before it looks for pieces.
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclasses.dataclass
class Questions:
    """Questions about contexts.

    Attributes:
        ids, questions, contexts: Lists of str.
        answers: Of each question a list of (text, start), start counting characters; empty where there is none.
    """

    ids: list
    questions: list
    contexts: list
    answers: list

    def __len__(self):
        return len(self.ids)

    def rows(self, chosen):
        return Questions(*([values[row] for row in chosen] for values in dataclasses.astuple(self)))


def read_squad(path):
    """Return the `Questions` of a file of SQuAD, 1.1 or 2.0."""
    found = Questions([], [], [], [])
    try:
        for article in read_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for entry in paragraph["qas"]:
                    given = [] if entry.get("is_impossible") else entry["answers"]
                    answers = [(answer["text"], answer["answer_start"]) for answer in given]
                    for text, start in answers:
                        if start < 0 or not text or context[start : start + len(text)] != text:
                            raise InputError(
                                f"{path}: question {entry['id']}: the answer {text[:40]!r} does not stand at "
                                f"{start} of its context, where there is {context[start : start + len(text)][:40]!r}."
                            )
                    found.ids.append(entry["id"])
                    found.questions.append(entry["question"].strip())
                    found.contexts.append(context)
                    found.answers.append(answers)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: is no file of SQuAD: {error!r} is missing or of another kind.") from error
    if not found.ids:
        raise InputError(f"{path}: expected questions. Received: none")
    return found


@dataclasses.dataclass
class Windows:
    """What a transformer reads of questions: [CLS] question [SEP] a part of the context [SEP].

    Attributes:
        ids: Token ids of each window.
        num_first: Tokens before the context in each.
        targets: The first and the last token of the answer (N, 2); (0, 0), the mark, where the window has none.
        question: The question of each.
        places: Of each window, the characters (start, end) of every token of the context.
    """

    ids: list
    num_first: np.ndarray
    targets: np.ndarray
    question: np.ndarray
    places: list


def windows_of(encoder, part, stride):
    """Return the `Windows` of questions."""
    start, end = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    asked = encoder.pieces(part.questions).to_list()
    known, found = {}, Windows([], [], [], [], [])
    for index, question in enumerate(asked):
        context = part.contexts[index]
        if context not in known:
            known.clear()
            known[context] = tokens_of(encoder, context)
        ids, places = known[context]
        # Half of a window at least is context.
        question = question[: encoder.max_length // 2 - 2]
        room = encoder.max_length - len(question) - 3
        span = answer_tokens(part.answers[index], places)
        first = 0
        while True:
            last = min(first + room, len(ids))
            found.ids.append(np.array([start, *question, end, *ids[first:last], end], np.int32))
            before = len(question) + 2
            inside = span is not None and first <= span[0] and span[1] < last
            found.targets.append([before + span[0] - first, before + span[1] - first] if inside else [0, 0])
            found.num_first.append(before)
            found.question.append(index)
            found.places.append(places[first:last])
            if last >= len(ids):
                break
            first += min(stride, room)
    found.num_first, found.targets = np.array(found.num_first, np.int32), np.array(found.targets, np.int32)
    found.question = np.array(found.question)
    return found


def tokens_of(encoder, context):
    """Return the ids of a context's tokens, and the characters (start, end) of the word that each is of."""
    words = [(match.group(), match.start(), match.end()) for match in _WORD.finditer(context)]
    if not words:
        return [], []
    located = encoder.located(context)
    if located is not None:
        # A sentencepiece model knows no words: what it reads is the whole context.
        starts, ends = np.array([start for _, start, _ in words]), np.array([end for _, _, end in words])
        places = []
        for first, last in located[1]:
            inside = np.flatnonzero((starts < last) & (ends > first))
            places.append((int(starts[inside[0]]), int(ends[inside[-1]])) if inside.size else (last, last))
        return located[0], places
    ids, places = [], []
    for pieces, (_, start, end) in zip(encoder.pieces([word for word, _, _ in words]).to_list(), words, strict=True):
        ids += pieces
        places += [(start, end)] * len(pieces)
    return ids, places


def answer_tokens(answers, places):
    """Return the first and the last token of the first answer, `None` where there is none."""
    if not answers:
        return None
    text, start = answers[0]
    inside = [index for index, (left, right) in enumerate(places) if right > start and left < start + len(text)]
    return (inside[0], inside[-1]) if inside else None


def best_spans(windows, part, scores, max_answer_length, may_have_none):
    """Return the answers of the best-scored spans, one a question.

    Args:
        windows: `Windows`.
        part: `Questions`.
        scores: Log-probabilities of the first and the last token of each window, a list of (L, 2).
        max_answer_length: Tokens of an answer.
        may_have_none: Whether the empty answer, which both ends at the mark stand for, is one.
    """
    best = [(-np.inf, "")] * len(part)
    none = np.full(len(part), np.inf)
    for number, index in enumerate(windows.question):
        of_window, before, places = scores[number], windows.num_first[number], windows.places[number]
        # A question has no answer if none of its windows has.
        none[index] = min(none[index], of_window[0].sum())
        if not places:
            continue
        first, last = of_window[before : before + len(places)].T
        total = first[:, None] + last[None]
        length = np.arange(len(places))[None] - np.arange(len(places))[:, None]
        total[(length < 0) | (length >= max_answer_length)] = -np.inf
        left, right = np.unravel_index(total.argmax(), total.shape)
        if total[left, right] > best[index][0]:
            text = part.contexts[index][places[left][0] : places[right][1]]
            best[index] = (total[left, right], text)
    return ["" if may_have_none and none[index] > score else text for index, (score, text) in enumerate(best)]


def normalized(text):
    """Return an answer as the official script of SQuAD compares it."""
    text = "".join(mark for mark in text.lower() if mark not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(answer, truth):
    """Return 1 where both are the same, 0 otherwise."""
    return float(normalized(answer) == normalized(truth))


def f1(answer, truth):
    """Return the harmonic mean of precision and recall of words."""
    given, wanted = normalized(answer).split(), normalized(truth).split()
    if not given or not wanted:
        return float(given == wanted)
    same = sum((collections.Counter(given) & collections.Counter(wanted)).values())
    return 2.0 * same / (len(given) + len(wanted)) if same else 0.0


def figures(answers, part):
    """Return exact match and F1 of the best of the known answers, averaged."""
    found = {"exact": [], "f1": []}
    for answer, known in zip(answers, part.answers, strict=True):
        # The official script leaves out truths that nothing is left of.
        truths = [text for text, _ in known if normalized(text)] or [""]
        found["exact"].append(max(exact(answer, truth) for truth in truths))
        found["f1"].append(max(f1(answer, truth) for truth in truths))
    return {name: float(np.mean(values)) for name, values in found.items()}

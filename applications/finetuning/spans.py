"""Questions whose answers are spans of a context: SQuAD's files, windows of tokens, and the official figures.

Shapes: N windows.
"""

import collections
import dataclasses
import re
import string

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.text.readers import read_json

# A word, or a mark alone, as BERT cuts a text before it looks for pieces.
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclasses.dataclass
class Questions:
    """Ids, questions and contexts, lists of str; and the answers to each question, a list of (text, start) that counts
    characters, empty where there is none."""

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
    rows = []
    try:
        for article in read_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for entry in paragraph["qas"]:
                    answers = [] if entry.get("is_impossible") else entry["answers"]
                    answers = [(answer["text"], answer["answer_start"]) for answer in answers]
                    for text, start in answers:
                        there = context[start : start + len(text)]
                        if start < 0 or not text or there != text:
                            raise InputError(
                                f"{path}: question {entry['id']}: the answer {text[:40]!r} does not stand at {start} "
                                f"of its context, where there is {there[:40]!r}."
                            )
                    rows.append((entry["id"], entry["question"].strip(), context, answers))
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is no file of SQuAD: {error!r} is missing or of another kind.") from error
    if not rows:
        raise InputError(f"{path}: expected questions. Received: none")
    return Questions(*map(list, zip(*rows)))


def windows_of(encoder, part, stride):
    """Return what `data.Encoded` has of the windows of questions, a dictionary."""
    start, end = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    context, windows = None, []
    for index, question in enumerate(encoder.pieces(part.questions).to_list()):
        # The questions about a context come one after the other.
        if part.contexts[index] != context:
            context = part.contexts[index]
            ids, places = tokens_of(encoder, context)
        # At least half of a window is context.
        question = question[: encoder.max_length // 2 - 2]
        before, room = len(question) + 2, encoder.max_length - len(question) - 3
        span, first = answer_tokens(part.answers[index], places), 0
        while True:
            last = min(first + room, len(ids))
            inside = span is not None and first <= span[0] and span[1] < last
            target = [before + span[0] - first, before + span[1] - first] if inside else [0, 0]
            window = [start, *question, end, *ids[first:last], end]
            windows.append((window, before, target, index, places[first:last]))
            if last >= len(ids):
                break
            first += min(stride, room)
    ids, num_first, targets, questions, places = zip(*windows)
    with tf.device("CPU:0"):
        ids = tf.RaggedTensor.from_row_lengths(np.concatenate(ids).astype(np.int32), list(map(len, ids)))
    targets = np.array(targets, np.int32)
    return {"ids": ids, "num_first": num_first, "targets": targets, "questions": questions, "places": places}


def tokens_of(encoder, context):
    """Return the ids of a context's tokens, and the characters (start, end) of the word around each."""
    words = [match.span() for match in _WORD.finditer(context)]
    if not words:
        return [], []
    located = encoder.located(context)
    if located is not None:
        # A sentencepiece model knows no words: it reads the whole context.
        starts, ends = np.array(words).T
        places = []
        for first, last in located[1]:
            inside = np.flatnonzero((starts < last) & (ends > first))
            places.append((int(starts[inside[0]]), int(ends[inside[-1]])) if inside.size else (last, last))
        return located[0], places
    pieces = encoder.pieces([context[start:end] for start, end in words])
    counts = pieces.row_lengths().numpy()
    return pieces.flat_values.numpy().tolist(), [place for place, count in zip(words, counts) for _ in range(count)]


def answer_tokens(answers, places):
    """Return the first and the last token of the first answer, `None` where there is none."""
    if not answers:
        return None
    text, start = answers[0]
    inside = [index for index, (left, right) in enumerate(places) if right > start and left < start + len(text)]
    return (inside[0], inside[-1]) if inside else None


def best_spans(encoded, scores, max_answer_length, may_have_none):
    """Return the answers of the best-scored spans, one a question.

    Args:
        encoded: `data.Encoded` questions.
        scores: Log-probabilities of the first and the last token of each window, a list of (L, 2).
        max_answer_length: Most tokens of an answer.
        may_have_none: Whether an answer may be empty, which both ends at the mark say.
    """
    contexts = encoded.part.contexts
    best = [(-np.inf, "")] * len(contexts)
    none = np.full(len(contexts), np.inf)
    windows = zip(encoded.questions, scores, encoded.num_first, encoded.places, strict=True)
    for index, of_window, before, places in windows:
        # A question has no answer if no window has one.
        none[index] = min(none[index], of_window[0].sum())
        if not places:
            continue
        first, last = of_window[before : before + len(places)].T
        total = first[:, None] + last[None]
        length = np.arange(len(places))[None] - np.arange(len(places))[:, None]
        total[(length < 0) | (length >= max_answer_length)] = -np.inf
        left, right = np.unravel_index(total.argmax(), total.shape)
        if total[left, right] > best[index][0]:
            text = contexts[index][places[left][0] : places[right][1]]
            best[index] = (total[left, right], text)
    return ["" if may_have_none and none[index] > score else text for index, (score, text) in enumerate(best)]


def normalized(text):
    """Return an answer in the form that the official script of SQuAD compares."""
    text = "".join(mark for mark in text.lower() if mark not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, truth):
    """Return the harmonic mean of precision and recall of words."""
    words, wanted = normalized(answer).split(), normalized(truth).split()
    if not words or not wanted:
        return float(words == wanted)
    same = sum((collections.Counter(words) & collections.Counter(wanted)).values())
    return 2.0 * same / (len(words) + len(wanted))


def figures(answers, part):
    """Return exact match and F1 of the best of the known answers, averaged."""
    # The official script leaves out truths without a word.
    truths = [[text for text, _ in known if normalized(text)] or [""] for known in part.answers]
    pairs = list(zip(answers, truths, strict=True))
    measures = {"exact": lambda answer, truth: normalized(answer) == normalized(truth), "f1": f1}
    return {
        name: float(np.mean([max(measure(answer, truth) for truth in known) for answer, known in pairs]))
        for name, measure in measures.items()
    }


def span_losses(targets, logits):
    """Return the cross-entropies (B,) of the first and of the last token of (B, 2) in logits (B, L, 2)."""
    return [tf.nn.sparse_softmax_cross_entropy_with_logits(targets[:, end], logits[:, :, end]) for end in (0, 1)]

"""Read SQuAD questions, split contexts into windows of tokens, and compute the official metrics.

Shapes: N windows in total, B windows per batch, L tokens per window.
"""

import collections
import dataclasses
import re
import string

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.text.readers import read_json

MAX_ANSWER_LENGTH = 30


@dataclasses.dataclass
class Questions:
    """Questions as columns. `answers` has a list of answers (text, character offset) per question."""

    ids: list
    questions: list
    contexts: list
    answers: list

    def __len__(self):
        return len(self.ids)

    def rows(self, chosen):
        return Questions(*([values[row] for row in chosen] for values in dataclasses.astuple(self)))


def read_squad(path):
    """Read the `Questions` of a SQuAD 1.1 or 2.0 file."""
    rows = []
    try:
        for article in read_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                for entry in paragraph["qas"]:
                    answers = [] if entry.get("is_impossible") else entry["answers"]
                    answers = [(answer["text"], answer["answer_start"]) for answer in answers]
                    for text, start in answers:
                        span = context[start : start + len(text)]
                        if start < 0 or not text or span != text:
                            raise InputError(
                                f"{path}: question {entry['id']}: expected the answer {text[:40]!r} at character "
                                f"{start} of the context. Received: {span[:40]!r}"
                            )
                    rows.append((entry["id"], entry["question"].strip(), context, answers))
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: expected a SQuAD file. Reading its fields raised {error!r}") from error
    if not rows:
        raise InputError(f"{path}: expected questions. Received: none")
    return Questions(*map(list, zip(*rows)))


def windows_of(encoder, part, stride):
    """Split contexts into windows of tokens. Return the token fields of `data.Encoded` as a dictionary."""
    start, end = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    context, windows = None, []
    for index, question in enumerate(encoder.pieces(part.questions).to_list()):
        # Consecutive questions often share a context; do not encode it again.
        if part.contexts[index] != context:
            context = part.contexts[index]
            ids, offsets = encoder.located(context)
        # Leave at least half of a window for the context.
        question = question[: encoder.max_length // 2 - 2]
        before, num_free = len(question) + 2, encoder.max_length - len(question) - 3
        span = answer_tokens(part.answers[index], offsets)
        step = min(stride, num_free)
        for first in range(0, max(0, len(ids) - num_free) + step, step):
            last = min(first + num_free, len(ids))
            is_inside = span is not None and first <= span[0] and span[1] < last
            target = [before + span[0] - first, before + span[1] - first] if is_inside else [0, 0]
            window = [start, *question, end, *ids[first:last], end]
            windows.append((window, before, target, index, offsets[first:last]))
    ids, num_first, targets, questions, offsets = zip(*windows)
    with tf.device("CPU:0"):
        ids = tf.RaggedTensor.from_row_lengths(np.concatenate(ids).astype(np.int32), list(map(len, ids)))
    targets = np.array(targets, np.int32)
    return {"ids": ids, "num_first": num_first, "targets": targets, "questions": questions, "places": offsets}


def answer_tokens(answers, offsets):
    """Return the indices of the first and last token of the first answer, or `None` without an answer."""
    if not answers:
        return None
    text, start = answers[0]
    inside = [index for index, (left, right) in enumerate(offsets) if right > start and left < start + len(text)]
    return (inside[0], inside[-1]) if inside else None


def best_spans(encoded, scores, may_have_none):
    """Return the text of the best-scoring span for each question, or "" for no answer.

    Args:
        encoded: `data.Encoded` questions.
        scores: For each window, log-probabilities (L, 2) that each token is the first or the last token of the answer.
        may_have_none: Whether a question may have no answer. The score of "" is then the score of [CLS].
    """
    contexts = encoded.part.contexts
    best = [(-np.inf, "")] * len(contexts)
    none = np.full(len(contexts), np.inf)
    windows = zip(encoded.questions, scores, encoded.num_first, encoded.places, strict=True)
    for index, window_scores, before, offsets in windows:
        # Another window may contain the answer, so use the lowest "no answer" score.
        none[index] = min(none[index], window_scores[0].sum())
        if not offsets:
            continue
        first, last = window_scores[before : before + len(offsets)].T
        total = first[:, None] + last[None]
        # Allow spans of 1 to MAX_ANSWER_LENGTH tokens.
        allowed = np.triu(np.ones_like(total)) - np.triu(np.ones_like(total), MAX_ANSWER_LENGTH)
        total = np.where(allowed > 0, total, -np.inf)
        left, right = np.unravel_index(total.argmax(), total.shape)
        if total[left, right] > best[index][0]:
            text = contexts[index][offsets[left][0] : offsets[right][1]]
            best[index] = (total[left, right], text)
    return ["" if may_have_none and none[index] > score else text for index, (score, text) in enumerate(best)]


def normalized(text):
    """Remove case, punctuation, articles and extra spaces, as the official SQuAD script does."""
    text = "".join(mark for mark in text.lower() if mark not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, truth):
    """Return the word-level F1 of an answer and the reference `truth`."""
    words, true_words = normalized(answer).split(), normalized(truth).split()
    if not words or not true_words:
        return float(words == true_words)
    same = sum((collections.Counter(words) & collections.Counter(true_words)).values())
    return 2.0 * same / (len(words) + len(true_words))


def figures(answers, part):
    """Return exact match and F1 against the best reference, averaged over questions."""
    rows = []
    for answer, references in zip(answers, part.answers, strict=True):
        # The official script drops references without words.
        truths = [text for text, _ in references if normalized(text)] or [""]
        exact = max(normalized(answer) == normalized(truth) for truth in truths)
        rows.append((exact, max(f1(answer, truth) for truth in truths)))
    return dict(zip(("exact", "f1"), np.mean(rows, axis=0).tolist()))


def span_losses(targets, logits):
    """Return the cross-entropies (B,) of the first and the last answer token.

    Shapes: `targets` (B, 2), `logits` (B, L, 2).
    """
    return [tf.nn.sparse_softmax_cross_entropy_with_logits(targets[:, end], logits[:, :, end]) for end in (0, 1)]

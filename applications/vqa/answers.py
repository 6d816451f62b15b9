"""Normalise answers, compute the VQA metric, and build the answer vocabulary.

The normalisation and the metric follow the official evaluation of VQA v2, https://visualqa.org/evaluation.html. The
vocabulary follows Teney et al. 2018, section 3.
"""

import collections
import re

import numpy as np

from applications.common.errors import InputError

# Contractions of the official evaluation, which adds missing apostrophes to answers.
_CONTRACTIONS = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
_WITH_APOSTROPHES = {
    word[:place] + word[place + 1 :]: word
    for word in _CONTRACTIONS.split()
    for place, character in enumerate(word)
    if character == "'"
} | {"somebody'd": "somebodyd"}
_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_NUMBERS = {"none": "0"} | {word: str(number) for number, word in enumerate(_DIGITS)}
_ARTICLES = ("a", "an", "the")
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_OF_NUMBER = re.compile(r"\d,\d")
_FULL_STOP = re.compile(r"\.(?!\d)")


def normalize_answer(answer):
    """Return an answer, normalised as in the official evaluation.

    The result is in lower case. Number words become digits. Articles and all punctuation outside words and numbers are
    removed.
    """
    text = " ".join(answer.split())
    cleaned = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        cleaned = cleaned.replace(mark, "" if beside_space or _COMMA_OF_NUMBER.search(text) else " ")
    words = _FULL_STOP.sub("", cleaned).lower().split()
    words = [_NUMBERS.get(word, word) for word in words]
    return " ".join(_WITH_APOSTROPHES.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(answer, votes):
    """Return the accuracy of an answer (Antol et al. 2015): min(number of votes for the answer / 3, 1)."""
    return min(votes.count(answer) / 3.0, 1.0)


def answer_vocabulary(most_common, min_count, max_answers):
    """Return up to `max_answers` answers, sorted by frequency, then alphabetically.

    Each answer is the most common answer to at least `min_count` training questions.
    """
    counts = collections.Counter(most_common)
    frequent = sorted((-count, answer) for answer, count in counts.items() if count >= min_count and answer)
    if len(frequent) < 2:
        raise InputError(
            f"--min-answer-count: expected 2 or more answers with at least {min_count} training questions each; "
            f"use a lower value. Received: {len(frequent)} such answers"
        )
    return [answer for _, answer in frequent[:max_answers]]


def count_votes(people, answers):
    """Return the number of votes for each answer in the vocabulary, sparse float32 (N questions, V answers)."""
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(analyzer=list, vocabulary=answers, dtype=np.float32).transform(people)

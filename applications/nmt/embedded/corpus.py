"""The parallel corpus that ships with the application: German and English sentences with known word alignments.

Every sentence says when something happens, how much there is of something, or what it costs. Names of months, days,
parts of the day, currencies, units, places and cities are the CLDR's, read through Babel; number words and phrasing are
ours. Both sides of a pair are written by the same synchronous rules, which also say what is linked to what, so the
alignments are known and not guessed.

The order of words differs as it does between the languages: the verb is at the end of a German clause or has its
particle there (*kommt ... an*), times precede places, units precede tens (*drei und zwanzig*, twenty three), the day
precedes the month (*dritten Mai*, May the third), *halb fünf* is half past four and *vor drei Tagen* is three days ago.
German numbers are written apart at their joints, as after compound splitting. A German sentence has one translation;
several German sentences can share one.
"""

import typing

import numpy as np

from applications.common.errors import InputError
from applications.nmt.alignments import Links
from applications.nmt.embedded.sentences import SENTENCES
from applications.nmt.embedded.synchronous import capitalised, pick

MIN_WORDS, MAX_WORDS = 4, 16


class AlignedPair(typing.NamedTuple):
    """A pair of sentences, words and punctuation marks joined by spaces, and the `Links` between them."""

    source: str
    target: str
    links: Links


def embedded_pairs(seed=0, num_pairs=8000):
    """Pairs of sentences with their gold alignments. No file and no download is needed.

    The sure links join what is a translation of each other, phrases (*übermorgen*, the day after tomorrow) word by
    word. The possible ones are for words without a counterpart of their own (*und* in *drei und zwanzig*, *hat* in
    *hat ... bezahlt*), so that every word of both sides has some link.

    Args:
        seed: int, default 0.
        num_pairs: int, default 8000.

    Returns:
        A list of `AlignedPair`, German as the source and English as the target, 4 to 16 words on either side. No two
        have the same source. The order is random and the same on every machine, so that any part of the list is a
        sample of all kinds of sentence.

    Raises:
        InputError: if `num_pairs` is not positive, or more than can be written.
    """
    if num_pairs < 1:
        raise InputError(f"num_pairs: at least one pair is needed. Received: {num_pairs}")
    generator = np.random.default_rng(seed)
    pairs, failures = {}, 0
    while len(pairs) < num_pairs:
        phrase = capitalised(pick(generator, SENTENCES)(generator))
        # The key is in lower case: pairs stay different, and translations unique, for a model that lowers it.
        key = " ".join(phrase.source).lower()
        lengths = (len(phrase.source), len(phrase.target))
        if min(lengths) >= MIN_WORDS and max(lengths) <= MAX_WORDS and key not in pairs:
            pairs[key] = AlignedPair(
                " ".join(phrase.source), " ".join(phrase.target), Links(phrase.sure, phrase.possible)
            )
            failures = 0
        else:
            failures += 1
            if failures > 10_000:
                raise InputError(f"num_pairs: there are no more sentences than {len(pairs)}. Received: {num_pairs}")
    return list(pairs.values())

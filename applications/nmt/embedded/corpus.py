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

from applications.nmt.alignments import Links
from applications.nmt.embedded.sentences import SENTENCES
from applications.nmt.embedded.synchronous import capitalised, pick

NUM_PAIRS, MIN_WORDS, MAX_WORDS = 8000, 4, 16


class AlignedPair(typing.NamedTuple):
    """A pair of sentences, words and punctuation marks joined by spaces, and the `Links` between them."""

    source: str
    target: str
    links: Links


def embedded_pairs():
    """Pairs of sentences with their gold alignments. No file and no download is needed.

    The sure links join what is a translation of each other, phrases (*übermorgen*, the day after tomorrow) word by
    word. The possible ones are for words without a counterpart of their own (*und* in *drei und zwanzig*, *hat* in
    *hat ... bezahlt*), so that every word of both sides has some link.

    Returns:
        A list of 8,000 `AlignedPair`, German as the source and English as the target, 4 to 16 words on either side. No
        two have the same source. The order is random and the same on every machine, so that any part of the list is a
        sample of all kinds of sentence.
    """
    generator = np.random.default_rng(0)
    pairs = {}
    while len(pairs) < NUM_PAIRS:
        phrase = capitalised(pick(generator, SENTENCES)(generator))
        # The key is in lower case: pairs stay different, and translations unique, for a model that lowers it.
        key = " ".join(phrase.source).lower()
        lengths = (len(phrase.source), len(phrase.target))
        if min(lengths) >= MIN_WORDS and max(lengths) <= MAX_WORDS and key not in pairs:
            pairs[key] = AlignedPair(
                " ".join(phrase.source), " ".join(phrase.target), Links(phrase.sure, phrase.possible)
            )
    return list(pairs.values())

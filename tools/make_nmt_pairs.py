"""Writes the pairs that ship with applications.nmt: German and English sentences with known word alignments.

    python -m tools.make_nmt_pairs applications/nmt/embedded.tsv.gz

This needs Babel, the program does not. Babel 2.18.0, with the CLDR 47, wrote the file that ships; another version may
write other pairs.

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

import gzip
import pathlib
import sys

import numpy as np

from tools.nmt_pairs.sentences import SENTENCES
from tools.nmt_pairs.synchronous import capitalised, pick

NUM_PAIRS, MIN_WORDS, MAX_WORDS = 8000, 4, 16


def pairs_of_sentences():
    """Draw the pairs of sentences and their gold alignments.

    The sure links join what is a translation of each other, phrases (*übermorgen*, the day after tomorrow) word by
    word. The possible ones are for words without a counterpart of their own (*und* in *drei und zwanzig*, *hat* in
    *hat ... bezahlt*), so that every word of both sides has some link.

    Returns:
        A list of 8,000 phrases, German as the source and English as the target, 4 to 16 words on either side. No two
        have the same source. The order is random and the same on every machine, so that any part of the list is a
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
            pairs[key] = phrase
    return list(pairs.values())


def line_of(phrase):
    """Return the line of a pair: source, target and Pharaoh links, of which ``p`` marks the possible ones."""
    links = sorted((i, j, "-p"[(i, j) not in phrase.sure]) for i, j in phrase.sure | phrase.possible)
    return "\t".join(
        (" ".join(phrase.source), " ".join(phrase.target), " ".join(f"{i}{kind}{j}" for i, j, kind in links))
    )


if __name__ == "__main__":
    lines = ["source\ttarget\tlinks", *map(line_of, pairs_of_sentences())]
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))

"""Synchronous rules: both sides of a sentence written at once, and what is linked to what."""

import functools
import re
import typing


class _Phrase(typing.NamedTuple):
    """Words of both sides, and links between their positions."""

    source: tuple = ()
    target: tuple = ()
    sure: frozenset = frozenset()
    possible: frozenset = frozenset()


NOTHING = _Phrase()


def rule(source, target, **parts):
    """Applies a synchronous rule.

    In its two patterns ``word/1`` is a word with the mark 1 and ``{name}`` stands for the part of that name. Words of
    the two sides that share a mark are linked, all with all; the link is only possible if ``?`` follows the mark on
    one side. A word may have several marks: ``und/1?,2?``.
    """
    source_words, source_marks, source_starts = _lay_out(source, {name: part.source for name, part in parts.items()})
    target_words, target_marks, target_starts = _lay_out(target, {name: part.target for name, part in parts.items()})
    sure, possible = set(), set()
    for mark, i, i_sure in source_marks:
        for other, j, j_sure in target_marks:
            if mark == other:
                (sure if i_sure and j_sure else possible).add((i, j))
    for name, part in parts.items():
        down, right = source_starts[name], target_starts[name]
        sure.update((i + down, j + right) for i, j in part.sure)
        possible.update((i + down, j + right) for i, j in part.possible)
    return _Phrase(tuple(source_words), tuple(target_words), frozenset(sure), frozenset(possible - sure))


def _lay_out(pattern, parts):
    """The words of one side, its marks as (mark, position, sure), and the position at which each part begins."""
    words, marks, starts = [], [], {}
    for name, word, word_marks in _parsed(pattern):
        if name:
            starts[name] = len(words)
            words.extend(parts[name])
        else:
            marks.extend((mark, len(words), sure) for mark, sure in word_marks)
            words.append(word)
    return words, marks, starts


@functools.cache
def _parsed(pattern):
    fields = []
    for field in pattern.split():
        slot = re.fullmatch(r"\{(\w+)\}", field)
        word, _, marks = field.rpartition("/")
        fields.append(
            (slot[1], "", ())
            if slot
            else ("", word, tuple((mark.removesuffix("?"), not mark.endswith("?")) for mark in marks.split(",")))
        )
    return tuple(fields)


def word_by_word(source, target):
    """Phrases word by word where both have as many words, and all with all where they do not."""
    sides = source.split(), target.split()
    if len(sides[0]) == len(sides[1]):
        links = {(i, i) for i in range(len(sides[0]))}
    else:
        links = {(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))}
    return _Phrase(tuple(sides[0]), tuple(sides[1]), frozenset(links))


def capitalised(phrase):
    source, target = ((words[0][0].upper() + words[0][1:], *words[1:]) for words in phrase[:2])
    return phrase._replace(source=source, target=target)


def pick(generator, options):
    return options[generator.integers(len(options))]

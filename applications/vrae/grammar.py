"""Built-in text: sentences of a small grammar with number agreement, and its parser.

    sentence -> subject verb object [time]
    subject  -> determiner [adjective] person
    object   -> determiner noun

Determiner, noun and verb agree in number, and a verb has four objects of its own: "the happy farmer feeds two goats at
noon". There are 73,728 sentences of five to eight words.
"""

import itertools
import re

import numpy as np

# Each with its number: 0 is singular, 1 plural. Nouns and verbs have a form for each number.
_DETERMINERS = (("a", 0), ("the", 0), ("the", 1), ("two", 1))
_ADJECTIVES = ("", "happy", "quiet", "tired")
_PEOPLE = (
    ("baker", "bakers"),
    ("child", "children"),
    ("doctor", "doctors"),
    ("farmer", "farmers"),
    ("sailor", "sailors"),
    ("student", "students"),
    ("teacher", "teachers"),
    ("woman", "women"),
)
# The plural of an object ends in s.
_OBJECTS = {
    ("draws", "draw"): ("boat", "bridge", "flower", "tree"),
    ("eats", "eat"): ("cake", "carrot", "melon", "pear"),
    ("feeds", "feed"): ("cat", "duck", "goat", "horse"),
    ("reads", "read"): ("book", "letter", "map", "poem"),
    ("visits", "visit"): ("castle", "garden", "museum", "village"),
    ("washes", "wash"): ("car", "plate", "shirt", "window"),
}
_VERBS = tuple(_OBJECTS)
_TIMES = ("", "at night", "at noon", "every day", "in winter", "on sunday")
_CHOICES = (_DETERMINERS, _ADJECTIVES, _PEOPLE, _VERBS, _DETERMINERS, range(4), _TIMES)
_SLOTS = re.compile(
    rf"(?P<determiner>\w+) ((?P<adjective>{'|'.join(_ADJECTIVES[1:])}) )?(?P<subject>\w+) (?P<verb>\w+) "
    rf"(?P<object_determiner>\w+) (?P<object>\w+)( (?P<time>{'|'.join(_TIMES[1:])}))?"
)


def _subject(determiner, person, verb):
    word, number = determiner
    return word, person[number], verb[number]


def _object(determiner, noun):
    word, number = determiner
    return word, noun + "s" * number


_SUBJECTS_WITH_VERB = set(itertools.starmap(_subject, itertools.product(_DETERMINERS, _PEOPLE, _VERBS)))
_VERBS_WITH_OBJECT = {
    (form, *_object(determiner, noun))
    for verb, nouns in _OBJECTS.items()
    for form, determiner, noun in itertools.product(verb, _DETERMINERS, nouns)
}


def sentences(count, seed=0):
    """Return distinct sentences, drawn at random from all: a list of str."""
    sizes = [len(choices) for choices in _CHOICES]
    rows = np.random.default_rng(seed).choice(np.prod(sizes), count, replace=False)
    return [_sentence(*row) for row in zip(*np.unravel_index(rows, sizes), strict=True)]


def _sentence(*indices):
    determiner, adjective, person, verb, object_determiner, noun, time = (
        x[i] for x, i in zip(_CHOICES, indices, strict=True)
    )
    word, person, form = _subject(determiner, person, verb)
    return " ".join(
        filter(None, (word, adjective, person, form, *_object(object_determiner, _OBJECTS[verb][noun]), time))
    )


def parse(sentence):
    """Return the words of a sentence by their slots, "" for an absent adjective or time: a dictionary of str, or `None`
    where the grammar does not have the sentence.

    >>> parse("two tired doctors read a book")["verb"], parse("two tired doctors reads a book")
    ('read', None)
    """
    match = _SLOTS.fullmatch(sentence)
    if (
        match is None
        or match.group("determiner", "subject", "verb") not in _SUBJECTS_WITH_VERB
        or match.group("verb", "object_determiner", "object") not in _VERBS_WITH_OBJECT
    ):
        return None
    return match.groupdict("")

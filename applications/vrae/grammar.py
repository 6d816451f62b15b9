"""Generate and parse the built-in sentences. This is their grammar:

    sentence -> subject verb object [time]
    subject  -> determiner [adjective] person
    object   -> determiner noun

Determiners, nouns and verbs agree in number, and each verb has four possible objects. An example is "the happy farmer
feeds two goats at noon". The grammar generates 73,728 sentences of five to eight words.
"""

import functools

import numpy as np

# Each determiner has a number: 0 is singular, 1 is plural.
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
# Possible objects of each verb; an "s" forms the plural.
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
_SIZES = tuple(map(len, _CHOICES))


def sentences(count, seed=0):
    """Return a list of `count` distinct random sentences."""
    rows = np.random.default_rng(seed).choice(np.prod(_SIZES), count, replace=False)
    return [_text(_slots(indices)) for indices in zip(*np.unravel_index(rows, _SIZES), strict=True)]


def parse(sentence):
    """Return the word in each slot, such as "verb", or `None` if the sentence is not grammatical.

    Without an adjective, the value of "adjective" is "". Without a time, the value of "time" is "".

    >>> parse("two tired doctors read a book")["verb"], parse("two tired doctors reads a book")
    ('read', None)
    """
    indices = _indices_of_sentences().get(sentence)
    return None if indices is None else _slots(indices)


def _slots(indices):
    (determiner, number), adjective, person, verb, (object_determiner, object_number), noun, time = (
        choices[index] for choices, index in zip(_CHOICES, indices, strict=True)
    )
    return {
        "determiner": determiner,
        "adjective": adjective,
        "subject": person[number],
        "verb": verb[number],
        "object_determiner": object_determiner,
        "object": _OBJECTS[verb][noun] + "s" * object_number,
        "time": time,
    }


def _text(slots):
    return " ".join(filter(None, slots.values()))


@functools.cache
def _indices_of_sentences():
    return {_text(_slots(indices)): indices for indices in np.ndindex(_SIZES)}

"""Nouns and verbs of the embedded sentences, in the forms that the two languages need."""

import typing

from applications.nmt.embedded.quantities import name_phrase
from applications.nmt.embedded.synchronous import NOTHING, pick, rule, word_by_word

# Who and what. A noun is (article, article of the accusative, German, article and noun of English).

_TRAFFIC = (
    ("der", "den", "Zug", "the train"),
    ("der", "den", "Bus", "the bus"),
    ("die", "die", "Fähre", "the ferry"),
    ("das", "das", "Schiff", "the ship"),
    ("das", "das", "Flugzeug", "the plane"),
)
EVENTS = (
    ("der", "den", "Kurs", "the course"),
    ("die", "die", "Messe", "the fair"),
    ("die", "die", "Prüfung", "the exam"),
    ("das", "das", "Konzert", "the concert"),
    ("das", "das", "Spiel", "the game"),
)
PEOPLE = (
    ("der", "den", "Koch", "the cook"),
    ("der", "den", "Lehrer", "the teacher"),
    ("die", "die", "Ärztin", "the doctor"),
    ("die", "die", "Nachbarin", "the neighbor"),
    ("das", "das", "Kind", "the child"),
    ("mein", "meinen", "Bruder", "my brother"),
    ("meine", "meine", "Schwester", "my sister"),
    ("unser", "unseren", "Onkel", "our uncle"),
)
GOODS = (
    ("der", "den", "Wagen", "the car"),
    ("der", "den", "Tisch", "the table"),
    ("der", "den", "Koffer", "the suitcase"),
    ("die", "die", "Uhr", "the clock"),
    ("die", "die", "Kamera", "the camera"),
    ("das", "das", "Haus", "the house"),
    ("das", "das", "Buch", "the book"),
    ("das", "das", "Fahrrad", "the bicycle"),
)
# (noun, adjective)
SIZES = (
    (("der", "den", "Tunnel", "the tunnel"), ("lang", "long")),
    (("der", "den", "Turm", "the tower"), ("hoch", "high")),
    (("die", "die", "Brücke", "the bridge"), ("lang", "long")),
    (("die", "die", "Straße", "the road"), ("breit", "wide")),
    (("das", "das", "Becken", "the pool"), ("tief", "deep")),
)


def noun_phrase(noun, accusative=False):
    nominative, accusative_article, german, english = noun
    return word_by_word(f"{accusative_article if accusative else nominative} {german}", english)


class _Verb(typing.NamedTuple):
    """A separable verb, in the third person singular, and the prepositions of its place, if it has one."""

    present: str
    particle: str
    infinitive: str
    participle: str
    auxiliary: str
    english_present: str
    english_base: str
    english_past: str
    prepositions: tuple | None


_ARRIVE = _Verb("kommt", "an", "ankommen", "angekommen", "ist", "arrives", "arrive", "arrived", ("in", "in"))
_LEAVE = _Verb("fährt", "ab", "abfahren", "abgefahren", "ist", "leaves", "leave", "left", None)
_STOP = _Verb("hält", "an", "anhalten", "angehalten", "hat", "stops", "stop", "stopped", ("in", "in"))
_RETURN = _Verb(
    "kommt", "zurück", "zurückkommen", "zurückgekommen", "ist", "returns", "return", "returned", ("aus", "from")
)
_BEGIN = _Verb("fängt", "an", "anfangen", "angefangen", "hat", "begins", "begin", "began", None)
_END = _Verb("hört", "auf", "aufhören", "aufgehört", "hat", "ends", "end", "ended", None)
_HAPPEN = _Verb(
    "findet", "statt", "stattfinden", "stattgefunden", "hat", "takes place", "take place", "took place", ("in", "in")
)
_RISE = _Verb("steht", "auf", "aufstehen", "aufgestanden", "ist", "gets up", "get up", "got up", None)
_SHOP = _Verb(
    "kauft", "ein", "einkaufen", "eingekauft", "hat", "goes shopping", "go shopping", "went shopping", ("in", "in")
)
_ACTIONS = (
    (_TRAFFIC, (_ARRIVE, _LEAVE, _STOP, _RETURN)),
    (EVENTS, (_BEGIN, _END, _HAPPEN, _HAPPEN)),
    (PEOPLE, (_ARRIVE, _RETURN, _RISE, _SHOP)),
)
MODALS = (("wird", "will"), ("muss", "must"), ("soll", "should"), ("kann", "can"))
INTENTIONS = (*MODALS, ("will", "wants to"))
MATRIX = (
    word_by_word("ich weiß", "I know"),
    word_by_word("ich glaube", "I believe"),
    word_by_word("wir hoffen", "we hope"),
    word_by_word("mein Bruder sagt", "my brother says"),
)


def marked(words, mark):
    return " ".join(f"{word}/{mark}" for word in words.split())


def scene(generator, with_place=None):
    """A verb, and its subject and place."""
    nouns, verbs = pick(generator, _ACTIONS)
    verb = pick(generator, verbs)
    if verb.prepositions is None or not (generator.random() < 0.6 if with_place is None else with_place):
        place = NOTHING
    else:
        german, english = verb.prepositions
        place = rule(f"{german}/1 {{name}}", f"{english}/1 {{name}}", name=name_phrase(generator, "places"))
    return verb, {"subject": noun_phrase(pick(generator, nouns)), "place": place}

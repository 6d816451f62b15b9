"""Nouns and verbs of the embedded sentences, in the forms that the two languages need."""

import typing

from tools.nmt_pairs.quantities import name
from tools.nmt_pairs.synchronous import NOTHING, phrases, pick, template, word_by_word

_TRAFFIC = phrases(
    ("der Zug", "the train"),
    ("der Bus", "the bus"),
    ("die Fähre", "the ferry"),
    ("das Schiff", "the ship"),
    ("das Flugzeug", "the plane"),
)
EVENTS = phrases(
    ("der Kurs", "the course"),
    ("die Messe", "the fair"),
    ("die Prüfung", "the exam"),
    ("das Konzert", "the concert"),
    ("das Spiel", "the game"),
)
PEOPLE = phrases(
    ("der Koch", "the cook"),
    ("der Lehrer", "the teacher"),
    ("die Ärztin", "the doctor"),
    ("die Nachbarin", "the neighbor"),
    ("das Kind", "the child"),
    ("mein Bruder", "my brother"),
    ("meine Schwester", "my sister"),
    ("unser Onkel", "our uncle"),
)
_GOODS = (
    ("der Wagen", "the car"),
    ("der Tisch", "the table"),
    ("der Koffer", "the suitcase"),
    ("die Uhr", "the clock"),
    ("die Kamera", "the camera"),
    ("das Haus", "the house"),
    ("das Buch", "the book"),
    ("das Fahrrad", "the bicycle"),
)
GOODS = phrases(*_GOODS)
GOODS_ACCUSATIVE = phrases(*((german.replace("der ", "den "), english) for german, english in _GOODS))
# Noun, German adjective, English adjective.
SIZES = (
    (word_by_word("der Tunnel", "the tunnel"), "lang", "long"),
    (word_by_word("der Turm", "the tower"), "hoch", "high"),
    (word_by_word("die Brücke", "the bridge"), "lang", "long"),
    (word_by_word("die Straße", "the road"), "breit", "wide"),
    (word_by_word("das Becken", "the pool"), "tief", "deep"),
)


class _Verb(typing.NamedTuple):
    """A separable verb, in the third person singular, and the kind of its place, if it has one."""

    present: str
    particle: str
    infinitive: str
    participle: str
    auxiliary: str
    english_present: str
    english_base: str
    english_past: str
    place: typing.Callable | None


_IN = template("in/1 {name}", "in/1 {name}", name=name("places"))
_FROM = template("aus/1 {name}", "from/1 {name}", name=name("places"))

_ARRIVE = _Verb("kommt", "an", "ankommen", "angekommen", "ist", "arrives", "arrive", "arrived", _IN)
_LEAVE = _Verb("fährt", "ab", "abfahren", "abgefahren", "ist", "leaves", "leave", "left", None)
_STOP = _Verb("hält", "an", "anhalten", "angehalten", "hat", "stops", "stop", "stopped", _IN)
_RETURN = _Verb("kommt", "zurück", "zurückkommen", "zurückgekommen", "ist", "returns", "return", "returned", _FROM)
_BEGIN = _Verb("fängt", "an", "anfangen", "angefangen", "hat", "begins", "begin", "began", None)
_END = _Verb("hört", "auf", "aufhören", "aufgehört", "hat", "ends", "end", "ended", None)
_HAPPEN = _Verb(
    "findet", "statt", "stattfinden", "stattgefunden", "hat", "takes place", "take place", "took place", _IN
)
_RISE = _Verb("steht", "auf", "aufstehen", "aufgestanden", "ist", "gets up", "get up", "got up", None)
_SHOP = _Verb("kauft", "ein", "einkaufen", "eingekauft", "hat", "goes shopping", "go shopping", "went shopping", _IN)
_ACTIONS = (
    (_TRAFFIC, (_ARRIVE, _LEAVE, _STOP, _RETURN)),
    (EVENTS, (_BEGIN, _END, _HAPPEN, _HAPPEN)),
    (PEOPLE, (_ARRIVE, _RETURN, _RISE, _SHOP)),
)
MODALS = (("wird", "will"), ("muss", "must"), ("soll", "should"), ("kann", "can"))
INTENTIONS = (*MODALS, ("will", "wants to"))
MATRIX = phrases(
    ("ich weiß", "I know"),
    ("ich glaube", "I believe"),
    ("wir hoffen", "we hope"),
    ("mein Bruder sagt", "my brother says"),
)


def scene(generator, with_place=False):
    """The forms of a verb, its subject and, always or mostly, its place, by name, for `template`."""
    nouns, verbs = pick(generator, _ACTIONS)
    verb = pick(generator, verbs)
    has_place = verb.place is not None and (with_place or generator.random() < 0.6)
    place = verb.place(generator) if has_place else NOTHING
    return {**verb._asdict(), "subject": nouns(generator), "place": place}

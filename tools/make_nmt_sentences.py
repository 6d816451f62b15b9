"""Writes the built-in translation pairs: German and English sentences from a small grammar, with word alignments.

    python -m tools.make_nmt_sentences applications/nmt/sentences.tsv.gz

    Am Montag hat mein Bruder den alten Stuhl neben dem Haus repariert
    My brother repaired the old chair beside the house on monday

A German sentence ends with the second verb, and may begin with the time. Determiners and adjectives are declined. The
English order is subject, verb, object, place, time. Each word occurs in many combinations, so that a model can learn
to align it. The sentences have no full stops.
"""

import gzip
import sys
import typing

import numpy as np


class _Word(typing.NamedTuple):
    """A German word and its translation, "" if there is none. `linked`: a word with a possible link."""

    german: str
    english: str = ""
    linked: object = None


def _table(text):
    return [row.split() for row in text.split(",")]


# Columns: gender (r: der, e: die, s: das), German, English.
_PEOPLE = _table(
    "r Bruder brother, r Koch cook, r Lehrer teacher, r Maler painter, r Onkel uncle, r Gast guest, e Ärztin doctor, "
    "e Mutter mother, e Nachbarin neighbor, e Schwester sister, e Tante aunt, e Bäuerin farmer, s Kind child, "
    "s Mädchen girl"
)
_PLACES = _table(
    "r Garten garden, r Park park, r Bahnhof station, r Turm tower, e Küche kitchen, e Schule school, s Museum museum, "
    "s Haus house"
)
# Columns: gender, German, English, German plural, English plural.
_THINGS = _table(
    "r Apfel apple Äpfel apples, r Brief letter Briefe letters, r Koffer suitcase Koffer suitcases, "
    "r Schlüssel key Schlüssel keys, r Stuhl chair Stühle chairs, r Tisch table Tische tables, "
    "e Flasche bottle Flaschen bottles, e Karte map Karten maps, e Lampe lamp Lampen lamps, e Tasse cup Tassen cups, "
    "e Uhr clock Uhren clocks, s Bild picture Bilder pictures, s Buch book Bücher books, "
    "s Fahrrad bicycle Fahrräder bicycles, s Hemd shirt Hemden shirts, s Messer knife Messer knives"
)
# Columns: English, German stem, endings ("_": no ending): nominative masculine, feminine and neuter; accusative
# masculine; dative masculine and neuter; dative feminine.
_DETERMINERS = _table(
    "the d er ie as en em er, this dies er e es en em er, every jed er e es en em er, a ein _ e _ en em er, "
    "my mein _ e _ en em er, our unser _ e _ en em er"
)
_NUMBERS = _table("zwei two, drei three, vier four, fünf five, sechs six, sieben seven, acht eight, neun nine")
# Columns: stem of a German adjective, English adjective.
_TRAITS = _table(
    "jung young, müd tired, freundlich friendly, klug clever, ruhig quiet, stark strong, fröhlich cheerful"
)
_LOOKS = _table(
    "alt old, neu new, klein small, groß big, schön beautiful, rot red, blau blue, grün green, schwarz black"
)
_PREPOSITIONS = _table("in in, hinter behind, neben beside, vor outside")
_MODALS = _table("kann can, muss must, soll should, wird will")
# Columns: German infinitive, German participle, English infinitive, English past.
_VERBS = _table(
    "kaufen gekauft buy bought, verkaufen verkauft sell sold, finden gefunden find found, holen geholt fetch fetched, "
    "sehen gesehen see saw, malen gemalt paint painted, zeigen gezeigt show showed, verlieren verloren lose lost, "
    "vergessen vergessen forget forgot, reparieren repariert repair repaired, putzen geputzt clean cleaned, "
    "tragen getragen carry carried"
)
_DAYS = _table(
    "Montag monday, Dienstag tuesday, Mittwoch wednesday, Donnerstag thursday, Freitag friday, Sonntag sunday"
)
_MONTHS = _table("Januar january, März march, April april, Juni june, Juli july, August august, Oktober october")
_BEFORE_DAYS, _BEFORE_MONTHS = _table("am on, jeden every, bis by"), _table("im in, bis by, vor before")


def pairs(count, seed=0):
    """Return a list of random pairs with distinct sources: (source, target, sure links, possible links).

    Links are sets of (index of the source word, index of the target word). Possible links include the sure links.
    """
    generator, drawn = np.random.default_rng(seed), {}
    while len(drawn) < count:
        pair = _pair(generator)
        drawn.setdefault(pair[0].lower(), pair)
    return list(drawn.values())


def _pair(generator):
    is_perfect, is_question, has_place, has_time, time_first = generator.random(5) < (0.5, 0.3, 0.5, 0.6, 0.5)
    infinitive, participle, base, past = _pick(generator, _VERBS)
    subject, thing = _person(generator), _thing(generator)
    place = _place(generator) if has_place else []
    time = _time(generator, is_perfect) if has_time else []
    if not is_perfect:
        verb, finite = _Word(infinitive, base), _Word(*_pick(generator, _MODALS))
    elif is_question:
        verb, finite = _Word(participle, base), _Word("hat", "did")
    else:
        verb = _Word(participle, past)
        finite = _Word("hat", linked=verb)
    if is_question:
        german = [finite, *subject, *time, *thing, *place, verb]
        english = [finite, *subject, verb, *thing, *place, *time]
    else:
        front, back = (time, subject) if time and time_first else (subject, time)
        german = [*front, finite, *back, *thing, *place, verb]
        english = [*subject, *([] if is_perfect else [finite]), verb, *thing, *place, *time]
    return _linked(german, english)


def _linked(german, english):
    """Return (source, target, sure links, possible links) for two orders of the same `_Word`s."""
    rows, columns = ({id(word): place for place, word in enumerate(side)} for side in (german, english))
    sure = {(rows[key], columns[key]) for key in columns}
    possible = {(row, columns[id(word.linked)]) for row, word in enumerate(german) if word.linked}
    target = [word.english for word in english]
    target = ["an" if word == "a" and after[0] in "aeiou" else word for word, after in zip(target, [*target[1:], " "])]
    source, target = (
        " ".join([words[0].capitalize(), *words[1:]]) for words in ([word.german for word in german], target)
    )
    return source, target, sure, sure | possible


def _pick(generator, options):
    return options[generator.integers(len(options))]


def _person(generator):
    gender, *nouns = _pick(generator, _PEOPLE)
    determiner, ending = _determiner(generator, gender, "nominative")
    return [determiner, *_adjective(generator, _TRAITS, ending), _Word(*nouns)]


def _thing(generator):
    gender, german, english, *plurals = _pick(generator, _THINGS)
    if generator.random() < 0.3:
        return [_Word(*_pick(generator, _NUMBERS)), *_adjective(generator, _LOOKS, "e"), _Word(*plurals)]
    determiner, ending = _determiner(generator, gender, "accusative")
    return [determiner, *_adjective(generator, _LOOKS, ending), _Word(german, english)]


def _place(generator):
    gender, *nouns = _pick(generator, _PLACES)
    preposition = _Word(*_pick(generator, _PREPOSITIONS))
    determiner, _ = _determiner(generator, gender, "dative")
    return [preposition, determiner, _Word(*nouns)]


def _determiner(generator, gender, case):
    """Return a random determiner, and the German ending of an adjective after it."""
    english, stem, *endings = _pick(generator, _DETERMINERS)
    if case == "dative":
        return _Word(stem + endings[5 if gender == "e" else 4], english), "en"
    is_masculine_accusative = case == "accusative" and gender == "r"
    ending = endings[3 if is_masculine_accusative else "res".index(gender)]
    strong = {"r": "er", "s": "es"}.get(gender, "e") if ending == "_" else "e"
    return _Word(stem + ending.strip("_"), english), "en" if is_masculine_accusative else strong


def _adjective(generator, adjectives, ending):
    stem, english = _pick(generator, adjectives)
    return [_Word(stem + ending, english)] if generator.random() < 0.5 else []


def _time(generator, is_past):
    kind = generator.integers(4)
    if kind == 0:
        today = _Word("heute", "today")
        return [_pick(generator, [today, _Word("gestern", "yesterday") if is_past else _Word("morgen", "tomorrow")])]
    before, times = (_BEFORE_DAYS, _DAYS) if kind == 1 else (_BEFORE_MONTHS, _MONTHS)
    return [_Word(*_pick(generator, before)), _Word(*_pick(generator, times))]


def main(path):
    lines = ["source\ttarget\tlinks"]
    for source, target, sure, possible in pairs(8000):
        links = " ".join(f"{i}{'-' if (i, j) in sure else 'p'}{j}" for i, j in sorted(possible))
        lines.append(f"{source}\t{target}\t{links}")
    with open(path, "wb") as file:
        file.write(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])

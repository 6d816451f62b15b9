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

import functools
import re
import typing

import babel
import babel.dates
import babel.numbers
import babel.units
import numpy as np

from applications.common.alignments import Links
from applications.common.errors import InputError

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
        phrase = _capitalised(_pick(generator, _SENTENCES)(generator))
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


class _Phrase(typing.NamedTuple):
    """Words of both sides, and links between their positions."""

    source: tuple = ()
    target: tuple = ()
    sure: frozenset = frozenset()
    possible: frozenset = frozenset()


_NOTHING = _Phrase()


def _rule(source, target, **parts):
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


def _words(source, target):
    """Phrases word by word where both have as many words, and all with all where they do not."""
    sides = source.split(), target.split()
    if len(sides[0]) == len(sides[1]):
        links = {(i, i) for i in range(len(sides[0]))}
    else:
        links = {(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))}
    return _Phrase(tuple(sides[0]), tuple(sides[1]), frozenset(links))


def _capitalised(phrase):
    source, target = ((words[0][0].upper() + words[0][1:], *words[1:]) for words in phrase[:2])
    return phrase._replace(source=source, target=target)


def _pick(generator, options):
    return options[generator.integers(len(options))]


# Numbers. The words of one, as a number and as a clock's hour, depend on what follows: they are not among these.
# fmt: off
_GERMAN_UNITS = (
    "", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn",
    "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
)
_ENGLISH_UNITS = (
    "", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN_ORDINALS = (
    "", "ersten", "zweiten", "dritten", "vierten", "fünften", "sechsten", "siebten", "achten", "neunten", "zehnten",
    "elften", "zwölften", "dreizehnten", "vierzehnten", "fünfzehnten", "sechzehnten", "siebzehnten", "achtzehnten",
    "neunzehnten",
)
_ENGLISH_ORDINALS = (
    "", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)
# fmt: on


def _cardinal(number):
    """A number below 100,000 before a noun; hundreds that end in 01 are not written, for German inflects their one."""
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    phrase = _NOTHING
    if thousands:
        phrase = _rule("{n} tausend/1", "{n} thousand/1", n=_cardinal(thousands))
    if hundreds:
        phrase = _rule("{high} {n} hundert/1", "{high} {n} hundred/1", high=phrase, n=_cardinal(hundreds))
    tens, units = divmod(rest, 10)
    if rest < 20:
        low = _words(_GERMAN_UNITS[rest], _ENGLISH_UNITS[rest])
    elif units == 0:
        low = _words(_GERMAN_TENS[tens], _ENGLISH_TENS[tens])
    else:
        low = _rule(
            f"{_GERMAN_UNITS[units]}/1 und/1?,2? {_GERMAN_TENS[tens]}/2",
            f"{_ENGLISH_TENS[tens]}/2 {_ENGLISH_UNITS[units]}/1",
        )
    return _rule("{high} {low}", "{high} {low}", high=phrase, low=low)


def _ordinal(number, nominative=False):
    """An ordinal below 40, after *dem* or *der*."""
    tens, units = divmod(number, 10)
    if number < 20:
        phrase = _words(_GERMAN_ORDINALS[number], _ENGLISH_ORDINALS[number])
    elif units == 0:
        phrase = _words(f"{_GERMAN_TENS[tens]}sten", _ENGLISH_TENS[tens].removesuffix("y") + "ieth")
    else:
        # The ending of the tens is the English ending of the units.
        phrase = _rule(
            f"{_GERMAN_UNITS[units]}/1 und/1?,2? {_GERMAN_TENS[tens]}sten/2,1?",
            f"{_ENGLISH_TENS[tens]}/2 {_ENGLISH_ORDINALS[units]}/1",
        )
    if nominative:
        phrase = phrase._replace(source=(*phrase.source[:-1], phrase.source[-1].removesuffix("n")))
    return phrase


def _year(generator):
    if generator.random() < 0.7:
        return _rule("neunzehn/1 hundert/1 {n}", "nineteen/1 {n}", n=_cardinal(int(generator.integers(10, 100))))
    return _rule("zwei/1 tausend/1 {n}", "twenty/1 {n}", n=_cardinal(int(generator.integers(10, 30))))


def _count(generator):
    """A number above 1, mostly small."""
    kind = generator.random()
    if kind < 0.6:
        number = generator.integers(2, 100)
    elif kind < 0.8:
        number = 100 * generator.integers(1, 10) + generator.integers(2, 100)
    elif kind < 0.9:
        number = 1000 * generator.integers(1, 100)
    else:
        number = 1000 * generator.integers(1, 13) + 100 * generator.integers(1, 10)
    return _cardinal(int(number))


# Names of the CLDR.

_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "NOK", "DKK", "JPY", "CAD", "AUD", "MXN", "EGP", "CZK", "INR")
_LENGTHS = ("length-kilometer", "length-meter", "length-centimeter", "length-millimeter")
_WEIGHTS = ("mass-kilogram", "mass-gram")
_DURATIONS = ("duration-minute", "duration-hour", "duration-day", "duration-week", "duration-month", "duration-year")
# Countries that German uses without an article.
# fmt: off
_COUNTRIES = (
    "AT", "BE", "BR", "CA", "CN", "DE", "DK", "EG", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IN", "IS", "IT", "JP",
    "MX", "NO", "PL", "PT", "SE",
)
_CITIES = (
    "Africa/Cairo", "Asia/Baghdad", "Asia/Damascus", "Asia/Tokyo", "Europe/Athens", "Europe/Berlin", "Europe/Brussels",
    "Europe/Bucharest", "Europe/Copenhagen", "Europe/Lisbon", "Europe/London", "Europe/Madrid", "Europe/Moscow",
    "Europe/Paris", "Europe/Prague", "Europe/Rome", "Europe/Vienna", "Europe/Warsaw",
)
# fmt: on
# (name in the CLDR of German, of English, hours at which it is used)
_DAY_PARTS = (
    ("morning1", "morning1", (5, 6, 7, 8, 9, 10)),
    ("afternoon2", "afternoon1", (1, 2, 3, 4, 5)),
    ("evening1", "evening1", (6, 7, 8, 9)),
    ("night1", "night1", (10, 11)),
)


@functools.cache
def _names():
    """All names as phrases: a dict from their kind to a tuple, or to a dict by key."""
    german, english = babel.Locale("de"), babel.Locale("en")

    def months(locale):
        return babel.dates.get_month_names("wide", locale=locale)

    def days(locale):
        return babel.dates.get_day_names("wide", locale=locale)

    def unit(key):
        # "2 Kilometer": the pattern of the plural.
        forms = (babel.units.format_unit(2, key, "long", locale=locale) for locale in (german, english))
        return _words(*(form.removeprefix("2 ") for form in forms))

    def city(zone):
        fallback = zone.split("/")[1]
        return _words(*(locale.time_zones.get(zone, {}).get("city", fallback) for locale in (german, english)))

    return {
        "months": tuple(_words(months(german)[number], months(english)[number]) for number in range(1, 13)),
        "days": tuple(_words(days(german)[number], days(english)[number]) for number in range(7)),
        "currencies": tuple(
            _words(*(babel.numbers.get_currency_name(code, 2, locale) for locale in (german, english)))
            for code in _CURRENCIES
        ),
        "units": {key: unit(key) for key in _LENGTHS + _WEIGHTS + _DURATIONS + ("temperature-celsius",)},
        "places": tuple(_words(german.territories[code], english.territories[code]) for code in _COUNTRIES)
        + tuple(map(city, _CITIES)),
        "cities": tuple(map(city, _CITIES)),
        "parts": tuple(
            (_words(german.day_periods["format"]["wide"][a], english.day_periods["format"]["wide"][b]), hours)
            for a, b, hours in _DAY_PARTS
        ),
    }


def _name(generator, kind):
    return _pick(generator, _names()[kind])


def _unit(generator, keys):
    return _names()["units"][_pick(generator, keys)]


def _dative(phrase):
    """The dative plural of a German noun."""
    word = phrase.source[-1]
    return phrase._replace(source=(*phrase.source[:-1], word if word.endswith("n") else word + "n"))


def _amount(generator):
    return _rule("{n} {currency}", "{n} {currency}", n=_count(generator), currency=_name(generator, "currencies"))


def _measure(generator, keys):
    return _rule("{n} {unit}", "{n} {unit}", n=_count(generator), unit=_unit(generator, keys))


def _span(generator):
    """A short while, in the dative: *drei Tagen*."""
    number = _cardinal(int(generator.integers(2, 60)))
    return _rule("{n} {unit}", "{n} {unit}", n=number, unit=_dative(_unit(generator, _DURATIONS)))


# Times.


def _clock(generator, hours=tuple(range(1, 13))):
    """A time of day, such as *halb fünf*, half past four."""
    hour = int(_pick(generator, hours))
    german, english = _GERMAN_UNITS[hour], _ENGLISH_UNITS[hour]
    following = _GERMAN_UNITS[hour % 12 + 1]
    inflected, following = (word + "s" if word == "ein" else word for word in (german, following))
    kind = generator.integers(6)
    if kind == 0:
        return _rule(f"{german}/1 Uhr/2", f"{english}/1 o'clock/2")
    if kind <= 2:
        return _rule(f"halb/1 {following}/2", f"half/1 past/1 {english}/2")
    minutes = _rule("Viertel/1", "a/1? quarter/1") if kind == 3 else _cardinal(int(_pick(generator, (5, 10, 20))))
    if generator.random() < 0.5:
        return _rule(f"{{minutes}} nach/1 {inflected}/2", f"{{minutes}} past/1 {english}/2", minutes=minutes)
    return _rule(f"{{minutes}} vor/1 {inflected}/2", f"{{minutes}} to/1 {english}/2", minutes=minutes)


def _at(generator, with_part=False):
    """*um halb fünf*, at half past four; with the part of the day, before or after in German."""
    if not with_part:
        return _rule("um/1 {clock}", "at/1 {clock}", clock=_clock(generator))
    part, hours = _pick(generator, _names()["parts"])
    source = "{part} um/1 {clock}" if generator.random() < 0.5 else "um/1 {clock} {part}"
    return _rule(source, "at/1 {clock} {part}", clock=_clock(generator, hours), part=part)


def _month_and_day(generator, nominative=False):
    month = int(generator.integers(12))
    day = int(generator.integers(1, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month] + 1))
    return _names()["months"][month], _ordinal(day, nominative)


def _date(generator):
    """*am dritten Mai*, on May the third."""
    month, day = _month_and_day(generator)
    return _rule("am/1 {day} {month}", "on/1 {month} the/1 {day}", day=day, month=month)


def _weekday(generator):
    return _rule("am/1 {day}", "on/1 {day}", day=_name(generator, "days"))


def _weekday_and_date(generator):
    """*am Donnerstag , dem dritten Mai*; the date loses its own *am*."""
    month, day = _month_and_day(generator)
    return _rule(
        "am/1 {weekday} ,/2 dem/3 {day} {month}",
        "on/1 {weekday} ,/2 {month} the/3 {day}",
        weekday=_name(generator, "days"),
        day=day,
        month=month,
    )


def _day(generator):
    return _pick(generator, (_date, _date, _weekday, _weekday_and_date))(generator)


def _day_and_time(generator):
    # English says the time first.
    return _rule("{day} {at}", "{at} {day}", day=_day(generator), at=_at(generator, with_part=generator.random() < 0.3))


def _month(generator):
    return _rule("im/1 {month}", "in/1 {month}", month=_name(generator, "months"))


def _month_and_year(generator):
    return _rule("im/1 {month} {year}", "in/1 {month} {year}", month=_name(generator, "months"), year=_year(generator))


def _ago(generator):
    return _rule("vor/1 {span}", "{span} ago/1", span=_span(generator))


def _hence(generator):
    return _rule("in/1 {span}", "in/1 {span}", span=_span(generator))


_FUTURE = (
    _words("morgen", "tomorrow"),
    _words("übermorgen", "the day after tomorrow"),
    _words("morgen früh", "tomorrow morning"),
    _words("heute Abend", "tonight"),
    _words("nächste Woche", "next week"),
    _words("nächstes Jahr", "next year"),
    _words("bald", "soon"),
)
_PAST = (
    _words("gestern", "yesterday"),
    _words("vorgestern", "the day before yesterday"),
    _words("gestern Abend", "last night"),
    _words("letzte Woche", "last week"),
    _words("letztes Jahr", "last year"),
    _words("neulich", "the other day"),
)


def _future(generator):
    kind = generator.random()
    if kind < 0.15:
        return _rule("nächsten/1 {day}", "next/1 {day}", day=_name(generator, "days"))
    if kind < 0.3:
        return _hence(generator)
    return _pick(generator, _FUTURE)


def _past(generator):
    kind = generator.random()
    if kind < 0.15:
        return _rule("letzten/1 {day}", "last/1 {day}", day=_name(generator, "days"))
    if kind < 0.4:
        return _ago(generator)
    if kind < 0.55:
        return _month_and_year(generator)
    return _pick(generator, _PAST)


def _when(generator, relative):
    """A time; `relative` is `_past` or `_future`, for words that go with one tense only."""
    return _pick(generator, (_day, _at, _day_and_time, _day_and_time, _month, relative, relative))(generator)


# Who and what. A noun is (article, article of the accusative, German, article and noun of English).

_TRAFFIC = (
    ("der", "den", "Zug", "the train"),
    ("der", "den", "Bus", "the bus"),
    ("die", "die", "Fähre", "the ferry"),
    ("das", "das", "Schiff", "the ship"),
    ("das", "das", "Flugzeug", "the plane"),
)
_EVENTS = (
    ("der", "den", "Kurs", "the course"),
    ("die", "die", "Messe", "the fair"),
    ("die", "die", "Prüfung", "the exam"),
    ("das", "das", "Konzert", "the concert"),
    ("das", "das", "Spiel", "the game"),
)
_PEOPLE = (
    ("der", "den", "Koch", "the cook"),
    ("der", "den", "Lehrer", "the teacher"),
    ("die", "die", "Ärztin", "the doctor"),
    ("die", "die", "Nachbarin", "the neighbor"),
    ("das", "das", "Kind", "the child"),
    ("mein", "meinen", "Bruder", "my brother"),
    ("meine", "meine", "Schwester", "my sister"),
    ("unser", "unseren", "Onkel", "our uncle"),
)
_GOODS = (
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
_SIZES = (
    (("der", "den", "Tunnel", "the tunnel"), ("lang", "long")),
    (("der", "den", "Turm", "the tower"), ("hoch", "high")),
    (("die", "die", "Brücke", "the bridge"), ("lang", "long")),
    (("die", "die", "Straße", "the road"), ("breit", "wide")),
    (("das", "das", "Becken", "the pool"), ("tief", "deep")),
)


def _noun(noun, accusative=False):
    nominative, accusative_article, german, english = noun
    return _words(f"{accusative_article if accusative else nominative} {german}", english)


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
    (_EVENTS, (_BEGIN, _END, _HAPPEN, _HAPPEN)),
    (_PEOPLE, (_ARRIVE, _RETURN, _RISE, _SHOP)),
)
_MODALS = (("wird", "will"), ("muss", "must"), ("soll", "should"), ("kann", "can"))
_INTENTIONS = (*_MODALS, ("will", "wants to"))
_MATRIX = (
    _words("ich weiß", "I know"),
    _words("ich glaube", "I believe"),
    _words("wir hoffen", "we hope"),
    _words("mein Bruder sagt", "my brother says"),
)


def _marked(words, mark):
    return " ".join(f"{word}/{mark}" for word in words.split())


def _scene(generator, with_place=None):
    """A verb, and its subject and place."""
    nouns, verbs = _pick(generator, _ACTIONS)
    verb = _pick(generator, verbs)
    if verb.prepositions is None or not (generator.random() < 0.6 if with_place is None else with_place):
        place = _NOTHING
    else:
        german, english = verb.prepositions
        place = _rule(f"{german}/1 {{name}}", f"{english}/1 {{name}}", name=_name(generator, "places"))
    return verb, {"subject": _noun(_pick(generator, nouns)), "place": place}


# Sentences about what happens.


def _statement(generator):
    verb, parts = _scene(generator)
    source = _pick(
        generator,
        (
            f"{{subject}} {verb.present}/1 {{when}} {{place}} {verb.particle}/1 ./2",
            f"{{when}} {verb.present}/1 {{subject}} {{place}} {verb.particle}/1 ./2",
        ),
    )
    target = f"{{subject}} {_marked(verb.english_present, 1)} {{place}} {{when}} ./2"
    return _rule(source, target, when=_when(generator, _future), **parts)


def _modal(generator):
    verb, parts = _scene(generator)
    german, english = _pick(generator, _MODALS)
    source = _pick(
        generator,
        (
            f"{{subject}} {german}/1 {{when}} {{place}} {verb.infinitive}/2 ./3",
            f"{{when}} {german}/1 {{subject}} {{place}} {verb.infinitive}/2 ./3",
        ),
    )
    target = f"{{subject}} {_marked(english, 1)} {_marked(verb.english_base, 2)} {{place}} {{when}} ./3"
    return _rule(source, target, when=_when(generator, _future), **parts)


def _perfect(generator):
    verb, parts = _scene(generator)
    source = _pick(
        generator,
        (
            f"{{subject}} {verb.auxiliary}/1? {{when}} {{place}} {verb.participle}/1 ./2",
            f"{{when}} {verb.auxiliary}/1? {{subject}} {{place}} {verb.participle}/1 ./2",
        ),
    )
    target = f"{{subject}} {_marked(verb.english_past, 1)} {{place}} {{when}} ./2"
    return _rule(source, target, when=_when(generator, _past), **parts)


def _subordinate(generator):
    verb, parts = _scene(generator)
    return _rule(
        f"{{matrix}} ,/1? dass/1 {{subject}} {{when}} {{place}} {verb.particle}{verb.present}/2 ./3",
        f"{{matrix}} that/1 {{subject}} {_marked(verb.english_present, 2)} {{place}} {{when}} ./3",
        matrix=_pick(generator, _MATRIX),
        when=_when(generator, _future),
        **parts,
    )


def _question(generator):
    verb, parts = _scene(generator)
    return _rule(
        f"{verb.present}/1 {{subject}} {{when}} {{place}} {verb.particle}/1 ?/2",
        f"does/1? {{subject}} {_marked(verb.english_base, 1)} {{place}} {{when}} ?/2",
        when=_when(generator, _future),
        **parts,
    )


def _past_question(generator):
    verb, parts = _scene(generator)
    return _rule(
        f"{verb.auxiliary}/1 {{subject}} {{when}} {{place}} {verb.participle}/2 ?/3",
        f"did/1 {{subject}} {_marked(verb.english_base, 2)} {{place}} {{when}} ?/3",
        when=_when(generator, _past),
        **parts,
    )


def _question_of_time(generator):
    verb, parts = _scene(generator, with_place=True)
    if generator.random() < 0.5:
        source = f"wann/1 {verb.present}/2 {{subject}} {{place}} {verb.particle}/2 ?/3"
        target = f"when/1 does/2? {{subject}} {_marked(verb.english_base, 2)} {{place}} ?/3"
    else:
        source = f"wann/1 {verb.auxiliary}/2 {{subject}} {{place}} {verb.participle}/4 ?/3"
        target = f"when/1 did/2 {{subject}} {_marked(verb.english_base, 4)} {{place}} ?/3"
    return _rule(source, target, **parts)


# Sentences about dates and times.


def _birth(generator):
    return _rule(
        _pick(
            generator,
            (
                "{person} wurde/1 {date} {year} in/2 {place} geboren/3 ./4",
                "{date} {year} wurde/1 {person} in/2 {place} geboren/3 ./4",
            ),
        ),
        "{person} was/1 born/3 in/2 {place} {date} {year} ./4",
        person=_noun(_pick(generator, _PEOPLE)),
        place=_name(generator, "places"),
        date=_date(generator),
        year=_year(generator),
    )


def _today(generator):
    month, day = _month_and_day(generator, nominative=True)
    return _rule(
        "heute/1 ist/2 {weekday} ,/3 der/4 {day} {month} ./5",
        "today/1 is/2 {weekday} ,/3 {month} the/4 {day} ./5",
        weekday=_name(generator, "days"),
        day=day,
        month=month,
    )


def _fall(generator):
    month, day = _month_and_day(generator, nominative=True)
    return _rule(
        "der/1 {day} {month} fällt/2 auf/3 einen/4 {weekday} ./5",
        "{month} the/1 {day} falls/2 on/3 a/4 {weekday} ./5",
        weekday=_name(generator, "days"),
        day=day,
        month=month,
    )


def _now(generator):
    kind = generator.integers(3)
    if kind == 0:
        return _rule("es/1 ist/2 {clock} ./3", "it/1 is/2 {clock} ./3", clock=_clock(generator))
    part, hours = _pick(generator, _names()["parts"])
    clock = _clock(generator, hours)
    if kind == 1:
        return _rule("es/1 ist/2 {clock} {part} ./3", "it/1 is/2 {clock} {part} ./3", clock=clock, part=part)
    return _rule("ist/2 es/1 schon/4 {clock} ?/3", "is/2 it/1 already/4 {clock} ?/3", clock=clock)


def _duration(generator):
    if generator.random() < 0.2:
        span = _rule("anderthalb/1 {unit}", "one/1 and/1 a/1 half/1 {unit}", unit=_unit(generator, _DURATIONS[1:]))
    else:
        span = _measure(generator, _DURATIONS)
    event = _noun(_pick(generator, _EVENTS))
    if generator.random() < 0.5:
        return _rule("{event} hat/1? {span} gedauert/1 ./2", "{event} lasted/1 {span} ./2", event=event, span=span)
    return _rule("{event} wird/1 {span} dauern/2 ./3", "{event} will/1 last/2 {span} ./3", event=event, span=span)


def _residence(generator):
    return _rule(
        _pick(
            generator,
            ("seit/1 {span} wohnt/2 {person} in/3 {place} ./4", "{person} wohnt/2 seit/1 {span} in/3 {place} ./4"),
        ),
        "{person} has/2? lived/2 in/3 {place} for/1 {span} ./4",
        span=_span(generator),
        person=_noun(_pick(generator, _PEOPLE)),
        place=_name(generator, "places"),
    )


# Sentences about amounts.


def _optional(generator, time):
    return time(generator) if generator.random() < 0.5 else _NOTHING


def _payment(generator):
    when = _optional(generator, _past)
    orders = (
        "{person} hat/1? {when} für/2 {thing} {amount} bezahlt/1 ./3",
        "{amount} hat/1? {person} {when} für/2 {thing} bezahlt/1 ./3",
        "{when} hat/1? {person} {amount} für/2 {thing} bezahlt/1 ./3",
    )
    return _rule(
        _pick(generator, orders if when.source else orders[:2]),
        "{person} paid/1 {amount} for/2 {thing} {when} ./3",
        person=_noun(_pick(generator, _PEOPLE)),
        thing=_noun(_pick(generator, _GOODS), accusative=True),
        amount=_amount(generator),
        when=when,
    )


def _trade(generator):
    german, english = _pick(generator, (("verkauft", "sold"), ("gekauft", "bought"), ("versteigert", "auctioned")))
    when = _optional(generator, _past)
    orders = (
        f"{{thing}} hat/1? {{person}} {{when}} für/2 {{amount}} {german}/1 ./3",
        f"{{person}} hat/1? {{thing}} {{when}} für/2 {{amount}} {german}/1 ./3",
        f"{{when}} hat/1? {{person}} {{thing}} für/2 {{amount}} {german}/1 ./3",
    )
    return _rule(
        _pick(generator, orders if when.source else orders[:2]),
        f"{{person}} {english}/1 {{thing}} for/2 {{amount}} {{when}} ./3",
        person=_noun(_pick(generator, _PEOPLE)),
        thing=_noun(_pick(generator, _GOODS), accusative=True),
        amount=_amount(generator),
        when=when,
    )


def _plan(generator):
    german, english = _pick(generator, _INTENTIONS)
    verb = _pick(generator, (("verkaufen", "sell"), ("kaufen", "buy")))
    return _rule(
        f"{{person}} {german}/1 {{thing}} {{when}} für/2 {{amount}} {verb[0]}/3 ./4",
        f"{{person}} {_marked(english, 1)} {verb[1]}/3 {{thing}} for/2 {{amount}} {{when}} ./4",
        person=_noun(_pick(generator, _PEOPLE)),
        thing=_noun(_pick(generator, _GOODS), accusative=True),
        amount=_amount(generator),
        when=_optional(generator, _future),
    )


def _sale(generator):
    return _rule(
        _pick(
            generator,
            (
                "{thing} ist/1 {when} für/2 {amount} verkauft/3 worden/1 ./4",
                "{when} ist/1 {thing} für/2 {amount} verkauft/3 worden/1 ./4",
            ),
        ),
        "{thing} was/1 sold/3 for/2 {amount} {when} ./4",
        thing=_noun(_pick(generator, _GOODS)),
        amount=_amount(generator),
        when=_past(generator),
    )


def _price(generator):
    thing, amount = _noun(_pick(generator, _GOODS)), _amount(generator)
    if generator.random() < 0.5:
        return _rule("{thing} kostet/1 {amount} ./2", "{thing} costs/1 {amount} ./2", thing=thing, amount=amount)
    return _rule(
        "seit/1 {month} kostet/2 {thing} {amount} ./3",
        "{thing} has/2? cost/2 {amount} since/1 {month} ./3",
        thing=thing,
        amount=amount,
        month=_name(generator, "months"),
    )


def _weight(generator):
    return _rule(
        "{thing} ist/1 {measure} schwer/1 ./2",
        "{thing} weighs/1 {measure} ./2",
        thing=_noun(_pick(generator, _GOODS)),
        measure=_measure(generator, _WEIGHTS),
    )


def _size(generator):
    noun, (german, english) = _pick(generator, _SIZES)
    return _rule(
        f"{{thing}} ist/1 {{measure}} {german}/2 ./3",
        f"{{thing}} is/1 {{measure}} {english}/2 ./3",
        thing=_noun(noun),
        measure=_measure(generator, _LENGTHS),
    )


def _distance(generator):
    first = generator.integers(len(_CITIES))
    second = (first + generator.integers(1, len(_CITIES))) % len(_CITIES)
    return _rule(
        "von/1 {first} bis/2 {second} sind/3 es/4 {n} {unit} ./5",
        "it/4 is/3 {n} {unit} from/1 {first} to/2 {second} ./5",
        first=_names()["cities"][first],
        second=_names()["cities"][second],
        n=_count(generator),
        unit=_names()["units"]["length-kilometer"],
    )


def _temperature(generator):
    return _rule(
        _pick(
            generator,
            ("in/1 {place} sind/2 es/3 heute/4 {n} {unit} ./5", "heute/4 sind/2 es/3 in/1 {place} {n} {unit} ./5"),
        ),
        "it/3 is/2 {n} {unit} in/1 {place} today/4 ./5",
        place=_name(generator, "places"),
        n=_cardinal(int(generator.integers(2, 45))),
        unit=_names()["units"]["temperature-celsius"],
    )


_SENTENCES = (
    _statement,
    _statement,
    _modal,
    _perfect,
    _perfect,
    _subordinate,
    _question,
    _past_question,
    _question_of_time,
    _birth,
    _today,
    _fall,
    _now,
    _duration,
    _residence,
    _payment,
    _trade,
    _plan,
    _sale,
    _price,
    _weight,
    _size,
    _distance,
    _temperature,
)

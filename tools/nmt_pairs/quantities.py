"""Numbers, names of the CLDR, amounts and times, in German and English, as phrases with their links."""

import functools

import babel
from babel.numbers import get_currency_name
from babel.units import format_unit

from tools.nmt_pairs.synchronous import NOTHING, mixture, one_of, phrases, pick, rule, template, word_by_word

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


def cardinal(number):
    """A number below 100,000 before a noun; hundreds that end in 01 are not written, for German inflects their one."""
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    phrase = NOTHING
    if thousands:
        phrase = rule("{n} tausend/1", "{n} thousand/1", n=cardinal(thousands))
    if hundreds:
        phrase = rule("{high} {n} hundert/1", "{high} {n} hundred/1", high=phrase, n=cardinal(hundreds))
    tens, units = divmod(rest, 10)
    if rest < 20:
        low = word_by_word(_GERMAN_UNITS[rest], _ENGLISH_UNITS[rest])
    elif units == 0:
        low = word_by_word(_GERMAN_TENS[tens], _ENGLISH_TENS[tens])
    else:
        low = rule(
            f"{_GERMAN_UNITS[units]}/1 und/1?,2? {_GERMAN_TENS[tens]}/2",
            f"{_ENGLISH_TENS[tens]}/2 {_ENGLISH_UNITS[units]}/1",
        )
    return rule("{high} {low}", "{high} {low}", high=phrase, low=low)


def ordinal(number, nominative=False):
    """An ordinal below 40, after *dem* or *der*."""
    tens, units = divmod(number, 10)
    if number < 20:
        phrase = word_by_word(_GERMAN_ORDINALS[number], _ENGLISH_ORDINALS[number])
    elif units == 0:
        phrase = word_by_word(f"{_GERMAN_TENS[tens]}sten", _ENGLISH_TENS[tens].removesuffix("y") + "ieth")
    else:
        # The ending of the tens is the English ending of the units.
        phrase = rule(
            f"{_GERMAN_UNITS[units]}/1 und/1?,2? {_GERMAN_TENS[tens]}sten/2,1?",
            f"{_ENGLISH_TENS[tens]}/2 {_ENGLISH_ORDINALS[units]}/1",
        )
    if nominative:
        phrase = phrase._replace(source=(*phrase.source[:-1], phrase.source[-1].removesuffix("n")))
    return phrase


def number(low, high):
    """A kind of phrase: a number from `low` to below `high`."""
    return lambda generator: cardinal(int(generator.integers(low, high)))


year = mixture(
    (0.7, template("neunzehn/1 hundert/1 {n}", "nineteen/1 {n}", n=number(10, 100))),
    (1.0, template("zwei/1 tausend/1 {n}", "twenty/1 {n}", n=number(10, 30))),
)
# Above 1, mostly small.
count = mixture(
    (0.6, number(2, 100)),
    (0.8, lambda generator: cardinal(int(100 * generator.integers(1, 10) + generator.integers(2, 100)))),
    (0.9, lambda generator: cardinal(int(1000 * generator.integers(1, 100)))),
    (1.0, lambda generator: cardinal(int(1000 * generator.integers(1, 13) + 100 * generator.integers(1, 10)))),
)

# Names of the CLDR.

_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "NOK", "DKK", "JPY", "CAD", "AUD", "MXN", "EGP", "CZK", "INR")
LENGTHS = ("length-kilometer", "length-meter", "length-centimeter", "length-millimeter")
WEIGHTS = ("mass-kilogram", "mass-gram")
DURATIONS = ("duration-minute", "duration-hour", "duration-day", "duration-week", "duration-month", "duration-year")
# Countries that German uses without an article.
# fmt: off
_COUNTRIES = (
    "AT", "BE", "BR", "CA", "CN", "DE", "DK", "EG", "ES", "FI", "FR", "GR", "HR", "HU", "IE", "IN", "IS", "IT", "JP",
    "MX", "NO", "PL", "PT", "SE",
)
CITIES = (
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
def names():
    """All names as phrases: a dict from their kind to a tuple, or to a dict by key."""
    german, english = babel.Locale("de"), babel.Locale("en")

    def named(name_in, keys):
        return tuple(word_by_word(name_in(german, key), name_in(english, key)) for key in keys)

    def parts(locale):
        return locale.day_periods["format"]["wide"]

    units = (*LENGTHS, *WEIGHTS, *DURATIONS, "temperature-celsius")
    # "2 Kilometer": the pattern of the plural.
    plurals = named(lambda locale, key: format_unit(2, key, "long", locale=locale).removeprefix("2 "), units)
    cities = named(lambda locale, zone: locale.time_zones.get(zone, {}).get("city", zone.split("/")[1]), CITIES)
    return {
        "months": named(lambda locale, month: locale.months["format"]["wide"][month], range(1, 13)),
        "days": named(lambda locale, day: locale.days["format"]["wide"][day], range(7)),
        "currencies": named(lambda locale, code: get_currency_name(code, 2, locale), _CURRENCIES),
        "units": dict(zip(units, plurals, strict=True)),
        "places": named(lambda locale, code: locale.territories[code], _COUNTRIES) + cities,
        "cities": cities,
        "parts": tuple((word_by_word(parts(german)[x], parts(english)[y]), hours) for x, y, hours in _DAY_PARTS),
    }


def name(key):
    """A kind of phrase: one of the names of that key."""
    return lambda generator: pick(generator, names()[key])


def unit(keys):
    """A kind of phrase: one of the units."""
    return lambda generator: names()["units"][pick(generator, keys)]


def _dative_unit(generator):
    phrase = unit(DURATIONS)(generator)
    word = phrase.source[-1]
    return phrase._replace(source=(*phrase.source[:-1], word if word.endswith("n") else word + "n"))


def measure(keys):
    """A kind of phrase: a number of one of the units."""
    return template("{n} {unit}", "{n} {unit}", n=count, unit=unit(keys))


amount = template("{n} {currency}", "{n} {currency}", n=count, currency=name("currencies"))
# A short while, in the dative: *drei Tagen*.
span = template("{n} {unit}", "{n} {unit}", n=number(2, 60), unit=_dative_unit)


# Times.


def clock(generator, hours=tuple(range(1, 13))):
    """A time of day, such as *halb fünf*, half past four."""
    hour = int(pick(generator, hours))
    german, english = _GERMAN_UNITS[hour], _ENGLISH_UNITS[hour]
    following = _GERMAN_UNITS[hour % 12 + 1]
    inflected, following = (word + "s" if word == "ein" else word for word in (german, following))
    kind = generator.integers(6)
    if kind == 0:
        return rule(f"{german}/1 Uhr/2", f"{english}/1 o'clock/2")
    if kind <= 2:
        return rule(f"halb/1 {following}/2", f"half/1 past/1 {english}/2")
    minutes = rule("Viertel/1", "a/1? quarter/1") if kind == 3 else cardinal(int(pick(generator, (5, 10, 20))))
    before, after = ("nach", "past") if generator.random() < 0.5 else ("vor", "to")
    return rule(f"{{minutes}} {before}/1 {inflected}/2", f"{{minutes}} {after}/1 {english}/2", minutes=minutes)


def part_and_clock(generator):
    """A part of the day and a time in it, by name, for `template`."""
    part, hours = pick(generator, names()["parts"])
    return {"part": part, "clock": clock(generator, hours)}


def _at_in_part(generator):
    """*um halb fünf*, at half past four, with the part of the day, before or after in German."""
    part, hours = pick(generator, names()["parts"])
    source = "{part} um/1 {clock}" if generator.random() < 0.5 else "um/1 {clock} {part}"
    return rule(source, "at/1 {clock} {part}", clock=clock(generator, hours), part=part)


def month_and_day(generator, nominative=False):
    """A month and the ordinal of one of its days, by name, for `template`."""
    month = int(generator.integers(12))
    day = int(generator.integers(1, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month] + 1))
    return {"month": names()["months"][month], "day": ordinal(day, nominative)}


_at = template("um/1 {clock}", "at/1 {clock}", clock=clock)
date = template("am/1 {day} {month}", "on/1 {month} the/1 {day}", month_and_day)
_weekday = template("am/1 {day}", "on/1 {day}", day=name("days"))
# *am Donnerstag , dem dritten Mai*; the date loses its own *am*.
_weekday_and_date = template(
    "am/1 {weekday} ,/2 dem/3 {day} {month}",
    "on/1 {weekday} ,/2 {month} the/3 {day}",
    month_and_day,
    weekday=name("days"),
)
_day = one_of(date, date, _weekday, _weekday_and_date)
# English says the time first.
_day_and_time = template("{day} {at}", "{at} {day}", day=_day, at=mixture((0.3, _at_in_part), (1.0, _at)))
_month = template("im/1 {month}", "in/1 {month}", month=name("months"))
_month_and_year = template("im/1 {month} {year}", "in/1 {month} {year}", month=name("months"), year=year)

future = mixture(
    (0.15, template("nächsten/1 {day}", "next/1 {day}", day=name("days"))),
    (0.3, template("in/1 {span}", "in/1 {span}", span=span)),
    (
        1.0,
        phrases(
            ("morgen", "tomorrow"),
            ("übermorgen", "the day after tomorrow"),
            ("morgen früh", "tomorrow morning"),
            ("heute Abend", "tonight"),
            ("nächste Woche", "next week"),
            ("nächstes Jahr", "next year"),
            ("bald", "soon"),
        ),
    ),
)
past = mixture(
    (0.15, template("letzten/1 {day}", "last/1 {day}", day=name("days"))),
    (0.4, template("vor/1 {span}", "{span} ago/1", span=span)),
    (0.55, _month_and_year),
    (
        1.0,
        phrases(
            ("gestern", "yesterday"),
            ("vorgestern", "the day before yesterday"),
            ("gestern Abend", "last night"),
            ("letzte Woche", "last week"),
            ("letztes Jahr", "last year"),
            ("neulich", "the other day"),
        ),
    ),
)


def when(relative):
    """A kind of phrase: a time; `relative` is `past` or `future`, for words that go with one tense only."""
    return one_of(_day, _at, _day_and_time, _day_and_time, _month, relative, relative)

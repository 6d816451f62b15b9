"""Numbers, names of the CLDR, amounts and times, in German and English, as phrases with their links."""

import functools

import babel
import babel.dates
import babel.numbers
import babel.units

from applications.nmt.embedded.synchronous import NOTHING, pick, rule, word_by_word

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


def year_phrase(generator):
    if generator.random() < 0.7:
        return rule("neunzehn/1 hundert/1 {n}", "nineteen/1 {n}", n=cardinal(int(generator.integers(10, 100))))
    return rule("zwei/1 tausend/1 {n}", "twenty/1 {n}", n=cardinal(int(generator.integers(10, 30))))


def count(generator):
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
    return cardinal(int(number))


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

    def months(locale):
        return babel.dates.get_month_names("wide", locale=locale)

    def days(locale):
        return babel.dates.get_day_names("wide", locale=locale)

    def unit(key):
        # "2 Kilometer": the pattern of the plural.
        forms = (babel.units.format_unit(2, key, "long", locale=locale) for locale in (german, english))
        return word_by_word(*(form.removeprefix("2 ") for form in forms))

    def city(zone):
        fallback = zone.split("/")[1]
        return word_by_word(*(locale.time_zones.get(zone, {}).get("city", fallback) for locale in (german, english)))

    return {
        "months": tuple(word_by_word(months(german)[number], months(english)[number]) for number in range(1, 13)),
        "days": tuple(word_by_word(days(german)[number], days(english)[number]) for number in range(7)),
        "currencies": tuple(
            word_by_word(*(babel.numbers.get_currency_name(code, 2, locale) for locale in (german, english)))
            for code in _CURRENCIES
        ),
        "units": {key: unit(key) for key in LENGTHS + WEIGHTS + DURATIONS + ("temperature-celsius",)},
        "places": tuple(word_by_word(german.territories[code], english.territories[code]) for code in _COUNTRIES)
        + tuple(map(city, CITIES)),
        "cities": tuple(map(city, CITIES)),
        "parts": tuple(
            (word_by_word(german.day_periods["format"]["wide"][a], english.day_periods["format"]["wide"][b]), hours)
            for a, b, hours in _DAY_PARTS
        ),
    }


def name_phrase(generator, kind):
    return pick(generator, names()[kind])


def unit_phrase(generator, keys):
    return names()["units"][pick(generator, keys)]


def _dative(phrase):
    """The dative plural of a German noun."""
    word = phrase.source[-1]
    return phrase._replace(source=(*phrase.source[:-1], word if word.endswith("n") else word + "n"))


def amount_phrase(generator):
    return rule("{n} {currency}", "{n} {currency}", n=count(generator), currency=name_phrase(generator, "currencies"))


def measure_phrase(generator, keys):
    return rule("{n} {unit}", "{n} {unit}", n=count(generator), unit=unit_phrase(generator, keys))


def span_phrase(generator):
    """A short while, in the dative: *drei Tagen*."""
    number = cardinal(int(generator.integers(2, 60)))
    return rule("{n} {unit}", "{n} {unit}", n=number, unit=_dative(unit_phrase(generator, DURATIONS)))


# Times.


def clock_phrase(generator, hours=tuple(range(1, 13))):
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
    if generator.random() < 0.5:
        return rule(f"{{minutes}} nach/1 {inflected}/2", f"{{minutes}} past/1 {english}/2", minutes=minutes)
    return rule(f"{{minutes}} vor/1 {inflected}/2", f"{{minutes}} to/1 {english}/2", minutes=minutes)


def _at(generator, with_part=False):
    """*um halb fünf*, at half past four; with the part of the day, before or after in German."""
    if not with_part:
        return rule("um/1 {clock}", "at/1 {clock}", clock=clock_phrase(generator))
    part, hours = pick(generator, names()["parts"])
    source = "{part} um/1 {clock}" if generator.random() < 0.5 else "um/1 {clock} {part}"
    return rule(source, "at/1 {clock} {part}", clock=clock_phrase(generator, hours), part=part)


def month_and_day(generator, nominative=False):
    month = int(generator.integers(12))
    day = int(generator.integers(1, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month] + 1))
    return names()["months"][month], ordinal(day, nominative)


def date_phrase(generator):
    """*am dritten Mai*, on May the third."""
    month, day = month_and_day(generator)
    return rule("am/1 {day} {month}", "on/1 {month} the/1 {day}", day=day, month=month)


def _weekday(generator):
    return rule("am/1 {day}", "on/1 {day}", day=name_phrase(generator, "days"))


def _weekday_and_date(generator):
    """*am Donnerstag , dem dritten Mai*; the date loses its own *am*."""
    month, day = month_and_day(generator)
    return rule(
        "am/1 {weekday} ,/2 dem/3 {day} {month}",
        "on/1 {weekday} ,/2 {month} the/3 {day}",
        weekday=name_phrase(generator, "days"),
        day=day,
        month=month,
    )


def _day(generator):
    return pick(generator, (date_phrase, date_phrase, _weekday, _weekday_and_date))(generator)


def _day_and_time(generator):
    # English says the time first.
    return rule("{day} {at}", "{at} {day}", day=_day(generator), at=_at(generator, with_part=generator.random() < 0.3))


def _month(generator):
    return rule("im/1 {month}", "in/1 {month}", month=name_phrase(generator, "months"))


def _month_and_year(generator):
    return rule(
        "im/1 {month} {year}",
        "in/1 {month} {year}",
        month=name_phrase(generator, "months"),
        year=year_phrase(generator),
    )


def _ago(generator):
    return rule("vor/1 {span}", "{span} ago/1", span=span_phrase(generator))


def _hence(generator):
    return rule("in/1 {span}", "in/1 {span}", span=span_phrase(generator))


_FUTURE = (
    word_by_word("morgen", "tomorrow"),
    word_by_word("übermorgen", "the day after tomorrow"),
    word_by_word("morgen früh", "tomorrow morning"),
    word_by_word("heute Abend", "tonight"),
    word_by_word("nächste Woche", "next week"),
    word_by_word("nächstes Jahr", "next year"),
    word_by_word("bald", "soon"),
)
_PAST = (
    word_by_word("gestern", "yesterday"),
    word_by_word("vorgestern", "the day before yesterday"),
    word_by_word("gestern Abend", "last night"),
    word_by_word("letzte Woche", "last week"),
    word_by_word("letztes Jahr", "last year"),
    word_by_word("neulich", "the other day"),
)


def future(generator):
    kind = generator.random()
    if kind < 0.15:
        return rule("nächsten/1 {day}", "next/1 {day}", day=name_phrase(generator, "days"))
    if kind < 0.3:
        return _hence(generator)
    return pick(generator, _FUTURE)


def past(generator):
    kind = generator.random()
    if kind < 0.15:
        return rule("letzten/1 {day}", "last/1 {day}", day=name_phrase(generator, "days"))
    if kind < 0.4:
        return _ago(generator)
    if kind < 0.55:
        return _month_and_year(generator)
    return pick(generator, _PAST)


def when_phrase(generator, relative):
    """A time; `relative` is `past` or `future`, for words that go with one tense only."""
    return pick(generator, (_day, _at, _day_and_time, _day_and_time, _month, relative, relative))(generator)

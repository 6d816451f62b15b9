"""Writes the pairs that ship with applications.ved: statements of facts from the CLDR, and questions about the facts.

    python -m tools.make_ved_questions applications/ved/embedded.tsv.gz

This tool reads the CLDR with Babel, which the programs do not need. The shipped file was written with Babel 2.18.0
and CLDR 47. Other versions may contain different facts. The phrasing is ours.

A fact is (kind, first key, second key, answer), such as ("name", Germany, French, Allemagne). A statement contains
both keys and the answer. A question contains both keys, but never the answer. A model can therefore write a question
by copying two names from the statement. Several questions fit each statement equally well.
"""

import collections
import gzip
import pathlib
import sys

import babel
import babel.core
import babel.languages
import babel.localedata
import numpy as np

_ENGLISH = babel.Locale("en")
MAX_STATEMENT_TOKENS = 16
# Maximum number of countries; those with the most facts are used.
NUM_TERRITORIES = 64
# Minimum number of statements that contain a word of `first` or `second`. A model cannot learn rarer words.
MIN_KEY_OCCURRENCES = 20

# Languages in Latin script. Many of them use the same name for a country, so words recur.
# fmt: off
_NAMING_LANGUAGES = (
    "ca", "cs", "da", "de", "es", "eu", "fr", "gl", "hr", "id",
    "hu", "it", "nl", "pl", "pt", "ro", "sk", "sl", "sv", "tr",
)
# fmt: on

_STATEMENTS = {
    "name": (
        "In {second} , {first} is called {answer} .",
        "The {second} name of {first} is {answer} .",
        "{answer} is the {second} word for {first} .",
    ),
    "speakers": (
        "About {answer} percent of the people in {first} speak {second} .",
        "In {first} , {second} is the language of {answer} percent .",
        "{second} is spoken by {answer} percent in {first} .",
    ),
    "currency": (
        "In {second} , the money of {first} is {answer} .",
        "The {second} name for the money of {first} is {answer} .",
        "{answer} is how you say the money of {first} in {second} .",
    ),
    "script": (
        "In {first} , {second} is written in the {answer} script .",
        "People who write {second} in {first} use {answer} letters .",
    ),
    "week": (
        "In {first} , the {second} is {answer} .",
        "{answer} is the {second} in {first} .",
    ),
}

_QUESTIONS = {
    "name": (
        "What is {first} called in {second} ?",
        "How do you say {first} in {second} ?",
        "Which {second} word means {first} ?",
        "In {second} , what is the name of {first} ?",
        "By what name is {first} known in {second} ?",
    ),
    "speakers": (
        "How many people in {first} speak {second} ?",
        "What share of {first} speaks {second} ?",
        "In {first} , how common is {second} ?",
        "Is {second} widely spoken in {first} ?",
        "Who speaks {second} in {first} ?",
    ),
    "currency": (
        "What is the money of {first} called in {second} ?",
        "How do you say the money of {first} in {second} ?",
        "Which {second} word means the money of {first} ?",
        "In {second} , what is the name of the money of {first} ?",
        "By what name is the money of {first} known in {second} ?",
    ),
    "script": (
        "Which script is used for {second} in {first} ?",
        "How is {second} written in {first} ?",
        "What letters does {second} have in {first} ?",
        "In {first} , which alphabet has {second} ?",
        "With what script do people in {first} write {second} ?",
    ),
    "week": (
        "What is the {second} in {first} ?",
        "Which day is the {second} in {first} ?",
        "In {first} , when is the {second} ?",
        "When do people in {first} have the {second} ?",
        "On what day does {first} have its {second} ?",
    ),
}


def rows():
    """Return a list of pairs (statement, question), which is the same on every machine.

    There are about 3,000 statements, each paired with five questions.
    """
    generator = np.random.default_rng(0)
    facts = sorted(_names() + _speakers() + _currencies() + _scripts() + _weeks())
    count = collections.Counter(first for _, first, *_ in facts)
    territories = sorted(count, key=lambda name: (-count[name], name))[:NUM_TERRITORIES]
    statements = [(*fact, _statement(fact, generator)) for fact in facts if fact[1] in territories]
    return [
        (statement, template.format(first=first, second=second))
        for kind, first, second, _, statement in _frequent(statements)
        for template in _QUESTIONS[kind]
    ]


def _statement(fact, generator):
    kind, first, second, answer = fact
    templates = _STATEMENTS[kind]
    return templates[generator.integers(len(templates))].format(first=first, second=second, answer=answer)


def _frequent(rows):
    """Remove long statements. Then remove statements with rare keys, until all keys are frequent."""
    frequent = [row for row in rows if len(row[-1].split()) <= MAX_STATEMENT_TOKENS]
    rows = []
    while len(frequent) != len(rows):
        rows = frequent
        count = collections.Counter(word for row in rows for word in _words(*row[1:3]))
        frequent = [row for row in rows if all(count[word] >= MIN_KEY_OCCURRENCES for word in _words(*row[1:3]))]
    return rows


def _words(*names):
    return {word for name in names for word in name.lower().split()}


def _territories():
    """Return a dictionary that maps two-letter codes to one-word names of countries. Codes that begin with X or Z
    are skipped, because XA and ZZ are not countries. This also skips Zambia (ZM), Zimbabwe (ZW) and Kosovo (XK)."""
    names = {code: _plain(name) for code, name in sorted(_ENGLISH.territories.items())}
    return {code: name for code, name in names.items() if len(code) == 2 and code[0] not in "XZ" and " " not in name}


def _language(code):
    return _plain(_ENGLISH.languages.get(code, ""))


def _plain(name):
    """Replace punctuation in a name with spaces: each mark would be a separate token."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in name).split())


def _names():
    return _in_languages("name", "territories", {code: code for code in _territories()})


def _currencies():
    codes = {}
    for territory in _territories():
        for code, _, end, is_tender in babel.core.get_global("territory_currencies").get(territory, []):
            if is_tender and not end:
                codes[territory] = code
    return _in_languages("currency", "currencies", codes)


def _in_languages(kind, table, codes):
    """Return facts (kind, territory, language, answer), without answers that are equal in English."""
    facts = []
    for language in _NAMING_LANGUAGES:
        names = getattr(babel.Locale(language), table)
        for territory, code in codes.items():
            answer = _plain(names.get(code, ""))
            if answer not in ("", _plain(getattr(_ENGLISH, table)[code])):
                facts.append((kind, _territories()[territory], _language(language), answer))
    return facts


def _speakers():
    facts = []
    for code, territory in _territories().items():
        for language, entry in babel.languages.get_territory_language_info(code).items():
            percent = round(entry["population_percent"])
            if percent >= 1 and _language(language):
                facts.append(("speakers", territory, _language(language), str(percent)))
    return facts


def _scripts():
    territories, facts = _territories(), set()
    for tag in babel.core.get_global("likely_subtags").values():
        language, _, rest = tag.partition("_")
        script, _, code = rest.partition("_")
        if code in territories and _language(language) and script in _ENGLISH.scripts:
            facts.add(("script", territories[code], _language(language), _plain(_ENGLISH.scripts[script])))
    return list(facts)


def _weeks():
    territories, days, facts = _territories(), _ENGLISH.days["format"]["wide"], set()
    for identifier in babel.localedata.locale_identifiers():
        locale = babel.Locale.parse(identifier)
        if locale.territory in territories:
            territory = territories[locale.territory]
            facts.add(("week", territory, "first day of the week", days[locale.first_week_day]))
            facts.add(("week", territory, "first day of the weekend", days[locale.weekend_start]))
            facts.add(("week", territory, "last day of the weekend", days[locale.weekend_end]))
    return list(facts)


if __name__ == "__main__":
    lines = ["\t".join(row) for row in (("source", "target"), *rows())]
    pathlib.Path(sys.argv[1]).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))

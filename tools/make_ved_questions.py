"""Writes the pairs that ship with applications.ved: facts of the CLDR, read through Babel, and questions about them.

    python -m tools.make_ved_questions applications/ved/embedded.tsv.gz

This needs Babel, the program does not. Babel 2.18.0, with the CLDR 47, wrote the file that ships; another version may
write other facts.

Every fact is (kind, first key, second key, answer), as in ("name", Germany, French, Allemagne). Its statement holds
all three; its questions hold the two keys, never the answer. So a question can be written from its statement only, by
copying two names, and several questions fit a statement equally well, which is what a variational model is for.
The facts are the CLDR's. The phrasing is ours.
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
# A question repeats the keys, so their words must be learnt; an answer is only read.
MIN_KEY_OCCURRENCES = 8
MIN_ANSWER_OCCURRENCES = 2

# Languages in Latin script whose names of countries are often spelled alike, so that the words recur.
# fmt: off
_NAMING_LANGUAGES = (
    "ca", "cs", "da", "de", "es", "eu", "fr", "gl", "hr", "id",
    "it", "nb", "nl", "pl", "pt", "ro", "sk", "sl", "sv", "tr",
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
        "Since {second} , {first} has paid with the {answer} .",
        "The {answer} became the money of {first} in {second} .",
        "In {second} , {first} introduced the {answer} .",
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
        "Which currency came to {first} in {second} ?",
        "What has {first} paid with since {second} ?",
        "How do people pay in {first} since {second} ?",
        "In {second} , which money did {first} get ?",
        "Since {second} , what is the money of {first} ?",
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
    """Return pairs of a statement, about 3,000 in all, and each of the five questions that it answers.

    The order is the same on every machine.
    """
    generator = np.random.default_rng(0)
    facts = sorted(_names() + _speakers() + _currencies() + _scripts() + _weeks())
    statements = [(*fact, _statement(fact, generator)) for fact in facts]
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
    """Drops statements that are too long or have a rare word, until every word of the rest recurs."""
    kept = [row for row in rows if len(row[-1].split()) <= MAX_STATEMENT_TOKENS]
    rows = []
    while len(kept) != len(rows):
        rows = kept
        keys = collections.Counter(word for row in rows for word in _words(*row[1:3]))
        answers = collections.Counter(word for row in rows for word in _words(*row[1:4]))
        kept = [
            row
            for row in rows
            if all(keys[word] >= MIN_KEY_OCCURRENCES for word in _words(*row[1:3]))
            and all(answers[word] >= MIN_ANSWER_OCCURRENCES for word in _words(row[3]))
        ]
    return rows


def _words(*names):
    return {word for name in names for word in name.lower().split()}


def _territories():
    """Countries by code. The two-letter codes leave out continents, and X and Z codes are not places."""
    names = _ENGLISH.territories
    return {code: _plain(names[code]) for code in sorted(names) if len(code) == 2 and code[0] not in "XZ"}


def _language(code):
    return _plain(_ENGLISH.languages.get(code, ""))


def _plain(name):
    """A name as tokens: the punctuation inside names would only make sentences longer."""
    return " ".join("".join(letter if letter.isalnum() else " " for letter in name).split())


def _names():
    facts = []
    for language in _NAMING_LANGUAGES:
        native = babel.Locale(language).territories
        for code, territory in _territories().items():
            answer = _plain(native.get(code, ""))
            if answer not in ("", territory):
                facts.append(("name", territory, _language(language), answer))
    return facts


def _speakers():
    facts = []
    for code, territory in _territories().items():
        for language, entry in babel.languages.get_territory_language_info(code).items():
            percent = round(entry["population_percent"])
            if percent >= 1 and _language(language):
                facts.append(("speakers", territory, _language(language), str(percent)))
    return facts


def _currencies():
    facts = []
    for code, territory in _territories().items():
        for currency, start, _, is_tender in babel.core.get_global("territory_currencies").get(code, []):
            # A bracket in the name tells apart historical currencies of one name, by years.
            name = _plain(_ENGLISH.currencies.get(currency, "").split("(")[0])
            if is_tender and start and name:
                facts.append(("currency", territory, str(start[0]), name))
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

"""The kinds of sentence of the embedded corpus."""

import functools

from tools.nmt_pairs.lexicon import (
    EVENTS,
    GOODS,
    GOODS_ACCUSATIVE,
    INTENTIONS,
    MATRIX,
    MODALS,
    PEOPLE,
    SIZES,
    scene,
)
from tools.nmt_pairs.quantities import (
    CITIES,
    DURATIONS,
    LENGTHS,
    WEIGHTS,
    amount,
    clock,
    count,
    date,
    future,
    measure,
    month_and_day,
    name,
    names,
    number,
    part_and_clock,
    past,
    span,
    unit,
    when,
    year,
)
from tools.nmt_pairs.synchronous import NOTHING, forms, mixture, one_of, rule, template

_nominative_date = functools.partial(month_and_day, nominative=True)


def _optional(time):
    return mixture((0.5, time), (1.0, lambda generator: NOTHING))


def _past_first(generator):
    return {"when": _optional(past)(generator)}


def _two_cities(generator):
    first = generator.integers(len(CITIES))
    second = (first + generator.integers(1, len(CITIES))) % len(CITIES)
    return {"first": names()["cities"][first], "second": names()["cities"][second]}


# Sentences about what happens.

_STATEMENT = template(
    (
        "{subject} {present}/1 {when} {place} {particle}/1 ./2",
        "{when} {present}/1 {subject} {place} {particle}/1 ./2",
    ),
    "{subject} {english_present}/1 {place} {when} ./2",
    scene,
    when=when(future),
)
_MODAL = template(
    (
        "{subject} {german}/1 {when} {place} {infinitive}/2 ./3",
        "{when} {german}/1 {subject} {place} {infinitive}/2 ./3",
    ),
    "{subject} {english}/1 {english_base}/2 {place} {when} ./3",
    scene,
    forms("german english", MODALS),
    when=when(future),
)
_PERFECT = template(
    (
        "{subject} {auxiliary}/1? {when} {place} {participle}/1 ./2",
        "{when} {auxiliary}/1? {subject} {place} {participle}/1 ./2",
    ),
    "{subject} {english_past}/1 {place} {when} ./2",
    scene,
    when=when(past),
)
_SUBORDINATE = template(
    "{matrix} ,/1? dass/1 {subject} {when} {place} {particle}{present}/2 ./3",
    "{matrix} that/1 {subject} {english_present}/2 {place} {when} ./3",
    scene,
    matrix=MATRIX,
    when=when(future),
)
_QUESTION = template(
    "{present}/1 {subject} {when} {place} {particle}/1 ?/2",
    "does/1? {subject} {english_base}/1 {place} {when} ?/2",
    scene,
    when=when(future),
)
_PAST_QUESTION = template(
    "{auxiliary}/1 {subject} {when} {place} {participle}/2 ?/3",
    "did/1 {subject} {english_base}/2 {place} {when} ?/3",
    scene,
    when=when(past),
)


def _question_of_time(generator):
    parts = scene(generator, with_place=True)
    if generator.random() < 0.5:
        source = "wann/1 {present}/2 {subject} {place} {particle}/2 ?/3"
        target = "when/1 does/2? {subject} {english_base}/2 {place} ?/3"
    else:
        source = "wann/1 {auxiliary}/2 {subject} {place} {participle}/4 ?/3"
        target = "when/1 did/2 {subject} {english_base}/4 {place} ?/3"
    return rule(source, target, **parts)


# Sentences about dates and times.

_BIRTH = template(
    (
        "{person} wurde/1 {date} {year} in/2 {place} geboren/3 ./4",
        "{date} {year} wurde/1 {person} in/2 {place} geboren/3 ./4",
    ),
    "{person} was/1 born/3 in/2 {place} {date} {year} ./4",
    person=PEOPLE,
    place=name("places"),
    date=date,
    year=year,
)
_TODAY = template(
    "heute/1 ist/2 {weekday} ,/3 der/4 {day} {month} ./5",
    "today/1 is/2 {weekday} ,/3 {month} the/4 {day} ./5",
    _nominative_date,
    weekday=name("days"),
)
_FALL = template(
    "der/1 {day} {month} fällt/2 auf/3 einen/4 {weekday} ./5",
    "{month} the/1 {day} falls/2 on/3 a/4 {weekday} ./5",
    _nominative_date,
    weekday=name("days"),
)
_NOW = one_of(
    template("es/1 ist/2 {clock} ./3", "it/1 is/2 {clock} ./3", clock=clock),
    template("es/1 ist/2 {clock} {part} ./3", "it/1 is/2 {clock} {part} ./3", part_and_clock),
    template("ist/2 es/1 schon/4 {clock} ?/3", "is/2 it/1 already/4 {clock} ?/3", part_and_clock),
)
_LENGTH_OF_TIME = mixture(
    (0.2, template("anderthalb/1 {unit}", "one/1 and/1 a/1 half/1 {unit}", unit=unit(DURATIONS[1:]))),
    (1.0, measure(DURATIONS)),
)


def _duration(generator):
    parts = {"span": _LENGTH_OF_TIME(generator), "event": EVENTS(generator)}
    if generator.random() < 0.5:
        return rule("{event} hat/1? {span} gedauert/1 ./2", "{event} lasted/1 {span} ./2", **parts)
    return rule("{event} wird/1 {span} dauern/2 ./3", "{event} will/1 last/2 {span} ./3", **parts)


_RESIDENCE = template(
    (
        "seit/1 {span} wohnt/2 {person} in/3 {place} ./4",
        "{person} wohnt/2 seit/1 {span} in/3 {place} ./4",
    ),
    "{person} has/2? lived/2 in/3 {place} for/1 {span} ./4",
    span=span,
    person=PEOPLE,
    place=name("places"),
)

# Sentences about amounts.

_PAYMENT = template(
    (
        "{person} hat/1? {when} für/2 {thing} {amount} bezahlt/1 ./3",
        "{amount} hat/1? {person} {when} für/2 {thing} bezahlt/1 ./3",
        "{when} hat/1? {person} {amount} für/2 {thing} bezahlt/1 ./3",
    ),
    "{person} paid/1 {amount} for/2 {thing} {when} ./3",
    _past_first,
    person=PEOPLE,
    thing=GOODS_ACCUSATIVE,
    amount=amount,
)
_TRADE = template(
    (
        "{thing} hat/1? {person} {when} für/2 {amount} {german}/1 ./3",
        "{person} hat/1? {thing} {when} für/2 {amount} {german}/1 ./3",
        "{when} hat/1? {person} {thing} für/2 {amount} {german}/1 ./3",
    ),
    "{person} {english}/1 {thing} for/2 {amount} {when} ./3",
    forms("german english", (("verkauft", "sold"), ("gekauft", "bought"), ("versteigert", "auctioned"))),
    _past_first,
    person=PEOPLE,
    thing=GOODS_ACCUSATIVE,
    amount=amount,
)
_PLAN = template(
    "{person} {german}/1 {thing} {when} für/2 {amount} {infinitive}/3 ./4",
    "{person} {english}/1 {base}/3 {thing} for/2 {amount} {when} ./4",
    forms("german english", INTENTIONS),
    forms("infinitive base", (("verkaufen", "sell"), ("kaufen", "buy"))),
    person=PEOPLE,
    thing=GOODS_ACCUSATIVE,
    amount=amount,
    when=_optional(future),
)
_SALE = template(
    (
        "{thing} ist/1 {when} für/2 {amount} verkauft/3 worden/1 ./4",
        "{when} ist/1 {thing} für/2 {amount} verkauft/3 worden/1 ./4",
    ),
    "{thing} was/1 sold/3 for/2 {amount} {when} ./4",
    thing=GOODS,
    amount=amount,
    when=past,
)


def _price(generator):
    parts = {"thing": GOODS(generator), "amount": amount(generator)}
    if generator.random() < 0.5:
        return rule("{thing} kostet/1 {amount} ./2", "{thing} costs/1 {amount} ./2", **parts)
    return rule(
        "seit/1 {month} kostet/2 {thing} {amount} ./3",
        "{thing} has/2? cost/2 {amount} since/1 {month} ./3",
        month=name("months")(generator),
        **parts,
    )


_WEIGHT = template(
    "{thing} ist/1 {measure} schwer/1 ./2",
    "{thing} weighs/1 {measure} ./2",
    thing=GOODS,
    measure=measure(WEIGHTS),
)
_SIZE = template(
    "{thing} ist/1 {measure} {german}/2 ./3",
    "{thing} is/1 {measure} {english}/2 ./3",
    forms("thing german english", SIZES),
    measure=measure(LENGTHS),
)
_DISTANCE = template(
    "von/1 {first} bis/2 {second} sind/3 es/4 {n} {unit} ./5",
    "it/4 is/3 {n} {unit} from/1 {first} to/2 {second} ./5",
    _two_cities,
    n=count,
    unit=unit(("length-kilometer",)),
)
_TEMPERATURE = template(
    (
        "in/1 {place} sind/2 es/3 heute/4 {n} {unit} ./5",
        "heute/4 sind/2 es/3 in/1 {place} {n} {unit} ./5",
    ),
    "it/3 is/2 {n} {unit} in/1 {place} today/4 ./5",
    place=name("places"),
    n=number(2, 45),
    unit=unit(("temperature-celsius",)),
)

# fmt: off
SENTENCES = (
    _STATEMENT, _STATEMENT, _MODAL, _PERFECT, _PERFECT, _SUBORDINATE, _QUESTION, _PAST_QUESTION, _question_of_time,
    _BIRTH, _TODAY, _FALL, _NOW, _duration, _RESIDENCE,
    _PAYMENT, _TRADE, _PLAN, _SALE, _price, _WEIGHT, _SIZE, _DISTANCE, _TEMPERATURE,
)
# fmt: on

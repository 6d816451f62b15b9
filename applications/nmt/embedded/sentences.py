"""The kinds of sentence of the embedded corpus."""

from applications.nmt.embedded.lexicon import (
    EVENTS,
    GOODS,
    INTENTIONS,
    MATRIX,
    MODALS,
    PEOPLE,
    SIZES,
    marked,
    noun_phrase,
    scene,
)
from applications.nmt.embedded.quantities import (
    CITIES,
    DURATIONS,
    LENGTHS,
    WEIGHTS,
    amount_phrase,
    cardinal,
    clock_phrase,
    count,
    date_phrase,
    future,
    measure_phrase,
    month_and_day,
    name_phrase,
    names,
    past,
    span_phrase,
    unit_phrase,
    when_phrase,
    year_phrase,
)
from applications.nmt.embedded.synchronous import NOTHING, pick, rule

# Sentences about what happens.


def _statement(generator):
    verb, parts = scene(generator)
    source = pick(
        generator,
        (
            f"{{subject}} {verb.present}/1 {{when}} {{place}} {verb.particle}/1 ./2",
            f"{{when}} {verb.present}/1 {{subject}} {{place}} {verb.particle}/1 ./2",
        ),
    )
    target = f"{{subject}} {marked(verb.english_present, 1)} {{place}} {{when}} ./2"
    return rule(source, target, when=when_phrase(generator, future), **parts)


def _modal(generator):
    verb, parts = scene(generator)
    german, english = pick(generator, MODALS)
    source = pick(
        generator,
        (
            f"{{subject}} {german}/1 {{when}} {{place}} {verb.infinitive}/2 ./3",
            f"{{when}} {german}/1 {{subject}} {{place}} {verb.infinitive}/2 ./3",
        ),
    )
    target = f"{{subject}} {marked(english, 1)} {marked(verb.english_base, 2)} {{place}} {{when}} ./3"
    return rule(source, target, when=when_phrase(generator, future), **parts)


def _perfect(generator):
    verb, parts = scene(generator)
    source = pick(
        generator,
        (
            f"{{subject}} {verb.auxiliary}/1? {{when}} {{place}} {verb.participle}/1 ./2",
            f"{{when}} {verb.auxiliary}/1? {{subject}} {{place}} {verb.participle}/1 ./2",
        ),
    )
    target = f"{{subject}} {marked(verb.english_past, 1)} {{place}} {{when}} ./2"
    return rule(source, target, when=when_phrase(generator, past), **parts)


def _subordinate(generator):
    verb, parts = scene(generator)
    return rule(
        f"{{matrix}} ,/1? dass/1 {{subject}} {{when}} {{place}} {verb.particle}{verb.present}/2 ./3",
        f"{{matrix}} that/1 {{subject}} {marked(verb.english_present, 2)} {{place}} {{when}} ./3",
        matrix=pick(generator, MATRIX),
        when=when_phrase(generator, future),
        **parts,
    )


def _question(generator):
    verb, parts = scene(generator)
    return rule(
        f"{verb.present}/1 {{subject}} {{when}} {{place}} {verb.particle}/1 ?/2",
        f"does/1? {{subject}} {marked(verb.english_base, 1)} {{place}} {{when}} ?/2",
        when=when_phrase(generator, future),
        **parts,
    )


def _past_question(generator):
    verb, parts = scene(generator)
    return rule(
        f"{verb.auxiliary}/1 {{subject}} {{when}} {{place}} {verb.participle}/2 ?/3",
        f"did/1 {{subject}} {marked(verb.english_base, 2)} {{place}} {{when}} ?/3",
        when=when_phrase(generator, past),
        **parts,
    )


def _question_of_time(generator):
    verb, parts = scene(generator, with_place=True)
    if generator.random() < 0.5:
        source = f"wann/1 {verb.present}/2 {{subject}} {{place}} {verb.particle}/2 ?/3"
        target = f"when/1 does/2? {{subject}} {marked(verb.english_base, 2)} {{place}} ?/3"
    else:
        source = f"wann/1 {verb.auxiliary}/2 {{subject}} {{place}} {verb.participle}/4 ?/3"
        target = f"when/1 did/2 {{subject}} {marked(verb.english_base, 4)} {{place}} ?/3"
    return rule(source, target, **parts)


# Sentences about dates and times.


def _birth(generator):
    return rule(
        pick(
            generator,
            (
                "{person} wurde/1 {date} {year} in/2 {place} geboren/3 ./4",
                "{date} {year} wurde/1 {person} in/2 {place} geboren/3 ./4",
            ),
        ),
        "{person} was/1 born/3 in/2 {place} {date} {year} ./4",
        person=noun_phrase(pick(generator, PEOPLE)),
        place=name_phrase(generator, "places"),
        date=date_phrase(generator),
        year=year_phrase(generator),
    )


def _today(generator):
    month, day = month_and_day(generator, nominative=True)
    return rule(
        "heute/1 ist/2 {weekday} ,/3 der/4 {day} {month} ./5",
        "today/1 is/2 {weekday} ,/3 {month} the/4 {day} ./5",
        weekday=name_phrase(generator, "days"),
        day=day,
        month=month,
    )


def _fall(generator):
    month, day = month_and_day(generator, nominative=True)
    return rule(
        "der/1 {day} {month} fällt/2 auf/3 einen/4 {weekday} ./5",
        "{month} the/1 {day} falls/2 on/3 a/4 {weekday} ./5",
        weekday=name_phrase(generator, "days"),
        day=day,
        month=month,
    )


def _now(generator):
    kind = generator.integers(3)
    if kind == 0:
        return rule("es/1 ist/2 {clock} ./3", "it/1 is/2 {clock} ./3", clock=clock_phrase(generator))
    part, hours = pick(generator, names()["parts"])
    clock = clock_phrase(generator, hours)
    if kind == 1:
        return rule("es/1 ist/2 {clock} {part} ./3", "it/1 is/2 {clock} {part} ./3", clock=clock, part=part)
    return rule("ist/2 es/1 schon/4 {clock} ?/3", "is/2 it/1 already/4 {clock} ?/3", clock=clock)


def _duration(generator):
    if generator.random() < 0.2:
        span = rule("anderthalb/1 {unit}", "one/1 and/1 a/1 half/1 {unit}", unit=unit_phrase(generator, DURATIONS[1:]))
    else:
        span = measure_phrase(generator, DURATIONS)
    event = noun_phrase(pick(generator, EVENTS))
    if generator.random() < 0.5:
        return rule("{event} hat/1? {span} gedauert/1 ./2", "{event} lasted/1 {span} ./2", event=event, span=span)
    return rule("{event} wird/1 {span} dauern/2 ./3", "{event} will/1 last/2 {span} ./3", event=event, span=span)


def _residence(generator):
    return rule(
        pick(
            generator,
            ("seit/1 {span} wohnt/2 {person} in/3 {place} ./4", "{person} wohnt/2 seit/1 {span} in/3 {place} ./4"),
        ),
        "{person} has/2? lived/2 in/3 {place} for/1 {span} ./4",
        span=span_phrase(generator),
        person=noun_phrase(pick(generator, PEOPLE)),
        place=name_phrase(generator, "places"),
    )


# Sentences about amounts.


def _optional(generator, time):
    return time(generator) if generator.random() < 0.5 else NOTHING


def _payment(generator):
    when = _optional(generator, past)
    orders = (
        "{person} hat/1? {when} für/2 {thing} {amount} bezahlt/1 ./3",
        "{amount} hat/1? {person} {when} für/2 {thing} bezahlt/1 ./3",
        "{when} hat/1? {person} {amount} für/2 {thing} bezahlt/1 ./3",
    )
    return rule(
        pick(generator, orders if when.source else orders[:2]),
        "{person} paid/1 {amount} for/2 {thing} {when} ./3",
        person=noun_phrase(pick(generator, PEOPLE)),
        thing=noun_phrase(pick(generator, GOODS), accusative=True),
        amount=amount_phrase(generator),
        when=when,
    )


def _trade(generator):
    german, english = pick(generator, (("verkauft", "sold"), ("gekauft", "bought"), ("versteigert", "auctioned")))
    when = _optional(generator, past)
    orders = (
        f"{{thing}} hat/1? {{person}} {{when}} für/2 {{amount}} {german}/1 ./3",
        f"{{person}} hat/1? {{thing}} {{when}} für/2 {{amount}} {german}/1 ./3",
        f"{{when}} hat/1? {{person}} {{thing}} für/2 {{amount}} {german}/1 ./3",
    )
    return rule(
        pick(generator, orders if when.source else orders[:2]),
        f"{{person}} {english}/1 {{thing}} for/2 {{amount}} {{when}} ./3",
        person=noun_phrase(pick(generator, PEOPLE)),
        thing=noun_phrase(pick(generator, GOODS), accusative=True),
        amount=amount_phrase(generator),
        when=when,
    )


def _plan(generator):
    german, english = pick(generator, INTENTIONS)
    verb = pick(generator, (("verkaufen", "sell"), ("kaufen", "buy")))
    return rule(
        f"{{person}} {german}/1 {{thing}} {{when}} für/2 {{amount}} {verb[0]}/3 ./4",
        f"{{person}} {marked(english, 1)} {verb[1]}/3 {{thing}} for/2 {{amount}} {{when}} ./4",
        person=noun_phrase(pick(generator, PEOPLE)),
        thing=noun_phrase(pick(generator, GOODS), accusative=True),
        amount=amount_phrase(generator),
        when=_optional(generator, future),
    )


def _sale(generator):
    return rule(
        pick(
            generator,
            (
                "{thing} ist/1 {when} für/2 {amount} verkauft/3 worden/1 ./4",
                "{when} ist/1 {thing} für/2 {amount} verkauft/3 worden/1 ./4",
            ),
        ),
        "{thing} was/1 sold/3 for/2 {amount} {when} ./4",
        thing=noun_phrase(pick(generator, GOODS)),
        amount=amount_phrase(generator),
        when=past(generator),
    )


def _price(generator):
    thing, amount = noun_phrase(pick(generator, GOODS)), amount_phrase(generator)
    if generator.random() < 0.5:
        return rule("{thing} kostet/1 {amount} ./2", "{thing} costs/1 {amount} ./2", thing=thing, amount=amount)
    return rule(
        "seit/1 {month} kostet/2 {thing} {amount} ./3",
        "{thing} has/2? cost/2 {amount} since/1 {month} ./3",
        thing=thing,
        amount=amount,
        month=name_phrase(generator, "months"),
    )


def _weight(generator):
    return rule(
        "{thing} ist/1 {measure} schwer/1 ./2",
        "{thing} weighs/1 {measure} ./2",
        thing=noun_phrase(pick(generator, GOODS)),
        measure=measure_phrase(generator, WEIGHTS),
    )


def _size(generator):
    noun, (german, english) = pick(generator, SIZES)
    return rule(
        f"{{thing}} ist/1 {{measure}} {german}/2 ./3",
        f"{{thing}} is/1 {{measure}} {english}/2 ./3",
        thing=noun_phrase(noun),
        measure=measure_phrase(generator, LENGTHS),
    )


def _distance(generator):
    first = generator.integers(len(CITIES))
    second = (first + generator.integers(1, len(CITIES))) % len(CITIES)
    return rule(
        "von/1 {first} bis/2 {second} sind/3 es/4 {n} {unit} ./5",
        "it/4 is/3 {n} {unit} from/1 {first} to/2 {second} ./5",
        first=names()["cities"][first],
        second=names()["cities"][second],
        n=count(generator),
        unit=names()["units"]["length-kilometer"],
    )


def _temperature(generator):
    return rule(
        pick(
            generator,
            ("in/1 {place} sind/2 es/3 heute/4 {n} {unit} ./5", "heute/4 sind/2 es/3 in/1 {place} {n} {unit} ./5"),
        ),
        "it/3 is/2 {n} {unit} in/1 {place} today/4 ./5",
        place=name_phrase(generator, "places"),
        n=cardinal(int(generator.integers(2, 45))),
        unit=names()["units"]["temperature-celsius"],
    )


SENTENCES = (
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

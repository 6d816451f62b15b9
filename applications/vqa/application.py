"""Visual question answering as a program."""

import collections

import numpy as np

import keras_vattn
from applications.common.errors import InputError
from applications.common.runs import write_json
from applications.text.pairs import evenly
from applications.text.readers import read_input
from applications.vision.codec import boxes_of
from applications.vision.program import ImageApplication, answers_about
from applications.vqa import data, model, tables
from applications.vqa.options import PROGRAM
from applications.vqa.questions import read_questions
from applications.vqa.report import evaluate
from applications.vqa.serve import Answerer, answer_lines

NUM_CARDS = 6
# The figures behind the cards of a run.
CARDS = "cards.json"


class Vqa(ImageApplication):
    """Question answering about images, of Deng et al. 2018 and Fan et al. 2020."""

    program = PROGRAM
    columns = tables.COLUMNS
    curves = {"val_nll": "NLL, validation (nats)", "val_accuracy": "VQA accuracy, validation"}
    layouts = {"deng": tables.deng, "fan": tables.fan}
    module = Answerer

    def read(self, options):
        return data.load(options)

    def encode(self, options, codec, part, training=False):
        return data.EncodedPart.of(options, codec, part)

    def build(self, options, codec):
        regions = codec.regions
        return model.build(options, len(codec.vocabulary), len(codec.answers), regions.max_regions, regions.model_width)

    def read_other(self, options, evaluation):
        if evaluation.questions is None:
            return None
        questions, sources = read_questions(evaluation.questions, evaluation.annotations), data.sources_of(options)
        sources.source.rows_of(questions.images)
        return data.Part(questions, sources)

    def evaluate(self, run, part, evaluation=None):
        return evaluate(run, part, *(() if evaluation is None else (evaluation.num_draws, evaluation.feature_noise)))

    def files(self, outputs):
        questions = outputs["part"].questions
        columns = (questions.ids, questions.texts, outputs["answers"], questions.answers)
        return {"answers": ["\t".join(row) for row in zip(*columns, strict=True)]}

    def heading(self, record):
        report = record["report"]
        text = f"{report['num_questions']} {record['split']} questions, NLL of the {report['num_nll']}"
        conditions = tables.conditions(record)
        return f"{text} with a known answer" + (f"; uncertainty: {conditions}" if conditions else "")

    def example_of(self, part):
        return f"{part.questions.images[0]}\t{part.questions.texts[0]}"

    def report(self, run, part, record, outputs):
        splits = {name: encoded.questions.ids for name, encoded in run.data.items()}
        if run.options.questions.test_from_validation is not None:
            write_json(run.folder.file("split.json"), splits)
        cards = self._cards(run, part, outputs)
        write_json(run.folder.file(CARDS), {"model": run.options.model, "cards": cards})
        draw_cards({run.options.model: cards}, part, run.folder.file("cards.png"))
        return [f"{card['question']}  {card['people']}: {card['answer']} {card['probability']:.2f}" for card in cards]

    def _cards(self, run, part, outputs):
        """Return the figures behind the cards of some questions: Figure 2 of Fan et al. 2020."""
        p_values, cards = outputs["p_values"], []
        # The same questions, whether a model has p-values or not.
        sampled, _ = part.sample(run.options.reports.max_uncertain)
        chosen = sampled[evenly(len(sampled), NUM_CARDS)]
        boxes = boxes_of(run.codec.regions, part.sources, part.rows[chosen])
        images = run.codec.regions.regions_of(part.sources).ids
        for index, box in zip(chosen, boxes, strict=True):
            votes = part.questions.votes[index]
            people = collections.Counter(votes).most_common(3)
            cards.append(
                {
                    "id": part.questions.ids[index],
                    "image": images[part.rows[index]],
                    "question": part.questions.texts[index],
                    "people": ", ".join(f"{answer} {count}" for answer, count in people),
                    "answer": outputs["answers"][index],
                    "probability": float(outputs["probabilities"][index]),
                    "p": p_values.get(index),
                    "weights": outputs["weights"][index][: len(box)].tolist(),
                    "boxes": box.tolist(),
                }
            )
        return cards

    def generate(self, run, options):
        answerer, place = Answerer(run), options.input or "standard input"
        lines = [line.partition("\t") for line in read_input(options)]
        for number, (image, tab, question) in enumerate(lines, start=1):
            if not tab or not question.strip():
                raise InputError(f"{place}:{number}: expected an image, a tab and a question. Received: {image[:40]!r}")

        def answer(numbers, regions):
            return answer_lines(answerer.predict_features(*regions, [lines[number][2] for number in numbers]))

        images = [image.strip() for image, _, _ in lines]
        yield from answers_about(run.codec.regions, images, lambda: data.sources_of(run.options), place, answer)

    def words_of(self, options):
        if options.questions is None:
            return None
        return data.words_of(read_questions(options.questions, options.annotations))

    def compared(self, comparison):
        cards = {run.name: comparison.read(run, CARDS)["cards"] for run in comparison.of_first_seed}
        parts = self.read(comparison.planned[0].options)
        draw_cards(cards, parts.get("test", parts["valid"]), comparison.folder / "cards.png")
        return []


def draw_cards(of_models, part, path):
    """Draw where models looked, with their answers, into a PNG: a row for each question, a panel for each model.

    The cards are a dictionary from the names of models; the questions that all models have are drawn.
    """
    # A card without boxes cannot be drawn.
    by_id = {name: {card["id"]: card for card in cards if np.any(card["boxes"])} for name, cards in of_models.items()}
    ids = [each for each in next(iter(by_id.values())) if all(each in cards for cards in by_id.values())]
    source = part.sources.images
    if source is None or not ids:
        return
    panels = []
    for name, card in ((name, cards[each]) for each in ids for name, cards in by_id.items()):
        p = "" if card["p"] is None else f", p = {card['p']:.3f}"
        said = f"{name}: {card['answer']} {card['probability']:.2f}{p}"
        title = f"{card['question']}\npeople: {card['people']}\n{said}"
        panels.append((source.read(source.rows_of([card["image"]])[0]), card["weights"], card["boxes"], title))
    panels_per_row = len(of_models) if len(of_models) > 1 else 3
    keras_vattn.plots.image_attention(*map(list, zip(*panels)), panels_per_row=panels_per_row, path=path)


APPLICATION = Vqa()

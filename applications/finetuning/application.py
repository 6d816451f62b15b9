"""The fine-tuning of a pretrained transformer as a program."""

import numpy as np
import tensorflow as tf

from applications.common.application import Application
from applications.common.errors import InputError
from applications.finetuning import data, model, spans, tables
from applications.finetuning.evaluation import evaluate, predicted_spans
from applications.finetuning.generation import Predictor
from applications.finetuning.options import PROGRAM, TASKS
from applications.text.readers import read_input

# Examples in report.txt, and lines of a batch of `predict`.
NUM_SHOWN, BATCH = 5, 64


class Finetuning(Application):
    """ALBERT and BERT with drawn attention, of Fan et al. 2020, section 4.5."""

    program = PROGRAM
    columns = tables.COLUMNS

    def read(self, options):
        return data.load(options)

    def load_codec(self, options, folder):
        return data.Codec.load(folder)

    def encode(self, options, codec, part, training=False):
        return data.encoded(options, codec, part)

    def build(self, options, codec):
        return model.build(options, codec.backbone, codec.labels)

    def read_other(self, options, evaluation):
        return None if evaluation.data is None else data.read(evaluation.data, options.texts)

    def evaluate(self, run, part, evaluation=None):
        return evaluate(run, part, None if evaluation is None else evaluation.num_draws)

    def files(self, outputs):
        part, answers = outputs["part"].part, outputs["answers"]
        if isinstance(part, spans.Questions):
            rows = zip(part.ids, part.questions, answers, strict=True)
            return {"answers": ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]}
        columns = [part.firsts, *([] if part.seconds is None else [part.seconds]), map(str, part.labels), answers]
        return {"answers": ["\t".join(row) for row in zip(*columns, strict=True)]}

    def heading(self, record):
        report = record["report"]
        examples = f"{report['num_examples']} {record['split']} examples"
        draws = report.get("draws")
        return examples if draws is None else f"{examples}; {draws['num_draws']} draws of the attention"

    def example_of(self, part):
        texts = part.part
        if isinstance(texts, spans.Questions):
            return f"{texts.questions[0]}\t{' '.join(texts.contexts[0].split())}"
        return texts.firsts[0] if texts.seconds is None else f"{texts.firsts[0]}\t{texts.seconds[0]}"

    def report(self, run, part, record, outputs):
        unknown = outputs.get("unknown")
        if unknown is None:
            return []
        texts, lines = part.part, ["the examples that the model knows least of, by its draws:"]
        for row in np.argsort(-unknown)[:NUM_SHOWN]:
            example = texts.firsts[row] if texts.seconds is None else f"{texts.firsts[row]} | {texts.seconds[row]}"
            lines.append(f"{texts.labels[row]}, predicted {outputs['answers'][row]}: {example}")
        return lines

    def generate(self, run, options):
        kind, pairs, place = TASKS[run.options.texts.task].kind, run.codec.pairs, options.input or "standard input"
        rows = [line.split("\t") for line in read_input(options)]
        for number, row in enumerate(rows, start=1):
            if not any(cell.strip() for cell in row):
                raise InputError(f"{place}:{number}: the line is empty.")
            if len(row) != 1 + pairs or not all(cell.strip() for cell in row):
                wanted = "two texts with a tab between them" if pairs else "a text"
                raise InputError(f"{place}:{number}: expected {wanted}. Received: {len(row)} columns")
        predictor = None if kind == "span" else Predictor(run)
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            if kind == "span":
                questions = spans.Questions([""] * len(batch), *zip(*batch), [[]] * len(batch))
                yield from predicted_spans(run, self.encode(run.options, run.codec, questions))
                continue
            answers = predictor.predict(*(tf.constant(column) for column in zip(*batch)))
            if kind == "score":
                yield from (f"{score:.4f}" for score in answers["scores"].numpy())
                continue
            for label, probabilities in zip(answers["labels"].numpy(), answers["probabilities"].numpy(), strict=True):
                yield f"{label.decode()}\t{probabilities.max():.4f}"

    def endpoints(self, run, options=None):
        if TASKS[run.options.texts.task].kind == "span":
            return None
        predictor = Predictor(run)
        return predictor, predictor.names


APPLICATION = Finetuning()

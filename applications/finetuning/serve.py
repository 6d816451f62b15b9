"""Classify or score texts with a fine-tuned model. `Predictor` can be exported as a SavedModel.

Shapes: B texts, C classes, S samples.
"""

import tensorflow as tf

from applications.common.errors import InputError
from applications.common.progress import progress
from applications.common.serving import Untracked, in_graph, noise_of, with_names
from applications.finetuning import spans
from applications.finetuning.data import encode, own_length, padded
from applications.finetuning.options import TASKS
from applications.text.readers import aligned, has_word, read_input

BATCH = 64


class Predictor(tf.Module):
    """Exports `predict` and, with stochastic attention or dropout, `sample`. Span tasks cannot be exported."""

    def __init__(self, run):
        super().__init__(name="predictor")
        model = run.models.training
        self.encoder = run.codec.encoder
        self.variables_of_model = [variable.value for variable in model.variables]
        self._model = Untracked(model)
        self._labels = None if run.codec.labels is None else tf.constant(run.codec.labels)
        self._noise = Untracked(noise_of(model, run.options.backbone.drops))
        names = ("texts", "pairs") if run.codec.pairs else ("texts",)
        strings, integer = [tf.TensorSpec([None], tf.string)] * len(names), tf.TensorSpec([], tf.int32)
        predict = with_names(lambda *texts: self._answers(self._outputs(self._inputs(texts))), *names)
        sample = with_names(lambda *arguments: self._sample(*arguments), *names, "num_samples", "seed")
        self.predict = in_graph(*strings)(predict)
        self.sample = in_graph(*strings, integer, integer)(sample)

    @property
    def names(self):
        """Names of the endpoints; the first is the default."""
        return ("predict",) if self._noise.value is None else ("predict", "sample")

    def _inputs(self, texts):
        ids, num_first, _ = self.encoder.encode(*texts)
        return padded(ids, num_first, own_length(ids, self.encoder.max_length))

    def _outputs(self, inputs):
        outputs = self._model.value(inputs, training=False)
        return outputs if self._labels is None else tf.nn.softmax(outputs)

    def _answers(self, outputs):
        if self._labels is None:
            return {"scores": outputs}
        return {"probabilities": outputs, "labels": tf.gather(self._labels, tf.argmax(outputs, axis=1))}

    def _sample(self, *arguments):
        """Return the mean of S predictions, the standard deviation "sd" and all "draws" (S, B, ...)."""
        *texts, num_samples, seed = arguments
        draws = self._noise.value.draws(self._outputs, self._inputs(texts), num_samples, seed)
        return self._answers(tf.reduce_mean(draws, axis=0)) | {"draws": draws, "sd": tf.math.reduce_std(draws, axis=0)}


def logits_of(run, part):
    """Return the outputs of the model for each batch of a split, without sampling."""
    predict = run.models.training.predict_on_batch
    return [predict(inputs) for inputs, _ in progress(part.batches(run.options), "predicting")]


def predicted_spans(run, part):
    """Return the answer to each question, or "" for no answer."""
    batches = [tf.nn.log_softmax(logits, axis=1).numpy() for logits in logits_of(run, part)]
    scores = [window for batch in batches for window in batch]
    return spans.best_spans(part, scores, run.options.texts.task == "squad2")


def generate(run, options):
    lines, pairs, rows = read_input(options), run.codec.pairs, []
    for number, line in enumerate(lines, start=1):
        if not has_word(line):
            continue
        row = line.split("\t")
        if len(row) != 1 + pairs or not all(map(has_word, row)):
            expected = "two texts separated by a tab" if pairs else "a text"
            received = "an empty text" if len(row) == 1 + pairs else f"{len(row)} columns"
            position = f"{options.input or 'standard input'}:{number}"
            raise InputError(f"{position}: expected {expected}. Received: {received}")
        rows.append(row)
    yield from aligned(lines, _answers(run, rows) if rows else ())


def _answers(run, rows):
    if TASKS[run.options.texts.task].kind == "span":
        questions, contexts = zip(*rows)
        part = spans.Questions([""] * len(rows), questions, contexts, [[]] * len(rows))
        yield from predicted_spans(run, encode(run.options, run.codec, part))
        return
    predictor = Predictor(run)
    for start in range(0, len(rows), BATCH):
        answers = predictor.predict(*map(tf.constant, zip(*rows[start : start + BATCH])))
        if run.codec.labels is None:
            yield from (f"{score:.4f}" for score in answers["scores"].numpy())
            continue
        for label, probabilities in zip(answers["labels"].numpy(), answers["probabilities"].numpy(), strict=True):
            yield f"{label.decode()}\t{probabilities.max():.4f}"


def endpoints(run, options=None):
    if TASKS[run.options.texts.task].kind == "span":
        return None
    predictor = Predictor(run)
    return predictor, predictor.names

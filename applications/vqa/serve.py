"""Answer questions about images or precomputed features. `Answerer` can be exported as a SavedModel.

Shapes: B questions, R regions of width D, V answers in the vocabulary, S samples.
"""

import tensorflow as tf

from applications.common.errors import InputError
from applications.common.serving import Untracked, noise_of
from applications.text.readers import has_word, read_input
from applications.vision.program import INTEGER, STRINGS, ImageModule, answers_about
from applications.vqa.data import sources_of
from keras_vattn.metrics.in_graph import entropy, predictive_statistics

NUM_ANSWERS = 5


class Answerer(ImageModule):
    """The exported endpoints of a `Run`: `predict`, and `sample` for stochastic models."""

    def __init__(self, run):
        models = run.models
        super().__init__("answerer", run, models.prediction)
        self.answers = tf.constant(run.codec.answers)
        self._length = run.options.questions.max_question_length
        self._blind = run.options.questions.control == "question_only"
        self._noise = Untracked(noise_of(models.drawn or models.prediction, run.options.dropout > 0))
        self.add_endpoint("predict", STRINGS)
        if self._noise.value is not None:
            self.add_endpoint("sample", STRINGS, INTEGER, INTEGER)

    def _inputs(self, regions, num_regions, questions):
        words = self.text_encoder.encode(questions, self._length)
        words = tf.pad(words, [[0, 0], [0, self._length - tf.shape(words)[1]]])
        return {
            "regions": tf.zeros_like(regions) if self._blind else regions,
            "num_regions": num_regions,
            "question": tf.ensure_shape(words, [None, self._length]),
        }

    def _predict(self, regions, num_regions, questions):
        predicted = self._models.value.prediction(self._inputs(regions, num_regions, questions), training=False)
        return self._best(tf.exp(predicted["log_probabilities"])) | {"weights": predicted["weights"]}

    def _best(self, probabilities):
        """Return the most probable answers, given probabilities (B, V), and the entropy in nats."""
        best = tf.math.top_k(probabilities, min(NUM_ANSWERS, len(self.answers)))
        return {
            "answers": tf.gather(self.answers, best.indices),
            "probabilities": best.values,
            "entropy": entropy(probabilities),
        }

    def _sample(self, regions, num_regions, questions, num_samples, seed):
        """Return the best answers, the entropy and mutual information in nats, and "draws".

        The probabilities are the mean of S samples. "draws" contains the best answer of each sample, (B, S).
        """
        noise, inputs = self._noise.value, self._inputs(regions, num_regions, questions)
        predict = lambda inputs: tf.exp(noise.model(inputs, training=False)["log_probabilities"])  # noqa: E731
        draws = noise.draws(predict, inputs, num_samples, seed)
        statistics = predictive_statistics(draws)
        answers = tf.gather(self.answers, tf.argmax(draws, axis=-1))
        return self._best(statistics["mean"]) | {
            "mutual_information": statistics["mutual_information"],
            "draws": tf.transpose(answers),
        }


def answer_lines(predicted):
    """Yield one line per question: the three best answers with their probabilities. `predicted` contains the outputs of
    `predict`."""
    for answers, probabilities in zip(predicted["answers"].numpy(), predicted["probabilities"].numpy(), strict=True):
        pairs = list(zip(answers, probabilities, strict=True))[:3]
        yield "\t".join(f"{answer.decode()} {probability:.3f}" for answer, probability in pairs)


def generate(run, options):
    """Yield the answers to each input line. A line contains an image, a tab and a question."""
    answerer, origin = Answerer(run), options.input or "standard input"
    lines = [line.partition("\t") if has_word(line) else ("", "", "") for line in read_input(options, is_text=False)]
    for number, (image, tab, question) in enumerate(lines, start=1):
        if image + tab + question and not (has_word(image) and has_word(question)):
            received = f"{image}{tab}{question}"[:40]
            raise InputError(f"{origin}:{number}: expected an image, a tab and a question. Received: {received!r}")

    def answer(numbers, regions):
        return answer_lines(answerer.predict_features(*regions, [lines[number][2] for number in numbers]))

    images = [image.strip() for image, _, _ in lines]
    answers = answers_about(run.codec.regions, images, lambda: sources_of(run.options), origin, answer)
    yield from (text or "" for text in answers)


def endpoints(run, options=None):
    answerer = Answerer(run)
    return answerer, answerer.names

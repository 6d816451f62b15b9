"""Answering with a trained model, as an exportable module: images or features and questions in, answers out.

Shapes: B questions, R regions, D width of their features, A answers that are returned, S draws.
"""

import tensorflow as tf

import keras_vattn
from applications.common.serving import Untracked, in_graph

NUM_ANSWERS = 5

_STRINGS = tf.TensorSpec([None], tf.string)
_INTEGER = tf.TensorSpec([], tf.int32)


class Answerer(tf.Module):
    """What is exported. `predict` and `sample` take encoded images, where the features that the model was trained on
    can be made of them, and features otherwise.

    Args:
        run: `Run`.
    """

    def __init__(self, run):
        super().__init__(name="answerer")
        models, codec = run.models, run.codec
        self.text_encoder = codec.words
        self.answers = tf.constant(codec.answers)
        self.variables_of_model = [variable.value for variable in models.prediction.variables]
        extractor = codec.regions.extractor
        self.variables_of_extractor = [] if extractor is None else [variable.value for variable in extractor.variables]
        self._models, self._regions = Untracked(models), Untracked(codec.regions)
        self._length = run.options.questions.max_question_length
        self._blind = run.options.questions.control == "question_only"
        model = models.prediction if models.drawn is None else models.drawn
        # A deterministic attention has dropout alone to draw.
        drops = models.drawn is None and run.options.dropout > 0
        self._noise = Untracked(keras_vattn.ModelNoise(model, drops) if drops or models.drawn is not None else None)
        features = tf.TensorSpec([None, None, codec.regions.width], tf.float32)
        signature = (features, tf.TensorSpec([None, None, 4], tf.float32), tf.TensorSpec([None], tf.int32), _STRINGS)
        self.predict_features = in_graph(*signature)(self._predict_features)
        self.sample_features = in_graph(*signature, _INTEGER, _INTEGER)(self._sample_features)
        if extractor is None:
            self.predict, self.sample = self.predict_features, self.sample_features
        else:
            self.predict = in_graph(_STRINGS, _STRINGS)(self._predict_images)
            self.sample = in_graph(_STRINGS, _STRINGS, _INTEGER, _INTEGER)(self._sample_images)

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        own = ("predict",) if self._noise.value is None else ("predict", "sample")
        if self._regions.value.extractor is None:
            return own
        return (*own, *(f"{name}_features" for name in own))

    def _predict_images(self, images, questions):
        regions, num_regions = self._regions.value.of_images(images)
        return self._answers(self._inputs(regions, num_regions, questions))

    def _predict_features(self, features, boxes, num_regions, questions):
        """Return the answers about regions: features (B, R, D), their boxes (B, R, 4) as x0, y0, x1, y1 in [0, 1],
        which may be zeros where the model was trained without, and how many there are (B,)."""
        return self._answers(self._inputs(self._regions.value.inputs(features, boxes), num_regions, questions))

    def _sample_images(self, images, questions, num_samples, seed):
        regions, num_regions = self._regions.value.of_images(images)
        return self._draws(self._inputs(regions, num_regions, questions), num_samples, seed)

    def _sample_features(self, features, boxes, num_regions, questions, num_samples, seed):
        inputs = self._inputs(self._regions.value.inputs(features, boxes), num_regions, questions)
        return self._draws(inputs, num_samples, seed)

    def _inputs(self, regions, num_regions, questions):
        """Return the inputs of the model: as many regions as it takes, the first ones."""
        most = self._regions.value.max_regions
        missing = tf.maximum(most - tf.shape(regions)[1], 0)
        regions = tf.pad(regions[:, :most], [[0, 0], [0, missing], [0, 0]])
        regions = tf.ensure_shape(regions, [None, most, self._regions.value.model_width])
        words = self.text_encoder.encode(questions, self._length)
        words = tf.pad(words, [[0, 0], [0, self._length - tf.shape(words)[1]]])
        return {
            "regions": tf.zeros_like(regions) if self._blind else regions,
            "num_regions": tf.minimum(num_regions, most - missing),
            "question": tf.ensure_shape(words, [None, self._length]),
        }

    def _answers(self, inputs):
        found = self._models.value.prediction(inputs, training=False)
        probabilities = tf.exp(found["log_probabilities"])
        return self._best(probabilities) | {"weights": found["weights"]}

    def _best(self, probabilities):
        """Return the most probable answers of (B, V) and the entropy in nats."""
        best = tf.math.top_k(probabilities, min(NUM_ANSWERS, len(self.answers)))
        positive = tf.where(probabilities > 0, probabilities, 1.0)
        return {
            "answers": tf.gather(self.answers, best.indices),
            "probabilities": best.values,
            "entropy": -tf.reduce_sum(probabilities * tf.math.log(positive), axis=-1),
        }

    def _draws(self, inputs, num_samples, seed):
        """Return the answers of the mean of draws, their entropy, what of it the model does not know (the mutual
        information, nats), and the answer of each draw (B, S)."""
        noise, seed = self._noise.value, keras_vattn.random.as_seed(seed)

        def draw(number):
            with noise.drawn_from(keras_vattn.random.fold_in(seed, number)):
                probabilities = tf.exp(noise.model(inputs, training=False)["log_probabilities"])
            return probabilities, self._best(probabilities)["entropy"]

        signature = tf.TensorSpec([None, len(self.answers)], tf.float32), tf.TensorSpec([None], tf.float32)
        with tf.control_dependencies([tf.debugging.assert_positive(num_samples, "num_samples must be positive")]):
            numbers = tf.range(num_samples)
        drawn, entropies = tf.map_fn(draw, numbers, fn_output_signature=signature, parallel_iterations=1)
        found = self._best(tf.reduce_mean(drawn, axis=0))
        answers = tf.gather(self.answers, tf.argmax(drawn, axis=-1))
        return found | {
            "mutual_information": tf.maximum(found["entropy"] - tf.reduce_mean(entropies, axis=0), 0.0),
            "draws": tf.transpose(answers),
        }


def answer_lines(found, num_answers):
    """Yield a line for each row of what `predict` returns: answers with their probabilities."""
    for answers, probabilities in zip(found["answers"].numpy(), found["probabilities"].numpy(), strict=True):
        pairs = list(zip(answers, probabilities, strict=True))[:num_answers]
        yield "\t".join(f"{answer.decode()} {probability:.3f}" for answer, probability in pairs)

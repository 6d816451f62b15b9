"""Prediction with a fine-tuned model, as an exportable module: texts in, classes or scores out.

Shapes: B texts, C classes, S draws.
"""

import tensorflow as tf

from applications.common.serving import Untracked, drawn, in_graph, noise_of
from applications.finetuning.data import padded


class Predictor(tf.Module):
    """The exported module of a `Run`, for tasks with classes or a score."""

    def __init__(self, run):
        super().__init__(name="predictor")
        model = run.models.training
        self.encoder = run.codec.encoder
        self.variables_of_model = [variable.value for variable in model.variables]
        self._model = Untracked(model)
        self._labels = None if run.codec.labels is None else tf.constant(run.codec.labels)
        self._noise = Untracked(noise_of(model, run.options.backbone.drops))
        strings, integer = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)
        texts = (strings, strings) if run.codec.pairs else (strings,)
        self.predict = in_graph(*texts)(lambda *texts: self._answers(self._outputs(self._inputs(texts))))
        self.sample = in_graph(*texts, integer, integer)(self._sample)

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        return ("predict",) if self._noise.value is None else ("predict", "sample")

    def _inputs(self, texts):
        ids, num_first, _ = self.encoder.encode(*texts)
        return padded(ids, num_first, self.encoder.max_length)

    def _outputs(self, inputs):
        """Return the probabilities (B, C), or the scores (B,)."""
        outputs = self._model.value(inputs, training=False)
        return outputs if self._labels is None else tf.nn.softmax(outputs)

    def _answers(self, outputs):
        if self._labels is None:
            return {"scores": outputs}
        return {"probabilities": outputs, "labels": tf.gather(self._labels, tf.argmax(outputs, axis=1))}

    def _sample(self, *arguments):
        """Return the answer by the mean of draws, their standard deviation, and the draws (S, B, ...)."""
        *texts, num_samples, seed = arguments
        inputs = self._inputs(texts)
        draws = drawn(self._noise.value, num_samples, seed, lambda: self._outputs(inputs))
        return self._answers(tf.reduce_mean(draws, axis=0)) | {"draws": draws, "sd": tf.math.reduce_std(draws, axis=0)}

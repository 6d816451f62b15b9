"""Perplexity of target words, as a metric in training and in a report."""

import keras
import tensorflow as tf
from keras import ops

import keras_vattn
from applications.common.bounds import perplexity
from applications.common.progress import progress
from applications.text.text import PAD


@keras.saving.register_keras_serializable(package="applications.text")
class WordPerplexity(keras_vattn.Perplexity):
    """Perplexity of a model whose output is the log-likelihood of each word in `y_true`; without the KL."""

    def __init__(self, name="perplexity", **options):
        super().__init__(name=name, **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        counted = ops.not_equal(y_true, PAD)
        self.update_log_likelihood(ops.where(counted, y_pred, 0.0), ops.cast(counted, "int32"))


def likelihood_report(log_likelihood, batches):
    """Return the perplexity of the targets of batches, the mean nats per sentence, and the number of tokens.

    `log_likelihood` is a function of the inputs, the target (B, T) and the number of a batch; its values are summed.
    """
    total, tokens, rows = 0.0, 0, 0
    for number, (inputs, target) in enumerate(progress(batches, "likelihood")):
        total += float(tf.reduce_sum(log_likelihood(inputs, target, number)))
        # The end of a sentence counts as a token.
        tokens += int(tf.math.count_nonzero(target))
        rows += len(target)
    return {"perplexity": perplexity(-total / tokens), "nats": -total / rows, "num_tokens": tokens}

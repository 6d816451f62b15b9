"""Compute the perplexity per target word, in training and in reports."""

import keras
import tensorflow as tf
from keras import ops

import keras_vattn
from applications.common.bounds import perplexity
from applications.common.progress import progress
from applications.text.text import PAD


@keras.saving.register_keras_serializable(package="applications.text")
class WordPerplexity(keras_vattn.Perplexity):
    """Keras metric: perplexity per word, without the KL. The model outputs log p of each word."""

    def __init__(self, name="perplexity", **options):
        super().__init__(name=name, **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        counted = ops.not_equal(y_true, PAD)
        self.update_log_likelihood(ops.where(counted, y_pred, 0.0), ops.cast(counted, "int32"))


def likelihood_report(log_likelihood, batches):
    """Return a dictionary with "perplexity", "nats" and "num_tokens".

    "perplexity" is per token. "nats" is the mean -log p of a sentence. `log_likelihood(inputs, target, batch_index)`
    returns log p in nats, per word (0 for padding) or per sentence.
    """
    total, tokens, rows = 0.0, 0, 0
    for number, (inputs, target) in enumerate(progress(batches, "likelihood")):
        total += float(tf.reduce_sum(log_likelihood(inputs, target, number)))
        tokens += int(tf.math.count_nonzero(target))
        rows += len(target)
    return {"perplexity": perplexity(-total / tokens), "nats": -total / rows, "num_tokens": tokens}

"""The perplexity of a model whose output is the log-likelihood of its words."""

import keras
from keras import ops

import keras_vattn
from applications.text.text import PAD


@keras.saving.register_keras_serializable(package="applications.text")
class WordPerplexity(keras_vattn.Perplexity):
    """Perplexity of a model whose output is the log-likelihood of its words, `y_true`; without KL."""

    def __init__(self, name="perplexity", **options):
        super().__init__(name=name, **options)

    def update_state(self, y_true, y_pred, sample_weight=None):
        counted = ops.not_equal(y_true, PAD)
        self.update_log_likelihood(ops.where(counted, y_pred, 0.0), ops.cast(counted, "int32"))

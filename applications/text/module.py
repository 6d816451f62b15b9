"""Defines `PairModule`, the base class of the TensorFlow modules that the programs `nmt` and `ved` export."""

import tensorflow as tf

from applications.common.serving import Untracked, in_graph
from applications.text.text import PAD, START, UNKNOWN

IDS = tf.TensorSpec([None, None], tf.int32)
TEXTS = tf.TensorSpec([None], tf.string)
# Ids that decoding must not generate.
FORBIDDEN = (PAD, START, UNKNOWN)


class PairModule(tf.Module):
    """Base class of exported modules. It contains the text encoders and the variables of a `Run`'s model.

    Subclasses add endpoints, which encode strings and call methods for ids, such as `log_likelihood`. The command
    `evaluate` has encoded data and calls these methods directly.
    """

    def __init__(self, run, max_source_length, max_target_length):
        super().__init__()
        self.variables_of_model = [variable.value for variable in run.models.training.variables]
        self.source_encoder, self.target_encoder = run.codec.source, run.codec.target
        self._models, self._options = Untracked(run.models), Untracked(run.options)
        self._max_source_length, self._max_target_length = max_source_length, max_target_length

    @in_graph(TEXTS, TEXTS)
    def score(self, texts, targets):
        """Return (B,) tensors: "log_likelihood", log p(target | text) in nats, and "num_tokens" with the end token."""
        target_input, target, num_tokens = self.target_encoder.encode_targets(targets, self._max_target_length)
        value = self.log_likelihood(self._encode(texts), target_input, target)
        return {"log_likelihood": tf.reduce_sum(value, axis=list(range(1, len(value.shape)))), "num_tokens": num_tokens}

    def log_likelihood(self, source, target_input, target):
        """Return log p(target | source) in nats, per sentence (B,) or per word (B, T)."""
        raise NotImplementedError

    def _encode(self, texts):
        return self.source_encoder.encode(texts, self._max_source_length)

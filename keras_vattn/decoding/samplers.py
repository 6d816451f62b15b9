import tensorflow as tf

from keras_vattn import random
from keras_vattn.support.validation import number, positive_integer


class GreedySampler:
    """Chooses the most probable word.

    Example:

    >>> import tensorflow as tf
    >>> keras_vattn.decoding.GreedySampler()(tf.constant([[0.0, 2.0, 1.0]]), tf.constant(0))
    <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>
    """

    def __call__(self, logits, position):
        """Return ids (B,) int32 from logits (B, V) at step `position`."""
        return tf.argmax(logits, axis=-1, output_type=tf.int32)


class RandomSampler:
    """Draws a word from softmax(logits / temperature), restricted to the top-k words and to the top-p nucleus.

    The nucleus is the smallest set of words whose total probability is at least `top_p` (Holtzman et al. 2020). It
    contains at least one word.

    Args:
        seed: Integer, or int32 tensor of shape () or (2,). The same seed gives the same words.
        temperature: Positive number or scalar tensor that divides the logits. Defaults to 1.0.
        top_k: Number of the most probable words to draw from, or `None` for all words. Defaults to `None`.
        top_p: Minimum total probability of the nucleus, in (0, 1], or `None` for all words. Defaults to `None`.

    Raises:
        ValueError: If an option is out of its range.

    Example:

    >>> import tensorflow as tf
    >>> sampler = keras_vattn.decoding.RandomSampler(seed=3, top_k=1)
    >>> sampler(tf.constant([[0.0, 2.0, 1.0]]), tf.constant(0))
    <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>
    """

    def __init__(self, seed, temperature=1.0, top_k=None, top_p=None):
        if not tf.is_tensor(temperature) and not temperature > 0:
            raise ValueError(
                f"`temperature` must be positive; for 0, use greedy decoding. Received: temperature={temperature!r}"
            )
        self.seed = random.as_seed(seed)
        self.temperature = temperature
        self.top_k = positive_integer("top_k", top_k, optional=True)
        self.top_p = number("top_p", top_p, above=0, maximum=1, optional=True)

    def __call__(self, logits, position):
        """Return ids (B,) int32 from logits (B, V) at step `position`."""
        logits = self.restrict(tf.cast(logits, tf.float32) / self.temperature)
        noise = random.gumbel(tf.shape(logits), random.fold_in(self.seed, position))
        return tf.argmax(logits + noise, axis=-1, output_type=tf.int32)

    def restrict(self, logits):
        """Return logits in which excluded words have the most negative finite number."""
        if self.top_k is None and self.top_p is None:
            return logits
        order = tf.argsort(logits, axis=-1, direction="DESCENDING", stable=True)
        # A threshold on logits would also allow words with the same logit as the last allowed word.
        rank = tf.argsort(order, axis=-1)
        is_allowed = tf.ones_like(rank, tf.bool)
        if self.top_k is not None:
            is_allowed &= rank < self.top_k
        if self.top_p is not None:
            probability = tf.nn.softmax(tf.where(is_allowed, logits, logits.dtype.min), axis=-1)
            probability_before = tf.cumsum(tf.gather(probability, order, batch_dims=1), axis=-1, exclusive=True)
            size = tf.reduce_sum(tf.cast(probability_before < self.top_p, tf.int32), axis=-1, keepdims=True)
            is_allowed &= rank < tf.maximum(size, 1)
        return tf.where(is_allowed, logits, logits.dtype.min)

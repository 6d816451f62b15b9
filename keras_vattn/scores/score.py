import keras

from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.masks import first_mask


class Score(FeatureInputs, keras.layers.Layer):
    """Base class of the score functions, which measure how well a query matches a key.

    A subclass implements `score(query, projected_keys)` and, if necessary, `project_keys(key)`. A decoder calls
    `project_keys` once, before its loop, and `score` at every step. `call(query, key)` calls both methods.

    Attributes:
        keeps_state: Whether the score has a state, which a decoder passes from step to step. The score then has the
            methods `initial_state(batch_size, num_keys)`, `next_state(state, weights)` and
            `score(query, projected_keys, state)`.
        needs_decoder: Whether the score works only in a decoder. Defaults to `keeps_state`.
        hides_keys: Whether the score may hide keys from a query. Attention layers mask a hidden key. The logits are
            float32, and the logit of a hidden key is -3.4e38.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk).

    Returns:
        Logits (B, T, S), unnormalised real values.

    Example:

    >>> class Negative(keras_vattn.Score):
    ...     def build(self, query_shape, key_shape):
    ...         pass
    ...     def score(self, query, projected_keys):
    ...         return -keras.ops.einsum("btd,bsd->bts", query, projected_keys)
    >>> Negative()(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))).shape
    TensorShape([2, 3, 5])
    """

    feature_arguments = ("query", "key")
    keeps_state = False
    hides_keys = False

    @property
    def needs_decoder(self):
        return self.keeps_state

    def project_keys(self, key):
        """Return the projected keys for `score`, (B, ...). A decoder calls this method once, before its loop."""
        return key

    def project_memory(self, key, keys=None):
        """Return the projected keys for `score`.

        If the projected keys depend on the mask, override this method instead of `project_keys`.

        Args:
            key: (B, S, Dk).
            keys: `keras_vattn.DenseKeys`, which defines the valid keys of each query, or `None` for all keys.
        """
        return self.project_keys(key)

    def score(self, query, projected_keys):
        """Return the logits (B, T, S) for queries (B, T, Dq) and projected keys."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `score`.")

    def call(self, query, key, keys=None):
        return self.score(query, self.project_memory(key, keys))

    def compute_output_shape(self, query_shape, key_shape):
        return (*query_shape[:-1], key_shape[-2])

    def compute_output_spec(self, query, key, keys=None):
        dtype = "float32" if self.hides_keys else self.compute_dtype
        return keras.KerasTensor(self.compute_output_shape(query.shape, key.shape), dtype=dtype)

    def compute_mask(self, query, previous_mask=None):
        return first_mask(previous_mask)

    def get_config(self):
        # Without this override, Keras could not serialise a score whose `dtype` is a policy object.
        return super().get_config()

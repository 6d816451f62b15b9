import keras
from keras import ops


class Feeding:
    """Base class of objects that select the context that the cell of a decoder receives.

    A subclass overrides `context`, and may override three more methods:

    - `width`, if the result of `context` is not as wide as the attention context.
    - `weights`, to select the weights with which a stateful score is updated.
    - `get_config`, to return the arguments of the constructor.

    To load a saved model, register the subclass with `keras.saving.register_keras_serializable`.

    Example:

    >>> class Doubled(keras_vattn.recurrent.Feeding):
    ...     def context(self, attended, attention, memory):
    ...         return 2.0 * attended["context"]
    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, feeding=Doubled())
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    feeds = True

    def context(self, attended, attention, memory):
        """Return the context that the cell receives, (B, Dc), without side effects.

        Args:
            attended: Result of `Attention.attend` for one step, with (B, ...) tensors.
            attention: The `Attention` of the decoder.
            memory: Result of `Attention.prepare_memory`.
        """
        return attended["context"]

    def weights(self, attended):
        """Return the weights (B, S) that update the state of the score. Called only if the score has a state."""
        return attended["weights"]

    def width(self, context_width):
        """Return the width Dc of the result of `context`. `context_width` is the width of the attention context."""
        return context_width

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_vattn")
class NoFeeding(Feeding):
    """`"off"`: the cell receives no attention result.

    Example:

    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, feeding="off")
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    feeds = False


@keras.saving.register_keras_serializable(package="keras_vattn")
class SampledFeeding(Feeding):
    """`"sampled"`: the cell receives the sampled context (Bahuleyan et al. 2018, Fan et al. 2020).

    Example:

    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, feeding="sampled")
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """


@keras.saving.register_keras_serializable(package="keras_vattn")
class ExpectedFeeding(Feeding):
    """`"expected"`: the cell receives the expected context, without noise and dropout (Deng et al. 2018).

    Example:

    >>> attention = keras_vattn.Attention("additive")
    >>> decoder = keras_vattn.AttentionDecoder(8, attention, feeding="expected")
    >>> decoder(keras.ops.ones((2, 4, 3)), keras.ops.ones((2, 5, 6)))["hidden"].shape
    TensorShape([2, 4, 8])
    """

    def context(self, attended, attention, memory):
        if "expected_weights" not in attended:
            return attended["mean"]
        weights = ops.expand_dims(attended["expected_weights"], axis=1)
        return ops.squeeze(attention.context.call(weights, memory["value"]), axis=1)

    def weights(self, attended):
        return attended.get("expected_weights", attended["weights"])


FEEDINGS = {"off": NoFeeding, "sampled": SampledFeeding, "expected": ExpectedFeeding}

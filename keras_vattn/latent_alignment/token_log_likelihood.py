import math

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.latent_alignment.chunked_softmax import chosen_log_likelihood
from keras_vattn.latent_alignment.log_probabilities import without_empty_rows
from keras_vattn.latent_alignment.mixture import mixture_log_probabilities
from keras_vattn.support import keras_private
from keras_vattn.support.features import FeatureInputs
from keras_vattn.support.ids import as_integers
from keras_vattn.support.masks import both, check_mask, check_shape, first_mask, fits
from keras_vattn.support.products import matmul
from keras_vattn.support.validation import integer, positive_integer, refuse_ignore_class

# Default number of logits in a chunk. Smaller chunks would slow down training.
CHUNK_ENTRIES = 2**26
PREDICTION_ENTRIES = 2**23
NUM_BLOCKS = 8  # blocks of the first chunk, if K > 1


@keras.saving.register_keras_serializable(package="keras_vattn")
class TokenLogLikelihood(FeatureInputs, keras.layers.Layer):
    """Output layer over a vocabulary: computes log p(y | z_k) of words for each candidate z_k of a latent alignment.

    See Deng et al. 2018, section 2.1. With targets, the layer returns only the log-likelihoods of the target words,
    (B, T, K). To save memory, the layer computes the logits (B, T, K, V) in chunks of rows, and recomputes the logits
    of all but the first chunk in the backward pass. Matrix products use the compute dtype; all other operations use
    float32.

    Targets may be labels, or weights of all V words at each step. Weights are a distribution over words, or counts of
    votes, such as ten answers to a question about an image (Deng et al. 2018, section 4). A word with n votes counts
    like n labels. To count all votes like one label, divide the votes by their sum.

    If each example has one query, you may omit the step axis T from all inputs: inputs (B, K, D), targets (B,) or
    (B, V). For a result `x` of `keras_vattn.CategoricalAttention`, pass `x[:, 0]`.

    Formula:
        p(v | z_k) = "softmax"_v(W^T "inputs"_(t,k) + b)
        "result"_(t,k) = log p(y_t | z_k) quad ("labels")
        "result"_(t,k) = sum_v "target"_(t,v) log p(v | z_k) quad ("weights of every word")
        "result"_(t,v) = log (sum_k exp("log_weights"_(t,k)) p(v | z_k)) quad ("a prediction")

    Args:
        vocabulary_size: V, the number of words.
        ignore_class: Integer label to ignore, such as the label of padding. Words with this label have value and
            gradient 0. If targets are weights of every word, use `None` and set the weights to 0. Defaults to `None`.
        chunk_size: Maximum number of rows (B times T times K) whose logits are in memory at once. A training step needs
            about three times the memory of these logits, and more with weights of every word. If one chunk is enough,
            nothing is computed twice. `None` limits a chunk to 2**26 logits (256 MB in float32) with targets, and to
            2**23 logits with `log_weights`. Defaults to `None`.
        use_bias: Whether to add b. Defaults to `True`.
        kernel_initializer: Initializer of W, (D, V). Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of b. Defaults to `"zeros"`.

    Call arguments:
        inputs: (B, T, K, D), the last hidden layer for each candidate. With (B, K, D), all other inputs and the result
            have no axis T.
        targets: Integers (B, T) in [0, V), weights of every word (B, T, V), or `None`. No gradient flows to the
            targets.
        log_weights: (B, T, K) from `keras_vattn.CategoricalAttention`, for a prediction without targets; or `None`.
        inputs_mask: Boolean (B, T), usually propagated by Keras, or `None`.
        candidates_mask: Boolean, broadcastable to (B, T, K), `True` for possible candidates; or `None`. If all keys are
            candidates, pass the source mask to save time. Masked candidates have value and gradient 0. If their
            log p(z) is -1e30, the objective does not change. If all candidates of a word are masked, all of them count.

    Returns:
        Float32, in nats.

        - With targets: the log-likelihood of the targets under each z_k, (B, T, K). Masked words and words of
          `ignore_class` have value and gradient 0, and the mask of the result excludes these words.
        - With `log_weights`: log p of every word, (B, T, V). p is a sum over all keys or the `top_k` keys, or an
          average over sampled keys.
        - Without targets and `log_weights`: log p(v | z_k), (B, T, K, V).

    Raises:
        ValueError: If a size is not positive, if a shape is wrong, if both `log_weights` and targets are passed, if
            `candidates_mask` is passed without targets, or if `ignore_class` is set for weights of every word.

    Example:

    >>> layer = keras_vattn.TokenLogLikelihood(10, kernel_initializer="zeros")
    >>> hidden, targets = keras.ops.ones((2, 3, 5, 8)), keras.ops.ones((2, 3), "int32")
    >>> log_likelihood = layer(hidden, targets)
    >>> log_likelihood.shape, round(float(log_likelihood[0, 0, 0]), 4)  # -log(10)
    (TensorShape([2, 3, 5]), -2.3026)
    >>> layer(hidden, log_weights=keras.ops.log(keras.ops.ones((2, 3, 5)) / 5)).shape
    TensorShape([2, 3, 10])
    >>> votes = keras.ops.convert_to_tensor([[7.0, 3.0] + 8 * [0.0]])  # of ten people
    >>> round(float(layer(keras.ops.ones((1, 5, 8)), votes)[0, 0]), 4)  # -10 log(10)
    -23.0259
    """

    feature_arguments = ("inputs",)

    def __init__(
        self,
        vocabulary_size,
        ignore_class=None,
        chunk_size=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        # With autocast, Keras would cast `log_weights` to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        self.vocabulary_size = positive_integer("vocabulary_size", vocabulary_size)
        self.ignore_class = integer("ignore_class", ignore_class, optional=True)
        self.chunk_size = positive_integer("chunk_size", chunk_size, optional=True)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, targets_shape=None, log_weights_shape=None):
        if len(inputs_shape) not in (3, 4) or inputs_shape[-1] is None:
            raise ValueError(
                "`inputs` must have shape (batch, steps, candidates, width), or (batch, candidates, width). "
                f"Received: inputs.shape={tuple(inputs_shape)}"
            )
        self.kernel = self.add_weight(
            name="kernel",
            shape=(inputs_shape[-1], self.vocabulary_size),
            initializer=self.kernel_initializer,
            autocast=False,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocabulary_size,), initializer=self.bias_initializer, autocast=False
            )

    def call(self, inputs, targets=None, log_weights=None, inputs_mask=None, candidates_mask=None):
        self._check(inputs, targets, log_weights, inputs_mask, candidates_mask)
        inputs = ops.cast(inputs, self.compute_dtype)
        word_mask = None if inputs_mask is None else ops.cast(inputs_mask, "bool")
        if targets is not None:
            weighs_words = len(targets.shape) == len(inputs.shape) - 1
            targets = ops.cast(targets, "float32") if weighs_words else as_integers("targets", targets)
            if self.ignore_class is not None:
                word_mask = both(word_mask, ops.not_equal(targets, self.ignore_class))
        row_mask = None if word_mask is None else word_mask[..., None]
        if candidates_mask is not None:
            possible = ops.cast(candidates_mask, "bool")
            # If all candidates of a word are masked, `LatentLogLikelihood` uses all of them.
            row_mask = both(row_mask, ops.logical_or(possible, ~ops.any(possible, axis=-1, keepdims=True)))
        if row_mask is not None:
            # Masked inputs may be NaN.
            inputs = ops.where(row_mask[..., None], inputs, ops.zeros_like(inputs))
        *axes, num_candidates, width = ops.shape(inputs)
        num_words = math.prod(axes)
        if targets is None and log_weights is None:
            kernel, bias = (ops.cast(x, inputs.dtype) for x in self._weights())
            logits = matmul(inputs, kernel) + bias
            return tf.nn.log_softmax(ops.cast(logits, "float32"))
        entries = PREDICTION_ENTRIES if targets is None else CHUNK_ENTRIES
        chunk_size = self.chunk_size or max(entries // self.vocabulary_size, 1)
        rows = ops.reshape(inputs, (num_words, num_candidates, width))
        if targets is None:
            log_weights = without_empty_rows(ops.cast(log_weights, "float32"))
            log_weights = ops.reshape(log_weights, (num_words, num_candidates))
            result = mixture_log_probabilities(rows, *self._weights(), log_weights, chunk_size)
            return ops.reshape(result, (*axes, self.vocabulary_size))
        # In the original order, the rows of the baseline candidate would not be contiguous, and could not be skipped.
        rows = ops.reshape(ops.transpose(rows, (1, 0, 2)), (num_candidates * num_words, width))
        if word_mask is not None:
            targets = ops.where(word_mask[..., None] if weighs_words else word_mask, targets, 0)
        if row_mask is not None:
            row_mask = ops.broadcast_to(row_mask, (*axes, num_candidates))
            row_mask = ops.reshape(ops.transpose(ops.reshape(row_mask, (num_words, num_candidates))), (-1,))
        if weighs_words:
            targets = ops.reshape(targets, (num_words, self.vocabulary_size))
        else:
            targets = ops.tile(ops.reshape(targets, (num_words,)), (num_candidates,))
        num_blocks = 1 if inputs.shape[-2] == 1 else NUM_BLOCKS
        result = chosen_log_likelihood(rows, *self._weights(), targets, chunk_size, row_mask, num_blocks)
        result = ops.reshape(ops.transpose(ops.reshape(result, (num_candidates, num_words))), (*axes, num_candidates))
        if word_mask is not None:
            # `compute_mask` does not receive the targets.
            keras_private.set_mask(result, word_mask)
        return result

    def _weights(self):
        # In half precision, the gradients would lose precision in the sum over chunks.
        bias = ops.zeros((self.vocabulary_size,), "float32") if self.bias is None else self.bias.value
        return ops.cast(self.kernel.value, "float32"), ops.cast(bias, "float32")

    def _check(self, inputs, targets, log_weights, inputs_mask, candidates_mask):
        if candidates_mask is not None and targets is None:
            raise ValueError("`candidates_mask` needs targets. Received: targets=None")
        if targets is not None and log_weights is not None:
            raise ValueError(
                "Pass targets or `log_weights`, not both. "
                f"Received: targets.shape={tuple(targets.shape)}, log_weights.shape={tuple(log_weights.shape)}"
            )
        axes, names = tuple(inputs.shape[:-2]), "B, T" if len(inputs.shape) == 4 else "B"
        candidates = *axes, inputs.shape[-2]
        if targets is not None:
            self._check_targets(targets, axes, names)
        if log_weights is not None:
            check_shape("log_weights", log_weights, candidates, f"({names}, K)")
        check_mask("inputs_mask", inputs_mask, axes, f"({names})")
        check_mask("candidates_mask", candidates_mask, candidates, f"({names}, K)")

    def _check_targets(self, targets, axes, names):
        weights = *axes, self.vocabulary_size
        if not fits(targets.shape, axes) and not fits(targets.shape, weights):
            raise ValueError(
                f"`targets` must have shape {axes} for labels ({names}), or {weights} for word weights ({names}, V). "
                "`targets[:, None]` adds a step axis to the targets; `inputs[:, 0]` removes it from the inputs. "
                f"Received: targets.shape={tuple(targets.shape)}"
            )
        if len(targets.shape) > len(axes):
            refuse_ignore_class("targets", targets, self.ignore_class)

    def compute_output_shape(self, inputs_shape, targets_shape=None, log_weights_shape=None):
        if targets_shape is not None:
            return tuple(inputs_shape[:-1])
        return (*inputs_shape[: -1 if log_weights_shape is None else -2], self.vocabulary_size)

    def compute_output_spec(self, inputs, targets=None, log_weights=None, inputs_mask=None, candidates_mask=None):
        self._check(inputs, targets, log_weights, inputs_mask, candidates_mask)
        shapes = (None if x is None else x.shape for x in (inputs, targets, log_weights))
        return keras.KerasTensor(self.compute_output_shape(*shapes), dtype="float32")

    def compute_mask(self, inputs, previous_mask=None):
        return first_mask(previous_mask)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "ignore_class": self.ignore_class,
            "chunk_size": self.chunk_size,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

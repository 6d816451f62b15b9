import keras
from keras import ops

from keras_vattn import scores
from keras_vattn.scores.score import Score
from keras_vattn.support.masks import LOWEST
from keras_vattn.support.products import product
from keras_vattn.support.sublayers import claim, require_dtype, serialize_sublayer
from keras_vattn.support.validation import one_of, positive_integer

POSITIONS = ("monotonic", "predictive")


@keras.saving.register_keras_serializable(package="keras_vattn")
class Local(Score):
    """Local attention, which restricts any score to a window: query t attends only to keys near position p_t.

    See Luong et al. 2015, section 3.2. The argument `position` selects the centre p_t of the window:

    - `"monotonic"` ("local-m"): p_t is t. In `keras_vattn.Attention`, t is the position of the query, from 0. In
      `keras_vattn.AttentionDecoder`, t is the number of earlier unmasked steps.
    - `"predictive"` ("local-p"): p_t is computed from the query (eq. 9). In the formula, S is the position after the
      last valid key. The weights of eq. 10 sum to less than 1. This library divides the weights by their sum.

    Keys outside the window are masked: their weights, gradients and KL are exactly 0. If the window contains no key,
    the context is zero. A contextual prior is normalised over the window. The prior of
    `GaussianContext(prior="mean")` averages over all valid keys, also outside the window.

    Formula:
        abs(s - p_t) <= "window"
        p_t = t, quad phi_(t,s) = "inner"("query"_t, "key"_s) quad "(monotonic)"
        p_t = S "sigmoid"(v^T tanh(W "query"_t)), quad sigma = "window" / 2 quad "(predictive)"
        phi_(t,s) = "inner"("query"_t, "key"_s) - (s - p_t)^2 / (2 sigma^2) quad "(predictive)"

    Args:
        inner: Score of the keys in the window: a name, class, config or instance of a `Score`. Defaults to
            `"dot_product"`.
        window: Maximum distance of a key s from p_t, a positive integer (D in Luong et al. 2015). Defaults to 10.
        position: `"monotonic"` or `"predictive"`. Defaults to `"monotonic"`.
        kernel_initializer: Initializer of W (Dq, Dq) and v (Dq, 1). Defaults to `"glorot_uniform"`.

    Call arguments:
        query: (B, T, Dq).
        key: (B, S, Dk).
        keys: `keras_vattn.DenseKeys`, which defines the valid keys of each query, or `None` for all keys.

    Returns:
        Logits (B, T, S), float32.

    Raises:
        ValueError: If `window` is not a positive integer, or a name is unknown.

    Example:

    >>> layer = keras_vattn.Attention(keras_vattn.Local("bilinear", window=1))
    >>> query, value = keras.ops.ones((1, 2, 4)), keras.ops.ones((1, 4, 6))
    >>> _, weights = layer(query, value, return_attention_scores=True)
    >>> (weights[0].numpy() > 0.0).tolist()
    [[True, True, False, False], [True, True, True, False]]
    """

    hides_keys = True

    def __init__(
        self,
        inner="dot_product",
        window=10,
        position="monotonic",
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.inner = scores.get(inner, dtype=self.dtype_policy, name="inner")
        require_dtype(self, "inner", self.inner)
        self.window = positive_integer("window", window)
        self.position = one_of("position", position, POSITIONS)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    @property
    def keeps_state(self):
        return self.position == "monotonic" or self.inner.keeps_state

    @property
    def needs_decoder(self):
        return self.inner.needs_decoder

    def build(self, query_shape, key_shape):
        claim(self, "inner", self.inner)
        if not self.inner.built:
            self.inner.build(query_shape, key_shape)
        if self.position == "predictive":
            width = query_shape[-1]
            self.position_kernel = self.add_weight(
                name="position_kernel", shape=(width, width), initializer=self.kernel_initializer.clone()
            )
            self.position_scale = self.add_weight(
                name="position_scale", shape=(width, 1), initializer=self.kernel_initializer.clone()
            )

    def initial_state(self, batch_size, num_keys):
        """Return the initial state: a dictionary of the number of steps and the state of the inner score."""
        state = {"step": ops.zeros((batch_size, 1), "float32")}
        if self.inner.keeps_state:
            state["inner"] = self.inner.initial_state(batch_size, num_keys)
        return state

    def next_state(self, state, weights):
        """Return the state of the next step. `weights` (B, S) are the weights of this step."""
        new_state = {"step": state["step"] + 1.0}
        if self.inner.keeps_state:
            new_state["inner"] = self.inner.next_state(state["inner"], weights)
        return new_state

    def project_memory(self, key, keys=None):
        ends = ops.arange(ops.shape(key)[1], dtype="float32") + 1.0
        ends = ends if keys is None else keys.where_valid(ends, 0.0)
        length = ops.max(ends, axis=-1, keepdims=True, initial=0.0)  # (B or 1, T or 1, 1)
        return {"keys": self.inner.project_memory(key, keys), "length": length}

    def score(self, query, projected_keys, state=None):
        inner_state = {"state": state["inner"]} if state is not None and self.inner.keeps_state else {}
        logits = ops.cast(self.inner.score(query, projected_keys["keys"], **inner_state), "float32")
        # Positions are float32: bfloat16 cannot represent 257.
        distance = ops.arange(ops.shape(logits)[-1], dtype="float32") - self._centre(query, projected_keys, state)
        if self.position == "predictive":
            logits = logits - 2.0 * ops.square(distance / self.window)
        return ops.where(ops.abs(distance) <= self.window, logits, LOWEST)

    def _centre(self, query, projected_keys, state):
        """Return the centres p_t of the windows, float32 (B or 1, T, 1)."""
        if self.position == "predictive":
            hidden = ops.cast(ops.tanh(product(query, self.position_kernel)), "float32")
            return projected_keys["length"] * ops.sigmoid(product(hidden, self.position_scale))
        steps = ops.arange(ops.shape(query)[1], dtype="float32")[:, None]
        return steps if state is None else steps + state["step"][..., None]

    def get_config(self):
        return {
            **super().get_config(),
            "inner": serialize_sublayer(self.inner),
            "window": self.window,
            "position": self.position,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

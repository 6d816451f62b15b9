import inspect
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_vattn import alignments, random
from keras_vattn.layers.attention_axes import AttentionAxes
from keras_vattn.layers.attention_distributions import AlignmentDistributions, as_finite_float32, logits_of_q
from keras_vattn.layers.stochastic_layer import StochasticLayer
from keras_vattn.support.masks import both, check_mask, fits
from keras_vattn.support.parts import adopt, serialize_part


class CallArguments(NamedTuple):
    """What an alignment needs of a call and Keras's `call` does not hand on to `_compute_attention`.

    Attributes:
        mask: Boolean tensor, which query sees which key, or `None`.
        query_mask: Boolean, of the shape of the query but for its last axis, or `None`.
        posterior_logits: As in the call.
    """

    mask: object = None
    query_mask: object = None
    posterior_logits: object = None


@keras.saving.register_keras_serializable(package="keras_vattn")
class MultiHeadAttention(AlignmentDistributions, StochasticLayer, keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` whose weights can be random variables.

    In each head logits = (W_q query)^T (W_k key) / sqrt(key_dim), weights = alignment(logits), and the output is W_o of
    the heads' weights times W_v value (Vaswani et al. 2017, section 3.2; Fan et al. 2020, section 3). With
    `alignment="softmax"` this is the layer of Keras: the same arguments, outputs, masks, errors, and weights that load
    in either direction. With another alignment training draws the weights, every head, query and example for itself,
    and inference takes their mean, which gives the outputs of the Keras layer with the same weights. The weights file
    of the Keras layer loads into this one whatever the alignment; a contextual prior has weights of its own, which the
    file lacks (`load_weights(path, skip_mismatch=True)`). Padding must be finite, as in Keras.

    Args:
        num_heads: Number of heads.
        key_dim: Width of a head's query and key.
        value_dim: Width of a head's value, `key_dim` where it is `None`. Defaults to `None`.
        dropout: Rate of dropout on the weights in training, after the draw. Defaults to 0.0.
        use_bias: As in Keras, like all arguments up to `seed` that are not listed here.
        flash_attention: As in Keras; it computes no weights, so that only `"softmax"` takes `True`.
        seed: Integer or `None`, of the draws and of the dropout. Defaults to `None`.
        alignment: `"softmax"`, `"weibull"`, `"lognormal"`, `"dirichlet"`, `"gumbel_softmax"` or an `Alignment`.
            Defaults to `"softmax"`.
        prior: `None` for no KL, `"fixed"`, `"contextual"` or a `Prior`. A contextual prior reads the projected keys of
            a head. Defaults to `None`.
        per_head_prior: Whether a contextual prior has one network for each head, not one for all. Defaults to `False`.
        kl_weight: Constant factor on the KL. Defaults to 1.0.
        kl_annealing: `None` or a schedule over the training calls. Defaults to `None`.
        kl_reduction: `"sum"`: KL summed over heads, valid queries and valid keys, averaged over the batch, in nats;
            `"query_mean"`: divided by the number of valid queries; `"mean"`: divided by the number of valid
            query-key-head entries. Defaults to `"sum"`.

    Call arguments:
        query: (B, T, Dq), or with more axes (B, ..., Dq), of which `attention_axes` are attended over.
        value: (B, S, Dv).
        key: (B, S, Dk), `value` where it is `None`.
        query_mask: Boolean (B, T). A masked query adds no KL.
        value_mask: Boolean (B, S). A masked position has weight, gradient and KL exactly 0, in every head.
        key_mask: Boolean (B, S), combined with `value_mask`.
        attention_mask: Boolean (B, T, S), or (B, H, T, S) for a mask of each head, combined with the others.
        return_attention_scores: Whether to return the weights too, before dropout. Defaults to `False`.
        training: Whether to draw and to drop out. At inference the weights are their mean, except under
            `keras_vattn.posterior_draws`.
        use_causal_mask: Whether query t sees only the positions up to t. Defaults to `False`.
        posterior_logits: (B, H, T, S), or (B, 1, T, S) or (B, T, S) for all heads, of an inference network that may see
            the target, or `None`. Where they are given q = alignment(posterior_logits), p = alignment(logits).

    Returns:
        The output (B, T, Dq), or (B, T, *output_shape), and with `return_attention_scores=True` the weights (B, H, T,
        S). A row without a valid key has weights 0.

    Raises:
        ValueError: As `keras.layers.MultiHeadAttention`; for unknown names, a prior or posterior logits for a
            deterministic alignment, posterior logits beside a prior or of the wrong shape, a prior for another number
            of heads, and flash attention with another alignment than softmax.

    Example:

    >>> layer = keras_vattn.MultiHeadAttention(num_heads=2, key_dim=4, alignment="weibull", prior="contextual")
    >>> query, value = keras.ops.ones((3, 5, 8)), keras.ops.ones((3, 7, 8))
    >>> output, weights = layer(query, value, return_attention_scores=True, training=True)
    >>> output.shape, weights.shape, len(layer.losses)
    (TensorShape([3, 5, 8]), TensorShape([3, 2, 5, 7]), 1)
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        attention_axes=None,
        sliding_window=None,
        flash_attention=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        use_gate=False,
        seed=None,
        alignment="softmax",
        prior=None,
        per_head_prior=False,
        kl_weight=1.0,
        kl_annealing=None,
        kl_reduction="sum",
        **kwargs,
    ):
        alignment = alignments.get(alignment)
        is_softmax = type(alignment) is alignments.Softmax
        super().__init__(
            num_heads=num_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            dropout=dropout,
            use_bias=use_bias,
            output_shape=output_shape,
            attention_axes=attention_axes,
            sliding_window=sliding_window,
            flash_attention=flash_attention,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            use_gate=use_gate,
            seed=seed,
            kl_weight=kl_weight,
            kl_annealing=kl_annealing,
            kl_reduction=kl_reduction,
            draws_noise=not is_softmax,
            **kwargs,
        )
        if flash_attention and not is_softmax:
            raise ValueError(
                'Flash attention computes no weights to draw: use it with alignment="softmax". '
                f"Received: flash_attention={flash_attention}, alignment={type(alignment).__name__}"
            )
        self.alignment = alignment
        self._is_softmax = is_softmax
        self.alignment_prior = self._resolve_prior(prior, per_head_prior)
        self.per_head_prior = getattr(self.alignment_prior, "num_heads", None) is not None
        if self.is_stochastic:
            self.track_divergence(shown=self.alignment_prior is not None)

    def _resolve_prior(self, prior, per_head_prior):
        options = {"num_heads": self.num_heads} if per_head_prior and _names_contextual(prior) else {}
        resolved = alignments.get_prior(prior, dtype=self.dtype_policy, name="prior", **options)
        if resolved is not None and not self.alignment.is_stochastic:
            raise ValueError(
                'A prior needs a stochastic alignment, for instance "weibull". '
                f"Received: prior={prior!r}, alignment={type(self.alignment).__name__}"
            )
        networks = getattr(resolved, "num_heads", None)
        if networks not in (None, self.num_heads) or (per_head_prior and networks is None):
            raise ValueError(
                'A prior for each head is "contextual" or a ContextualPrior with the attention\'s `num_heads`. '
                f"Received: prior={prior!r}, its num_heads={networks}, per_head_prior={per_head_prior}, "
                f"num_heads={self.num_heads}"
            )
        return resolved

    @property
    def prior(self):
        return self.alignment_prior

    @property
    def is_stochastic(self):
        return self.alignment.is_stochastic

    def build(self, query_shape, value_shape, key_shape=None):
        adopt(self, "prior", self.alignment_prior)
        super().build(query_shape, value_shape, key_shape)
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build((query_shape[0], self.num_heads, None, self.key_dim))

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        posterior_logits=None,
    ):
        self.check_posterior_logits(posterior_logits, query, value)
        if not self._is_softmax:
            self._check(query, value, key, query_mask, value_mask, key_mask, attention_mask)
            attention_mask = CallArguments(attention_mask, query_mask, posterior_logits)
        return super().call(
            query,
            value,
            key=key,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            use_causal_mask=use_causal_mask,
        )

    def _check(self, query, value, key, query_mask, value_mask, key_mask, attention_mask):
        """Raise ValueError for shapes that do not fit; with softmax the errors are those of Keras."""
        rank, axes = len(query.shape), AttentionAxes(self.attention_axes, len(query.shape))
        others = lambda x: tuple(x.shape[axis] for axis in axes.others)  # noqa: E731
        for name, x in (("value", value), ("key", value if key is None else key)):
            if rank < 3 or len(x.shape) != rank or not fits(others(x), others(query)):
                raise ValueError(
                    f"`query` and `{name}` must have as many axes, at least 3, and be equal in those that are not "
                    f"attended over. Received: query.shape={tuple(query.shape)}, {name}.shape={tuple(x.shape)}"
                )
        if key is not None and not fits(key.shape[:-1], value.shape[:-1]):
            raise ValueError(
                "`key` and `value` must have equal batch sizes and lengths. "
                f"Received: key.shape={tuple(key.shape)}, value.shape={tuple(value.shape)}"
            )
        check_mask("query_mask", query_mask, query.shape[:-1], "(B, T)")
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask)):
            check_mask(name, mask, value.shape[:-1], "(B, S)")
        if attention_mask is not None and axes.others == (0,):
            batch, heads, *attended = axes.logits_shape(self.num_heads, query.shape, value.shape)
            # One for all examples, and one for each head, are masks of Keras too.
            choices = ((batch, heads, *attended), attended)
            if not any(fits(attention_mask.shape, choice, broadcast=True) for choice in choices):
                check_mask("attention_mask", attention_mask, (batch, *attended), "(B, T, S)")

    def _compute_attention_mask(self, query, value, query_mask=None, attention_mask=None, **masks):
        if not isinstance(attention_mask, CallArguments):
            return super()._compute_attention_mask(query, value, query_mask, attention_mask=attention_mask, **masks)
        # The mask is what Keras's `call` hands on as it is: the other arguments travel with it.
        arguments, axes = attention_mask, AttentionAxes(self.attention_axes, len(query.shape))
        mask = axes.expand_mask(super()._compute_attention_mask(query, value, **masks))
        mask = both(mask, axes.expand_mask(arguments.mask))
        query_mask = query_mask if arguments.query_mask is None else arguments.query_mask
        return arguments._replace(mask=mask, query_mask=query_mask)

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        if self._is_softmax:
            return super()._compute_attention(
                query, key, value, attention_mask, training, return_attention_scores, use_causal_mask
            )
        view = self._view(query, key, attention_mask)
        axes, shape = view["axes"], view["shape"]
        noise = self.draw_noise(ops.shape(view["logits"]), training)
        weights = self._weights(logits_of_q(view), noise.get("alignment"), view["keys"])
        self._account(view, noise, attention_mask.query_mask, training)
        kept = weights * noise["dropout"] if "dropout" in noise else weights
        context = axes.from_heads(ops.matmul(kept, axes.by_head(value)), shape)
        return context, axes.unfold(weights, shape)

    def _view(self, query, key, arguments):
        """Return logits (..., H, T, S), keys, q and p for projected tensors, as a dictionary."""
        axes = AttentionAxes(self.attention_axes, len(query.shape) - 1)
        shape = axes.logits_shape(self.num_heads, ops.shape(query), ops.shape(key))
        query = ops.multiply(query, ops.cast(self._inverse_sqrt_key_dim, query.dtype))
        query, key = axes.by_head(query), axes.by_head(key)
        keys = alignments.DenseKeys(axes.fold_mask(arguments.mask, shape))
        view = {
            "axes": axes,
            "shape": shape,
            "logits": ops.cast(tf.matmul(query, key, transpose_b=True), "float32"),
            "posterior_logits": self._by_head(arguments.posterior_logits, axes, shape),
            "keys": keys,
            "prior": None,
            "log_psi": None,
        }
        if self.alignment_prior is not None:
            view["log_psi"] = self.alignment_prior.log_psi(key, keys)
            view["prior"] = self.alignment.prior_parameters(self.alignment_prior, view["log_psi"])
        return view

    def _by_head(self, posterior_logits, axes, shape):
        if posterior_logits is None:
            return None
        if len(posterior_logits.shape) < len(shape):
            posterior_logits = ops.expand_dims(posterior_logits, len(axes.others))
        # An alignment sees logits of one shape: every head has draws of its own, also from logits that it shares.
        return axes.fold(ops.broadcast_to(as_finite_float32(posterior_logits), shape))

    def draw_noise(self, shape, training=False):
        """Return the noise of a call, a dictionary, empty where the call does not draw.

        Args:
            shape: That of the logits, (..., H, T, S).
            training: The call's `training`.
        """
        seed = self.noise_seed(training)
        noise = {}
        if seed is None:
            return noise
        drawn = self.alignment.noise(shape, random.fold_in(seed, 0))
        if drawn is not None:
            at_step = self.alignment.at_step(0 if self.training_calls is None else self.training_calls.value)
            noise["alignment"] = {**drawn, **at_step} if at_step else drawn
        if training and self.dropout:
            kept = random.uniform(shape, random.fold_in(seed, 2)) >= self.dropout
            noise["dropout"] = ops.cast(kept, self.compute_dtype) / (1.0 - self.dropout)
        return noise

    def _weights(self, logits, noise, keys):
        perturbed = self.alignment.perturb(logits, noise, keys)
        return ops.cast(self.alignment.normalize(perturbed, noise, keys), self.compute_dtype)

    def _account(self, view, noise, query_mask, training):
        """Add the KL, if there is one: each query's summed over the heads."""
        logits, keys = view["logits"], view["keys"]
        p = view["prior"] if view["posterior_logits"] is None else {"logits": logits}
        if p is None:
            self.count_call(training)
            return
        divergence = self.alignment.divergence(logits_of_q(view), p, keys, noise.get("alignment"))  # (..., H, T)
        any_valid = keys.any_valid()
        if any_valid is None:
            valid, entries = None, self.num_heads * ops.cast(ops.shape(logits)[-1], "float32")
        else:
            num_keys = ops.sum(ops.cast(keys.mask, "float32"), axis=-1)
            entries = ops.sum(ops.broadcast_to(num_keys, ops.shape(divergence)), axis=-2)
            divergence = ops.where(any_valid, divergence, ops.zeros_like(divergence))
            valid = ops.any(any_valid, axis=-2)
        if query_mask is not None:
            valid = both(valid, view["axes"].fold_queries(query_mask))
        self.add_divergence(ops.sum(divergence, axis=-2), valid, entries=entries, training=training)

    def _at_the_mean(self, arguments, options):
        given = self._bind(arguments, options)
        query, value, key = given["query"], given["value"], given["key"]
        self.check_posterior_logits(given["posterior_logits"], query, value)
        arguments = CallArguments(given["attention_mask"], posterior_logits=given["posterior_logits"])
        masks = {name: given[name] for name in ("value_mask", "key_mask", "use_causal_mask")}
        arguments = self._compute_attention_mask(query, value, attention_mask=arguments, **masks)
        return self._view(self.query_dense(query), self.key_dense(value if key is None else key), arguments)

    def check_posterior_logits(self, posterior_logits, query, value):
        """Raise ValueError if posterior logits, unless they are `None`, have no place here or another shape."""
        if posterior_logits is None:
            return
        self.require_place_for_posterior_logits(posterior_logits)
        axes = AttentionAxes(self.attention_axes, len(query.shape))
        shape, expected = tuple(posterior_logits.shape), axes.logits_shape(self.num_heads, query.shape, value.shape)
        before, after = expected[: len(axes.others)], expected[len(axes.others) + 1 :]
        choices = (expected, (*before, 1, *after), (*before, *after))
        if not any(fits(shape, choice) for choice in choices):
            raise ValueError(
                f"`posterior_logits` must have shape (B, H, T, S), here {expected}, or (B, 1, T, S) or (B, T, S) for "
                f"all heads. Received: posterior_logits.shape={shape}"
            )

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        posterior_logits=None,
    ):
        self.check_posterior_logits(posterior_logits, query, value)
        if not self._is_softmax:
            self._check(query, value, key, query_mask, value_mask, key_mask, attention_mask)
        output = super().compute_output_spec(query, value, key)
        if not return_attention_scores:
            return output
        # Keras takes the keys to be as many as the queries.
        shape = AttentionAxes(self.attention_axes, len(query.shape)).logits_shape(
            self.num_heads, query.shape, value.shape
        )
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "prior": serialize_part(self.alignment_prior),
            "per_head_prior": self.per_head_prior,
        }


def _names_contextual(prior):
    return prior == "contextual" or (inspect.isclass(prior) and issubclass(prior, alignments.ContextualPrior))

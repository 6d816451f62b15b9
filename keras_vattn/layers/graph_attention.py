import keras
from keras import ops

from keras_vattn import alignments, random
from keras_vattn.alignments import AlignmentInputs, DenseKeys, LogNormalPrior, Prior, SegmentKeys, VariationalAlignment
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.support.masks import both, check_shape, first_mask
from keras_vattn.support.segments import gather, weighted_segment_sum
from keras_vattn.support.sublayers import claim, serialize_sublayer
from keras_vattn.support.validation import boolean, fraction, nonnegative_number, one_of, positive_integer

PRIORS_OVER = ("neighbourhood", "nodes")


@keras.saving.register_keras_serializable(package="keras_vattn")
class GraphAttention(AlignmentLayer):
    """Attention from the nodes of a graph to their neighbours, with weights that can be random variables.

    Node i attends to all nodes j with an edge from j to i (Velickovic et al. 2018, equations 1 to 6; Fan et al. 2020,
    appendix B.1). The logits phi of the edges give the attention weights w:

    - With `alignment="softmax"`, this is the layer of a graph attention network.
    - With another alignment, training draws the weights of each edge and head independently. Inference uses
      softmax(phi).

    Every head has its own W, a_target and a_source. The outputs of the heads are concatenated or averaged. Then the
    layer adds the bias b and applies the activation.

    Pass a graph as a list of edges. Time and memory grow with the number of edges. Pass an undirected edge as two
    edges, one for each direction. Pass a batch of graphs as one large graph: concatenate the nodes, and add the number
    of preceding nodes to both indices of each edge. `fit` and `keras_vattn.posterior_predictive` need a
    `tf.data.Dataset` with one graph per batch, because the arrays of nodes and edges differ in length.

    Formula:
        phi_(i,j) = "LeakyReLU"(a_("target")^T W "node"_i + a_("source")^T W "node"_j), quad w_i ~ "alignment"(phi_i)
        "output"_i = "activation"(sum_j w_(i,j) W "node"_j + b)

    Args:
        units: Width F of a head's output.
        num_heads: Number of heads H. Defaults to 1.
        concatenate: Whether to concatenate the outputs of the heads instead of averaging them. Defaults to `True`.
        alignment: As in `keras_vattn.Attention`. Defaults to `"softmax"`.
        prior: `None` for no KL, `"fixed"`, `"contextual"` or a `Prior`. A contextual prior computes probabilities Psi
            from the projected nodes. Defaults to `None`.
        per_head_prior: Whether a contextual prior has a separate network for each head. Defaults to `False`.
        prior_over: Nodes over which Psi sums to 1. `"neighbourhood"` means the neighbours of each node, as for the
            weights. `"nodes"` means all nodes, as in the code of Fan et al. 2020. `"nodes"` needs a contextual prior
            such as `keras_vattn.GammaPrior`, but not a `keras_vattn.ContextualPrior`. With lognormal weights and
            `"nodes"`, the KL stays above its `divergence_floor`. Defaults to `"neighbourhood"`.
        self_loops: Whether every node also attends to itself. A self-loop in `edges` is not counted twice. Defaults to
            `True`.
        negative_slope: Slope of the LeakyReLU for inputs below 0. Defaults to 0.2.
        activation: Activation of the output, as in Keras. Defaults to `None`.
        use_bias: Whether the output has a bias. Defaults to `True`.
        feature_dropout: Dropout rate of the node features in training, with one mask for all heads. Defaults to 0.0.
        dropout: Dropout rate of the weights in training, applied after the draw. Defaults to 0.0.
        kernel_initializer: Initializer of W, a_target and a_source. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of b. Defaults to `"zeros"`.
        kernel_regularizer: Regularizer of W, a_target and a_source. Defaults to `None`.
        bias_regularizer: Regularizer of b. Defaults to `None`.
        **kwargs: Arguments of `keras_vattn.StochasticLayer` (`kl_weight`, `seed`, ...) and of every Keras layer. For
            `kl_reduction`, every node is an example, and every node with an edge is a query. The code of Fan et al.
            2020 uses `kl_reduction="mean"`.

    Call arguments:
        nodes: (N, D), the features of each node.
        edges: Integers (E, 2), with a source j and a target i per edge: i attends to j. Indices must be in [0, N). The
            layer does not check the indices. TensorFlow raises an error for other indices on a CPU, but reads the last
            node under XLA.
        nodes_mask: Boolean (N,), `False` for padding. Edges from and to a padded node have weight 0. A padded node does
            not count as an example in the KL.
        edges_mask: Boolean (E,), `False` for padding. A padded edge has weight, gradient and KL exactly 0. The indices
            of a padded edge may be any integers.
        return_attention_scores: Whether to return the weights before dropout as well. Defaults to `False`.
        training: Whether to draw samples and use dropout. At inference the weights are softmax(phi), except under
            `keras_vattn.posterior_draws`.

    Returns:
        The output (N, H * F), or (N, F) for averaged heads. The output of a node without an edge is activation(b).
        `return_attention_scores=True` also returns the weights (H, E). With self-loops, the shape of the weights is
        (H, E + N). The weights of the self-loops come last, in the order of the nodes.

    Raises:
        ValueError: If a name is unknown, a number is out of range, or shapes do not match.
        ValueError: If a prior is used with a deterministic alignment, or has a different number of heads.

    Example:

    >>> nodes = keras.ops.ones((4, 3))
    >>> edges = keras.ops.array([[0, 1], [1, 0], [1, 2], [2, 1]])
    >>> layer = keras_vattn.GraphAttention(5, 2, alignment="weibull", prior="contextual")
    >>> output, weights = layer(nodes, edges, return_attention_scores=True, training=True)
    >>> output.shape, weights.shape, len(layer.losses)
    (TensorShape([4, 10]), TensorShape([2, 8]), 1)

    In `fit`, each element of the dataset is one graph:

    >>> import tensorflow as tf
    >>> inputs = [keras.Input((3,)), keras.Input((2,), dtype="int32")]
    >>> gat = keras_vattn.GraphAttention(2, alignment="weibull", prior="fixed", name="gat")
    >>> model = keras.Model(inputs, gat(*inputs))
    >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> labels = keras.ops.array([0, 1, 1, 0])
    >>> graph = tf.data.Dataset.from_tensors(((nodes, edges), labels))
    >>> list(model.fit(graph, epochs=2, shuffle=False, verbose=0).history)
    ['gat_kl', 'gat_kl_above_floor', 'loss']
    """

    mixes_examples = True
    feature_arguments = ("nodes",)

    def __init__(
        self,
        units,
        num_heads=1,
        concatenate=True,
        alignment="softmax",
        prior=None,
        per_head_prior=False,
        prior_over="neighbourhood",
        self_loops=True,
        negative_slope=0.2,
        activation=None,
        use_bias=True,
        feature_dropout=0.0,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        **kwargs,
    ):
        alignment = alignments.get(alignment)
        self.feature_dropout = fraction("feature_dropout", feature_dropout)
        self.dropout = fraction("dropout", dropout)
        super().__init__(
            draws_noise=alignment.is_stochastic or self.feature_dropout > 0.0 or self.dropout > 0.0, **kwargs
        )
        self.units = positive_integer("units", units)
        self.num_heads = positive_integer("num_heads", num_heads)
        self.concatenate = boolean("concatenate", concatenate)
        heads = {"num_heads": self.num_heads, "per_head_prior": per_head_prior}
        self.set_alignment(VariationalAlignment(alignment, prior, dtype=self.dtype_policy, **heads))
        self.per_head_prior = getattr(self.alignment_prior, "num_heads", None) is not None
        self.prior_over = one_of("prior_over", prior_over, PRIORS_OVER)
        if prior_over == "nodes" and not _psi_affects_prior(self.alignment, self.prior):
            raise ValueError(
                'prior_over="nodes" has no effect here. Use a contextual prior of another family, such as GammaPrior. '
                f"Received: alignment={self.alignment!r}, prior={self.prior!r}"
            )
        self.self_loops = boolean("self_loops", self_loops)
        self.negative_slope = nonnegative_number("negative_slope", negative_slope)
        self.activation = keras.activations.get(activation)
        self.use_bias = boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.supports_masking = True
        if self.is_stochastic:
            self.track_divergence(shown=self.alignment_prior is not None)

    def build(self, nodes_shape, edges_shape):
        _check_shapes(nodes_shape, edges_shape)
        claim(self, "prior", self.alignment_prior)

        def add_kernel(name, shape):
            initializer = self.kernel_initializer.clone()
            return self.add_weight(name=name, shape=shape, initializer=initializer, regularizer=self.kernel_regularizer)

        self.kernel = add_kernel("kernel", (nodes_shape[-1], self.num_heads * self.units))
        self.target_kernel = add_kernel("target_kernel", (self.units, self.num_heads))
        self.source_kernel = add_kernel("source_kernel", (self.units, self.num_heads))
        self.bias = None
        if self.use_bias:
            width = self.compute_output_shape(nodes_shape, edges_shape)[-1]
            options = {"initializer": self.bias_initializer, "regularizer": self.bias_regularizer}
            self.bias = self.add_weight(name="bias", shape=(width,), **options)
        if self.alignment_prior is not None and not self.alignment_prior.built:
            self.alignment_prior.build((self.num_heads, nodes_shape[0], self.units))

    def call(self, nodes, edges, nodes_mask=None, edges_mask=None, return_attention_scores=False, training=None):
        self._check(nodes, edges, nodes_mask, edges_mask)
        keys = self.segment_keys(nodes, edges, nodes_mask, edges_mask)
        noise = self.draw_noise(ops.shape(nodes), ops.shape(keys.row_ids)[0], self.draw_seeds(training))
        value = self._project(nodes, nodes_mask, noise)
        scored = self._score(value, keys, nodes_mask)
        weights = self.variational.weights(scored, noise)
        examples = None if nodes_mask is None else ops.sum(ops.cast(nodes_mask, "float32"))
        divergence = self.divergence_terms(scored, noise, keys, None, training, head_axis=0)
        self.add_divergence(**divergence, training=training, examples=examples)
        weights_after_dropout = weights * ops.cast(noise["dropout"], "float32") if "dropout" in noise else weights
        context = weighted_segment_sum(
            value, ops.transpose(weights_after_dropout), keys.key_ids, keys.row_ids, keys.num_rows
        )  # (N, H, F)
        context = ops.cast(context, self.compute_dtype)
        if self.concatenate:
            context = ops.reshape(context, (-1, self.num_heads * self.units))
        else:
            context = ops.mean(context, axis=1)
        output = self.activation(context if self.bias is None else ops.add(context, self.bias))
        return (output, ops.cast(weights, self.compute_dtype)) if return_attention_scores else output

    def segment_keys(self, nodes, edges, nodes_mask=None, edges_mask=None):
        """Return the `SegmentKeys` of a call, with self-loops after the edges."""
        count, valid, edges = ops.shape(nodes)[0], None, ops.cast(edges, "int64")
        if edges_mask is not None:
            valid = ops.cast(edges_mask, "bool")
            # Without this, an index of a padded edge could be out of range and raise an error.
            edges = ops.where(valid[:, None], edges, ops.zeros_like(edges))
        source, target = edges[:, 0], edges[:, 1]
        if nodes_mask is not None:
            present = ops.cast(nodes_mask, "bool")
            valid = both(valid, ops.take(present, source) & ops.take(present, target))
        if self.self_loops:
            loops = ops.arange(count, dtype="int64")
            valid_loops = ops.ones_like(loops, "bool") if nodes_mask is None else present
            valid = ops.concatenate([both(valid, source != target), valid_loops])
            source, target = (ops.concatenate([ends, loops]) for ends in (source, target))
        return SegmentKeys(target, count, source, valid)

    def draw_noise(self, nodes_shape, num_entries, seeds):
        """Return a dictionary with the noise of a call. If the call samples nothing, the dictionary is empty.

        Args:
            nodes_shape: (N, D).
            num_entries: Number of edges, including self-loops.
            seeds: Result of `draw_seeds`.
        """
        noise = self.draw_alignment((self.num_heads, num_entries), seeds)
        if seeds.dropout is not None and self.feature_dropout:
            seed = random.fold_in(seeds.dropout, 3)
            noise["feature_dropout"] = random.dropout_mask(nodes_shape, self.feature_dropout, seed)
        return noise

    def _project(self, nodes, nodes_mask, noise):
        """Return the nodes projected by each head, (N, H, F)."""
        if nodes_mask is not None:
            nodes = ops.where(ops.cast(nodes_mask, "bool")[:, None], nodes, ops.zeros_like(nodes))
        kernel = ops.cast(self.kernel, self.compute_dtype)
        if "feature_dropout" in noise:
            nodes = ops.where(noise["feature_dropout"], nodes, ops.zeros_like(nodes))
            # Scaling the kernel is cheaper than scaling the features.
            kernel = ops.multiply(kernel, 1.0 / (1.0 - self.feature_dropout))
        return ops.reshape(ops.matmul(nodes, kernel), (-1, self.num_heads, self.units))

    def _score(self, value, keys, nodes_mask):
        """Return the `AlignmentInputs` of the edges, with logits (H, E)."""
        node_scores = []
        for kernel in (self.target_kernel, self.source_kernel):
            product = ops.multiply(value, ops.transpose(ops.cast(kernel, value.dtype)))
            node_scores.append(ops.cast(ops.sum(product, axis=-1), "float32"))  # (N, H)
        logits = gather(node_scores[0], keys.row_ids) + gather(node_scores[1], keys.key_ids)
        logits = ops.transpose(ops.leaky_relu(logits, self.negative_slope))
        key = ops.transpose(value, (1, 0, 2))
        if self.prior_over == "nodes":
            support = DenseKeys(None if nodes_mask is None else ops.cast(nodes_mask, "bool")[None])
        else:
            support = None
        return AlignmentInputs(logits, keys, self.variational.log_psi(key, keys, support), psi_of_rows=support is None)

    def _check(self, nodes, edges, nodes_mask, edges_mask):
        _check_shapes(nodes.shape, edges.shape)
        if not keras.backend.is_int_dtype(edges.dtype):
            raise ValueError(
                '`edges` must be integers; a functional model needs keras.Input((2,), dtype="int32"). '
                f"Received: edges.dtype={keras.backend.standardize_dtype(edges.dtype)}"
            )
        for name, mask, expected, meaning in (
            ("nodes_mask", nodes_mask, nodes.shape[:1], "(N,)"),
            ("edges_mask", edges_mask, edges.shape[:1], "(E,)"),
        ):
            if mask is not None:
                check_shape(name, mask, tuple(expected), meaning)

    def _scored(self, arguments, options):
        call_arguments = self._bind(arguments, options)
        nodes, edges = call_arguments["nodes"], call_arguments["edges"]
        masks = call_arguments["nodes_mask"], call_arguments["edges_mask"]
        self._check(nodes, edges, *masks)
        keys = self.segment_keys(nodes, edges, *masks)
        return self._score(self._project(nodes, masks[0], {}), keys, masks[0])

    def compute_output_shape(self, nodes_shape, edges_shape):
        return (nodes_shape[0], self.units * (self.num_heads if self.concatenate else 1))

    def compute_output_spec(
        self, nodes, edges, nodes_mask=None, edges_mask=None, return_attention_scores=False, training=None
    ):
        self._check(nodes, edges, nodes_mask, edges_mask)
        shape = self.compute_output_shape(nodes.shape, edges.shape)
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        entries, count = edges.shape[0], nodes.shape[0]
        if self.self_loops:
            entries = None if None in (entries, count) else entries + count
        return output, keras.KerasTensor((self.num_heads, entries), dtype=self.compute_dtype)

    def compute_mask(self, nodes, previous_mask=None):
        return first_mask(previous_mask)

    def get_config(self):
        return {
            **super().get_config(),
            **self.stochastic_config(),
            "units": self.units,
            "num_heads": self.num_heads,
            "concatenate": self.concatenate,
            "alignment": keras.saving.serialize_keras_object(self.alignment),
            "prior": serialize_sublayer(self.alignment_prior),
            "per_head_prior": self.per_head_prior,
            "prior_over": self.prior_over,
            "self_loops": self.self_loops,
            "negative_slope": self.negative_slope,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "feature_dropout": self.feature_dropout,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
        }


def _psi_affects_prior(alignment, prior):
    """Return whether the prior depends on `prior_over`."""
    if prior is None or not prior.reads_keys or type(prior).distribution is Prior.distribution:
        return False
    return not (alignment.kl_of == "weights" and isinstance(prior, LogNormalPrior))


def _check_shapes(nodes_shape, edges_shape):
    if len(nodes_shape) != 2 or len(edges_shape) != 2 or edges_shape[1] not in (2, None):
        raise ValueError(
            "`nodes` must have shape (N, D), and `edges` (E, 2): the source and the target of each edge. "
            f"Received: nodes.shape={tuple(nodes_shape)}, edges.shape={tuple(edges_shape)}"
        )

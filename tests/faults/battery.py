"""Faults that the checks of the battery are there to find, one or two for each check without any elsewhere."""

from faults.fault import Fault

CALLS = ("tests/battery/test_calls.py",)
FILES = ("tests/battery/test_config_and_files.py",)
DIVERGENCE = ("tests/battery/test_divergence.py",)
DRAWS = ("tests/battery/test_draws.py",)
MASKS = ("tests/battery/test_masks.py",)
REPLICAS = ("tests/battery/test_replicas.py",)

FAULTS = [
    Fault(
        "config: free bits are lost",
        "layers/gaussian_latent.py",
        '            "free_bits": self.free_bits,\n',
        "",
        FILES,
        "test_config and latent",
    ),
    Fault(
        "config: every decoder comes back with an LSTM",
        "recurrent/attention_decoder.py",
        '"cell": self._cell_name or serialize_sublayer(self.cells[0]),',
        '"cell": "lstm",',
        FILES,
        "config_of_a_built_layer and decoder-gru",
    ),
    Fault(
        "config: a negative number of nats is free",
        "layers/gaussian_latent.py",
        'nonnegative_number("free_bits", free_bits)',
        "free_bits",
        FILES,
        "config_errors and latent",
    ),
    Fault(
        "build: the score of a categorical attention waits for the first call",
        "latent_alignment/categorical_attention.py",
        "            if not self.score.built:\n                self.score.build(query_shape, key_shape)\n",
        "",
        FILES,
        "build_creates_all_weights and categorical",
    ),
    Fault(
        "save: the network of a contextual prior begins anew",
        "alignments/priors.py",
        "    def log_psi(self, key, keys):\n        dtype = self.compute_dtype\n",
        "    def load_own_variables(self, store):\n        pass\n\n"
        "    def log_psi(self, key, keys):\n        dtype = self.compute_dtype\n",
        FILES,
        "save_and_load and contextual",
    ),
    Fault(
        "save: the moving average of a baseline begins anew",
        "latent_alignment/latent_log_likelihood.py",
        "        if store.keys() and self.average is not None:\n",
        "        if False:\n",
        FILES,
        "save_and_load and moving-average",
    ),
    Fault(
        "weights: those of a decoder's attention are not the decoder's",
        "recurrent/attention_decoder.py",
        "        self.attention = None if attention is None else",
        '        vars(self)["attention"] = None if attention is None else',
        FILES,
        "config_of_a_built_layer and decoder-lstm",
    ),
    Fault(
        "export: the kernels of a latent are those of the first trace",
        "layers/gaussian_layer.py",
        "        kernel = ops.concatenate([self.mean_kernel, self.log_scale_kernel], axis=-1)\n",
        "        kernel = ops.concatenate([self.mean_kernel, self.log_scale_kernel], axis=-1)\n"
        '        kernel = vars(self).setdefault("first_kernel", kernel)\n',
        FILES,
        "export and (latent or stochastic)",
    ),
    Fault(
        "symbolic: the context of a decoder is as wide as its units",
        "recurrent/attention_decoder.py",
        'shape["context"] = (*inputs_shape[:-1], self._context_width(memory_shape))',
        'shape["context"] = (*inputs_shape[:-1], self.units)',
        CALLS,
        "symbolic and decoder",
    ),
    Fault(
        "graph: steps are masked eagerly alone",
        "recurrent/recurrent_decoder.py",
        "        if inputs_mask is not None:\n",
        "        if inputs_mask is not None and tf.executing_eagerly():\n",
        CALLS,
        "symbolic and decoder-gru",
    ),
    Fault(
        "XLA: masks of dropout are Keras's, which are other ones there",
        "fast/dropout.py",
        "        if not training or not 0 < self.rate < 1:\n",
        "        if True:\n",
        CALLS,
        "fit_under_xla and dropout",
    ),
    Fault(
        "XLA: a negative number of a seed is another one there",
        "random.py",
        "seed=tf.cast(tf.bitcast(seed, tf.uint32), tf.int64)",
        "seed=seed",
        (*CALLS, "tests/fast/test_dropout.py"),
        "(fit_under_xla and graph) or negative_numbers",
    ),
    Fault(
        "loop in graph: what a step keeps of the last has no gradient",
        "support/loop.py",
        "of_before = [tf.zeros_like(old) if x is None else x for",
        "of_before = [tf.zeros_like(old) for",
        CALLS,
        "fit_of_a_loop and decoder-gru",
    ),
    Fault(
        "half precision: masks of dropout are Keras's, which are other ones there",
        "fast/dropout.py",
        "        if not training or not 0 < self.rate < 1:\n",
        '        if not training or not 0 < self.rate < 1 or self.compute_dtype != "float32":\n',
        CALLS,
        "fit_in_half_precision and dropout",
    ),
    Fault(
        "half precision: Psi is rounded",
        "alignments/priors.py",
        "return keys.log_softmax(keys.per_entry(logits))",
        "return ops.cast(keys.log_softmax(keys.per_entry(logits)), dtype)",
        ("tests/alignments/test_variational_alignment.py",),
        "psi_is_float32",
    ),
    Fault(
        "half precision: the nodes of a graph are float32 whatever the policy",
        "layers/graph_attention.py",
        "        context = ops.cast(context, self.compute_dtype)\n",
        "",
        CALLS,
        "test_half_precision and graph",
    ),
    Fault(
        "divergence: training has half of the KL",
        "layers/stochastic_layer.py",
        "        weight = self.kl_weight\n",
        "        weight = 0.5 * self.kl_weight\n",
        DIVERGENCE,
        "of_the_same_posterior",
    ),
    Fault(
        "noise shared over examples",
        "layers/gaussian_layer.py",
        "random.normal(shape, seed)}",
        "random.normal((1, *shape[1:]), seed) + ops.zeros(shape)}",
        DRAWS,
        "between_examples and latent",
    ),
    Fault(
        "draws: a layer without a posterior is taken",
        "draws/posterior_draws.py",
        "    if not layers:\n",
        "    if False:\n",
        DRAWS,
        "without_a_posterior",
    ),
    Fault(
        "latent: a candidate without a probability has a little of one",
        "latent_alignment/estimators.py",
        "ops.logsumexp(without_empty_rows(log_prior) + log_likelihood, axis=-1)",
        "ops.logsumexp(ops.maximum(without_empty_rows(log_prior), -40.0) + log_likelihood, axis=-1)",
        MASKS,
        "without_a_probability",
    ),
    Fault(
        "attention: the weights that are returned know no mask",
        "layers/attention.py",
        '"mean": mean, "weights": weights, "logits"',
        '"mean": mean, "weights": ops.cast(ops.softmax(logits), self.compute_dtype), "logits"',
        MASKS,
        "have_no_weight and attention",
    ),
    Fault(
        "replicas: each has its share of the KL, which is averaged again",
        "layers/stochastic_layer.py",
        "        loss = self._current_kl_weight(training) * _quotient(in_loss, denominator)\n",
        "        loss = self._current_kl_weight(training) * _quotient(in_loss, denominator)\n"
        "        loss = loss / tf.distribute.get_replica_context().num_replicas_in_sync\n",
        REPLICAS,
        "are_one and gaussian",
    ),
]

from faults.fault import Fault

BATTERY = "tests/battery"
STOCHASTIC = "tests/layers/test_stochastic_alignments.py"
VARIATIONAL = "tests/alignments/test_variational_alignment.py"
SEGMENTS = "tests/alignments/test_segment_keys.py"

FAULTS = [
    Fault(
        "mask by multiplication",
        "alignments/keys.py",
        "x if self.valid is None else ops.where(self.valid, x, ops.full_like(x, other))",
        "x if self.valid is None else x * ops.cast(self.valid, x.dtype)",
        ("tests/alignments", BATTERY),
        "with_a_mask or masked_keys",
    ),
    Fault(
        "weights not renormalised after masking",
        "alignments/dense_keys.py",
        "self.where_valid(tf.nn.softmax(self.mask_out(logits)), 0.0)",
        "self.where_valid(tf.nn.softmax(logits), 0.0)",
        ("tests/alignments", BATTERY),
        "with_a_mask or masked_keys",
    ),
    Fault(
        "alignment: prior softmax over padding",
        "alignments/priors.py",
        "        return keys.log_softmax(keys.per_entry(ops.squeeze(logits, -1)))\n",
        "        return ops.log_softmax(ops.cast(keys.per_entry(ops.squeeze(logits, -1)), 'float32'), axis=-1)\n",
        (STOCHASTIC, BATTERY),
        "normalised_over or (masked_keys and weibull-contextual)",
    ),
    Fault(
        "alignment: log Gamma(1 + 1/k) dropped from the scale, in distribution() and the KL",
        "alignments/weibull.py",
        "        return math.lgamma(1.0 + 1.0 / self.k)\n",
        "        return 0.0\n",
        ("tests/alignments",),
        "float64 or unnormalised",
    ),
    Fault(
        "statistics: a softmax in place of the weights",
        "alignments/variational_alignment.py",
        "keys, expected = scored.keys, self._weights(self.logits_of_q(scored, {}), None, scored.keys)",
        "keys, expected = scored.keys, scored.keys.softmax(self.logits_of_q(scored, {}))",
        (VARIATIONAL,),
        "statistics",
    ),
    Fault(
        "statistics: the same draws in every part",
        "alignments/variational_alignment.py",
        "random.fold_in(seed, start), step)",
        "seed, step)",
        (VARIATIONAL,),
        "deviation",
    ),
    Fault(
        "a drawn KL at the mean",
        "alignments/variational_alignment.py",
        "drawn = self.alignment.noise(ops.shape(logits), random.as_seed(0))",
        "drawn = ops.zeros(ops.shape(logits))",
        (VARIATIONAL, SEGMENTS),
        "fixed_draw or mean_is",
    ),
    Fault(
        "segments: a row is normalised with its neighbours",
        "alignments/keys.py",
        "self.spread(self.sum(exponentials))",
        "ops.sum(exponentials)",
        (SEGMENTS,),
        "reductions or dense_keys",
    ),
    Fault(
        "segments: rows read as keys",
        "alignments/segment_keys.py",
        "return tf.gather(key_value, self.key_ids, axis=-1)",
        "return tf.gather(key_value, self.row_ids, axis=-1)",
        (SEGMENTS,),
        "reductions or dense_keys",
    ),
    Fault(
        "segments: padding counts",
        "alignments/segment_keys.py",
        "return self._reduce(tf.math.unsorted_segment_sum, self.where_valid(x, 0))",
        "return self._reduce(tf.math.unsorted_segment_sum, x)",
        (SEGMENTS,),
        "padding",
    ),
    Fault(
        "segments: sums of a rank in float32",
        "alignments/segment_keys.py",
        'sizes = ops.cast(ops.take_along_axis(self.zero_masked(x), order, axis=-1), "float64")',
        'sizes = ops.cast(ops.take_along_axis(self.zero_masked(x), order, axis=-1), "float32")',
        (SEGMENTS,),
        "keep_their_digits",
    ),
]

from faults.fault import Fault

BATTERY = "tests/battery"
STOCHASTIC = "tests/layers/test_stochastic_alignments.py"

FAULTS = [
    Fault(
        "mask by multiplication",
        "alignments/dense_keys.py",
        "ops.where(self.mask, logits, ops.full_like(logits, -3.4e38))",
        'logits * ops.cast(self.mask, "float32")',
        ("tests/alignments", BATTERY),
        "with_a_mask or masked_keys",
    ),
    Fault(
        "weights not renormalised after masking",
        "alignments/dense_keys.py",
        "        weights = tf.nn.softmax(self.mask_out(logits))\n",
        "        weights = tf.nn.softmax(logits)\n",
        ("tests/alignments", BATTERY),
        "with_a_mask or masked_keys",
    ),
    Fault(
        "alignment: prior softmax over padding",
        "alignments/priors.py",
        "        return keys.log_softmax(ops.swapaxes(logits, -1, -2))\n",
        '        return ops.log_softmax(ops.cast(ops.swapaxes(logits, -1, -2), "float32"), axis=-1)\n',
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
]

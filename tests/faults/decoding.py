from faults.fault import Fault

BEAMS = "tests/decoding/test_beam_search.py"
LOSSES = "tests/losses/test_sequence_crossentropy.py"
UNCERTAINTY = "tests/metrics/test_uncertainty.py"

FAULTS = [
    Fault(
        "a finished sentence goes on",
        "decoding/decode.py",
        "        written = tf.where(finished, pad_id, chosen)\n",
        "        written = chosen\n",
        ("tests/decoding",),
        "finished or greedy",
    ),
    Fault(
        "uncertainty: Welch's test with pooled degrees of freedom",
        "metrics/pavpu.py",
        "    freedom = (len(first) - 1) / (share**2 + (1.0 - share) ** 2)\n",
        "    freedom = np.full_like(share, 2.0 * len(first) - 2.0)\n",
        (UNCERTAINTY,),
        "p_values",
    ),
    Fault(
        "uncertainty: rounding taken for variance",
        "metrics/pavpu.py",
        "    return np.where(x.max(axis=0) == x.min(axis=0), 0.0, x.var(axis=0, ddof=1))\n",
        "    return x.var(axis=0, ddof=1)\n",
        (UNCERTAINTY,),
        "variance",
    ),
    Fault(
        "uncertainty: ties in the order of the examples",
        "metrics/uncertainty.py",
        "np.repeat(np.bincount(level, weights=errors) / counts, counts)",
        "errors[np.argsort(uncertainty, kind='stable')]",
        (UNCERTAINTY,),
        "ties",
    ),
    Fault(
        "uncertainty: calibration bins closed below",
        "metrics/uncertainty.py",
        "np.searchsorted(np.arange(1, num_bins) / num_bins, confidence)",
        "np.searchsorted(np.arange(1, num_bins) / num_bins, confidence, side='right')",
        (UNCERTAINTY,),
        "edge",
    ),
    Fault(
        "votes in a loss: an impossible word without votes",
        "losses/sequence_crossentropy.py",
        "weights * ops.where(ops.equal(weights, 0.0), 0.0, log_words)",
        "weights * log_words",
        (LOSSES,),
        "impossible",
    ),
    Fault(
        "votes in a loss: smoothed as one vote",
        "losses/sequence_crossentropy.py",
        "spread = ops.mean(weights, axis=-1, keepdims=True)",
        "spread = 1.0 / y_pred.shape[-1]",
        (LOSSES,),
        "votes",
    ),
    Fault(
        "votes in a loss: what stands at masked steps counts",
        "losses/sequence_crossentropy.py",
        'weights = ops.where(valid[..., None], ops.cast(weights, "float32"), 0.0)',
        'weights = ops.cast(weights, "float32")',
        (LOSSES,),
        "votes",
    ),
    Fault(
        "a beam that has ended goes on",
        "decoding/beam_search.py",
        "tf.where(ended, tf.where(own, 0.0, DEAD), new)",
        "new",
        (BEAMS,),
        "beam",
    ),
    Fault(
        "decoder states do not follow their beams",
        "decoding/beam_search.py",
        "tf.ensure_shape(tf.gather(x, chosen), old.shape)",
        "tf.ensure_shape(x, old.shape)",
        (BEAMS,),
        "beam",
    ),
    Fault(
        "length penalty of one word more",
        "decoding/beam_search.py",
        "((5.0 + tf.cast(length, tf.float32)) / 6.0)",
        "((6.0 + tf.cast(length, tf.float32)) / 6.0)",
        (BEAMS,),
        "beam",
    ),
    Fault(
        "all beams start as the same sentence",
        "decoding/beam_search.py",
        "tf.where(tf.range(num_beams) == 0, zeros, DEAD)",
        "zeros",
        (BEAMS,),
        "beam",
    ),
]

from faults.fault import Fault

BATTERY = "tests/battery"
STOCHASTIC = "tests/layers/test_stochastic_alignments.py"
ADD_DIVERGENCE = "        self.add_divergence(divergence, valid, entries=entries, training=training)\n"

FAULTS = [
    Fault(
        "KL unmasked",
        "layers/stochastic_layer.py",
        "ops.sum(divergence if valid is None else ops.where(valid, divergence, ops.zeros_like(divergence)))",
        "ops.sum(divergence)",
        (BATTERY,),
        "masked_queries or row_without_a_valid_key",
    ),
    Fault(
        "KL in half precision",
        "layers/stochastic_layer.py",
        '    divergence = ops.cast(divergence, "float32")\n    return ops.sum',
        '    divergence = ops.cast(divergence, "bfloat16")\n    return ops.sum',
        (BATTERY,),
        "computed_in_float32 or one_loss_per_call",
    ),
    Fault(
        "noise shared over steps",
        "contexts/gaussian_context.py",
        "        return random.normal(shape, seed)\n",
        "        return random.normal((shape[0], 1, shape[2]), seed) + ops.zeros(shape)\n",
        (BATTERY,),
        "noise_differs_between_steps",
    ),
    Fault(
        "KL counted twice",
        "layers/attention.py",
        ADD_DIVERGENCE,
        2 * ADD_DIVERGENCE,
        (BATTERY,),
        "one_loss_per_call",
    ),
    Fault(
        "KL of the last step only",
        "layers/attention.py",
        ADD_DIVERGENCE,
        "        valid = None if valid is None else valid[:, -1:]\n"
        + ADD_DIVERGENCE.replace("divergence, valid, entries=entries", "divergence[:, -1:], valid"),
        (BATTERY,),
        "one_loss_per_call",
    ),
    Fault(
        "`training` ignored",
        "layers/stochastic_layer.py",
        "        if training:\n            return random.draw_seed(self.seed_generator)\n",
        "        if True:\n            return random.draw_seed(self.seed_generator)\n",
        (BATTERY,),
        "inference_is",
    ),
    Fault(
        "no noise in training",
        "layers/stochastic_layer.py",
        "        if training:\n            return random.draw_seed(self.seed_generator)\n",
        "",
        (BATTERY,),
        "seeds",
    ),
    Fault(
        "h-bar over padding",
        "contexts/gaussian_context.py",
        "        if keys.mask is None:\n            return ops.mean",
        "        if True:\n            return ops.mean",
        ("tests/contexts", BATTERY),
        "h_bar or masked_keys",
    ),
    Fault(
        "no gradient through h-bar",
        "contexts/gaussian_context.py",
        '        value = ops.cast(value, "float32")\n        if keys.mask',
        '        value = ops.stop_gradient(ops.cast(value, "float32"))\n        if keys.mask',
        ("tests/contexts",),
        "h_bar",
    ),
    Fault(
        "noise on a row without a valid key",
        "layers/attention.py",
        "ops.where(any_valid[..., None], context_noise, ops.zeros_like(context_noise))",
        "context_noise",
        (BATTERY,),
        "row_without_a_valid_key",
    ),
    Fault(
        "annealing at inference",
        "layers/stochastic_layer.py",
        "            return self.kl_weight * final_value(self.kl_annealing)\n",
        "            training = False\n",
        ("tests/layers/test_gaussian_attention.py",),
        "annealed_by",
    ),
    Fault(
        "alignment: the posterior's row shifted by one",
        "layers/attention.py",
        "posterior_logits = as_finite_float32(posterior_logits)",
        "posterior_logits = ops.roll(as_finite_float32(posterior_logits), 1, axis=1)",
        (STOCHASTIC,),
        "posterior_logits",
    ),
    Fault(
        "alignment: q and p exchanged in the KL",
        "layers/attention.py",
        '            p = memory["prior"] if posterior_logits is None else {"logits": logits}\n'
        "            drawn_logits = self._posterior_logits(logits, posterior_logits, noise)\n",
        '            p = memory["prior"] if posterior_logits is None else {"logits": posterior_logits}\n'
        "            drawn_logits = logits\n",
        (STOCHASTIC,),
        "posterior_logits",
    ),
]

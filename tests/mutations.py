"""Seeded faults: break the library on purpose, one fault at a time, and see which test notices.

    python tests/mutations.py            # all faults
    python tests/mutations.py training   # the faults whose name holds a word

Every fault is a textual patch on a copy of the library in a temporary folder. Prints a Markdown table; the exit status
is 1 if a fault survives its tests or if the tests fail without one.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    tests: tuple
    keyword: str


BATTERY = "tests/battery"
BEAMS = "tests/decoding/test_beam_search.py"
CATEGORICAL = "tests/layers/test_categorical_attention.py"
CATEGORICAL_DRAWS = "tests/layers/test_categorical_draws.py"
CATEGORICAL_MASKS = "tests/layers/test_categorical_masks.py"
ESTIMATORS = "tests/estimators"
WORDS = "tests/layers/test_token_log_likelihood.py"
STOCHASTIC = "tests/layers/test_stochastic_alignments.py"
PREDICTIVE, UNCERTAINTY = "tests/posterior_predictive", "tests/metrics/test_uncertainty.py"
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
        "the same noise every call",
        "random.py",
        "seed_generator.next()",
        "seed_generator.state.value",
        (BATTERY,),
        "seeds or posterior_draws",
    ),
    Fault(
        "the same noise in every replica",
        "random.py",
        "    return fold_in(seed, context.replica_id_in_sync_group)\n",
        "    return seed\n",
        (BATTERY,),
        "replicas_draw_differently and gaussian-attention",
    ),
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
        "the drawn context fed where its mean is asked for",
        "layers/attention_decoder.py",
        '        if self.feeding == "sampled":\n            return attended["context"]\n',
        '        if True:\n            return attended["context"]\n',
        ("tests/layers/test_attention_decoder.py",),
        "query_and_feeding",
    ),
    Fault(
        "a masked step moves the state",
        "layers/attention_decoder.py",
        'keep = lambda new, old: ops.where(x["mask"][:, None], new, old)  # noqa: E731',
        "keep = lambda new, old: new",
        ("tests/layers/test_attention_decoder.py",),
        "hold_the_state",
    ),
    Fault(
        "a finished sentence goes on",
        "decoding/decode.py",
        "        written = tf.where(finished, pad_id, chosen)\n",
        "        written = chosen\n",
        ("tests/decoding",),
        "finished or greedy",
    ),
    Fault(
        "predictive: all draws of a stack from one seed",
        "random.py",
        "lambda one: _bits(part, one), seed)",
        "lambda one: _bits(part, seed[0]), seed)",
        (PREDICTIVE, "tests/test_random.py"),
        "stack or however_many",
    ),
    Fault(
        "predictive: batches share their noise",
        "posterior_predictive.py",
        "        seed = random.fold_in(seed, index)\n",
        "",
        (PREDICTIVE,),
        "share_noise",
    ),
    Fault(
        "predictive: the model's variables change",
        "_model_noise.py",
        "            stack.enter_context(keras.StatelessScope(collect_losses=True, initialize_variables=False))\n",
        "",
        (PREDICTIVE,),
        "state_changes or training_goes_on",
    ),
    Fault(
        "predictive: training mode instead of dropout",
        "posterior_predictive.py",
        "model(inputs, training=False)",
        "model(inputs, training=True)",
        (PREDICTIVE,),
        "temperature or averages",
    ),
    Fault(
        "predictive: an attention with dropout runs as in training",
        "_model_noise.py",
        'return {**noise, "dropout": in_training["dropout"]} if "dropout" in in_training else noise',
        "return in_training",
        (PREDICTIVE,),
        "attention_with_dropout",
    ),
    Fault(
        "predictive: normalisation inside a dropping layer trains",
        "_model_noise.py",
        "with_training(layer.call, False)",
        "layer.call",
        (PREDICTIVE,),
        "normalis or normaliz",
    ),
    Fault(
        "predictive: rows without a limit",
        "posterior_predictive.py",
        "min(num_samples, max_rows // max(1, *rows))",
        "num_samples",
        (PREDICTIVE,),
        "max_rows or however_many",
    ),
    Fault(
        "predictive: one dropout mask for all draws of a stack",
        "_model_noise.py",
        'replaced(generator, "next", lambda ordered=True: tf.bitcast(seed, tf.uint32))',
        'replaced(generator, "next", lambda ordered=True: tf.bitcast(seeds[0], tf.uint32))',
        (PREDICTIVE,),
        "however_many",
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
        "alignment: the posterior's row shifted by one",
        "layers/attention.py",
        "posterior_logits = as_finite_float32(posterior_logits)",
        "posterior_logits = ops.roll(as_finite_float32(posterior_logits), 1, axis=1)",
        (STOCHASTIC,),
        "posterior_logits",
    ),
    Fault(
        "alignment: score term missing",
        "estimators.py",
        "    return ops.mean(log_likelihood + reward * _gradient_of(log_probability), axis=-1)\n",
        "    return ops.mean(log_likelihood, axis=-1)\n",
        (ESTIMATORS,),
        "score_function",
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
    Fault(
        "latent: the own draw in the leave-one-out baseline",
        "estimators.py",
        "ops.where(own, others[..., None], log_weights[..., None, :])",
        "log_weights[..., None, :] + 0.0 * others[..., None]",
        (ESTIMATORS,),
        "leave_one_out or importance_weighted_gradient",
    ),
    Fault(
        "latent: the weights of wake-sleep differentiated",
        "estimators.py",
        "log_weights = ops.stop_gradient(_log_weights(log_likelihood, log_prior, log_posterior))",
        "log_weights = _log_weights(log_likelihood, log_prior, log_posterior)",
        (ESTIMATORS,),
        "wake_sleep",
    ),
    Fault(
        "latent: the soft baseline under q",
        "layers/candidates.py",
        "soft, _, _ = mixture(ops.exp(log_prior), value)",
        "soft, _, _ = mixture(ops.exp(log_prior if log_posterior is None else log_posterior), value)",
        (CATEGORICAL,),
        "soft_baseline",
    ),
    Fault(
        "latent: a prediction weighs its draws by their probability",
        "layers/candidates.py",
        "log_weights = ops.full_like(log_prior, -math.log(log_prior.shape[-1]))",
        "log_weights = log_prior",
        (CATEGORICAL, CATEGORICAL_DRAWS),
        "counts_in_a_prediction or draws_from_p",
    ),
    Fault(
        "latent: KL(p || q)",
        "categorical.py",
        "ops.exp(log_posterior) * (log_posterior - log_prior)",
        "ops.exp(log_prior) * (log_prior - log_posterior)",
        ("tests/layers/test_categorical_divergence.py",),
        "divergence",
    ),
    Fault(
        "latent: a masked key is as probable as p = 1",
        "categorical.py",
        "return values if keys.mask is None else ops.where(keys.mask, values, LOG_ZERO)",
        "return values",
        (CATEGORICAL, CATEGORICAL_MASKS),
        "masked_keys or probabilities_and",
    ),
    Fault(
        "latent: K-max without the renormalisation",
        "categorical.py",
        "log_probability - total, LOG_ZERO",
        "log_probability, LOG_ZERO",
        (ESTIMATORS,),
        "k_max",
    ),
    Fault(
        "latent: draws at evaluation",
        "layers/latent_objective.py",
        "pair = self.in_training if training else self.at_inference",
        "pair = self.in_training",
        (CATEGORICAL_DRAWS,),
        "inference_has_no_noise",
    ),
    Fault(
        "latent: a row without a valid key has the value -1e30",
        "estimators.py",
        "ops.logsumexp(without_empty_rows(log_prior) + log_likelihood, axis=-1)",
        "ops.logsumexp(log_prior + log_likelihood, axis=-1)",
        (CATEGORICAL_MASKS,),
        "row_without_a_valid_key",
    ),
    Fault(
        "latent: the kept chunk is also computed again",
        "chunked_softmax.py",
        "tf.where(place < size, 0.0, upstream), num_chunks, size)",
        "upstream, num_chunks, size)",
        (WORDS,),
        "value_and_gradients",
    ),
    Fault(
        "latent: words that do not count have a gradient",
        "chunked_softmax.py",
        "            upstream = tf.where(wanted, upstream, 0.0)\n",
        "",
        (WORDS,),
        "do_not_count or value_and_gradients",
    ),
    Fault(
        "latent: the moving average holds this call",
        "layers/latent_log_likelihood.py",
        "        return ops.divide_no_nan(total, weight)\n",
        "        return ops.divide_no_nan(self.average[0], self.average[1])\n",
        ("tests/layers/test_latent_log_likelihood.py",),
        "moving_average",
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


def copy_project(folder):
    ignored = shutil.ignore_patterns("__pycache__", "applications", "benchmarks")
    for name in ("keras_vattn", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_python(folder, arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run(folder, arguments):
    """Run pytest in the copy; returns whether it passed and the tests that failed."""
    result = run_python(folder, ["-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments])
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, flags=re.MULTILINE)
    if result.returncode not in (0, 1) and not failed:
        raise SystemExit(result.stdout + result.stderr)
    return result.returncode == 0, failed


def apply(fault, folder):
    path = folder / "keras_vattn" / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(
            f"{fault.name}: the old text must be in {fault.file} once. Received: {text.count(fault.old)} times"
        )
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return path, text


def main(words):
    faults = [fault for fault in FAULTS if all(word in fault.name for word in words)]
    if not faults:
        raise SystemExit(f"No fault has all of these words in its name. Received: {' '.join(words)}")
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        copy_project(folder)
        origin = run_python(folder, ["-c", "import keras_vattn; print(keras_vattn.__file__)"]).stdout.strip()
        if not origin.startswith(str(folder)):
            raise SystemExit(f"The tests would not import the copy. Received: {origin}")
        files = sorted({file for fault in faults for file in fault.tests})
        passed, failed = run(folder, [*files, "-k", " or ".join(f"({fault.keyword})" for fault in faults)])
        if not passed:
            raise SystemExit("The tests fail without a fault: " + ", ".join(failed))
        print("| fault | first failing test |", "|---|---|", sep="\n", flush=True)
        for fault in faults:
            path, text = apply(fault, folder)
            passed, failed = run(folder, ["-x", *fault.tests, "-k", fault.keyword])
            path.write_text(text, encoding="utf-8")
            survivors += passed
            print(f"| {fault.name} | {'**survived**' if passed else f'`{failed[0]}`'} |", flush=True)
    print(f"\n{len(faults) - survivors} of {len(faults)} faults found.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

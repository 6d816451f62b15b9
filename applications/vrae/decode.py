"""Generate, reconstruct and score sentences with a trained model. `Writer` can be exported as a SavedModel.

model.py defines the latent variables z_enc, z_t and c~_t, their prior p and their posterior q.
Shapes: B sentences, S words, T words with the end token, Z units of z_enc, L words of a generated sentence, n samples.
"""

import contextlib
import dataclasses
import itertools

import tensorflow as tf
from keras import ops
from tensorflow_probability import distributions as tfd

import keras_vattn
from applications.common.errors import InputError
from applications.common.serving import Untracked, in_graph
from applications.text.module import FORBIDDEN, IDS, TEXTS
from applications.text.readers import aligned, has_word, read_input
from applications.text.text import END, PAD, START
from keras_vattn import decoding, random

# Default number of new sentences, and default number of sentences per interpolation.
NUM_NEW, NUM_BETWEEN, BATCH = 10, 5, 64
_CODES, _INTEGER = tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([], tf.int32)
_SEED = tf.TensorSpec([2], tf.int32)


class Writer(tf.Module):
    """Generates, encodes, reconstructs and scores sentences with the model of a `Run`.

    Methods that compute or read z_enc require a model with z_enc.

    Args:
        run: `Run`.
        sampling: `SamplingOptions`; defaults to the options of the run.
    """

    def __init__(self, run, sampling=None):
        super().__init__(name="writer")
        self.variables_of_model = [variable.value for variable in run.models.training.variables]
        self.text_encoder = run.codec
        self._models, self._sampling = Untracked(run.models), Untracked(sampling or run.options.sampling)
        self._max_length, self._width = run.options.text.max_length, run.options.network.latent_units

    @in_graph(_INTEGER, _INTEGER)
    def generate(self, num, seed):
        """Return new sentences (num,). All latent variables are sampled from their priors."""
        models, seed, z, noise = self._models.value, random.as_seed(seed), None, ()
        if models.latent is not None:
            z = random.normal((num, self._width), random.fold_in(seed, 0))
        if models.attends:
            with keras_vattn.posterior_draws(models.training, seed=random.fold_in(seed, 1)):
                noise = models.decoder.draw_noise(num, self._max_length + 1, models.decoder.prepare_memory())
        words = dataclasses.asdict(self._sampling.value)
        step, start = self._step(z, noise), self._start(num)
        return self.text_encoder.decode(decoding.sample(step, **start, seed=random.fold_in(seed, 2), **words)["ids"])

    @in_graph(TEXTS, _INTEGER, _INTEGER)
    def score(self, texts, num_samples, seed):
        """Return "log_likelihood_bound" (B,) and "num_tokens" (B,), which counts the end token.

        The bound on log p(x), in nats, is importance-weighted. With one sample, the bound is an estimate of the ELBO.
        """
        target_input, target, num_tokens = self.text_encoder.encode_targets(texts, self._max_length)
        log_weights = self.log_weights(self._ids(texts), target_input, target, num_samples, seed)
        bound = tf.reduce_logsumexp(log_weights, axis=0) - tf.math.log(tf.cast(num_samples, tf.float32))
        return {"log_likelihood_bound": bound, "num_tokens": num_tokens}

    @in_graph(TEXTS)
    def encode(self, texts):
        """Return q(z_enc | x) of each text as "mean" and "standard_deviation", (B, Z) each."""
        code = self.posterior(self._ids(texts))
        return {"mean": code["mean"], "standard_deviation": tf.exp(code["log_scale"])}

    @in_graph(TEXTS)
    def reconstruct(self, texts):
        """Decode greedily at the means of q(z_enc | x), p(z_t) and p(c~_t); return sentences (B,)."""
        return self.text_encoder.decode(self.write_from(self.posterior(self._ids(texts))["mean"]))

    @in_graph(IDS)
    def posterior(self, source):
        """Return the parameters "mean" and "log_scale" of q(z_enc | x), (B, Z) each."""
        return _in_float32(self._models.value.latent.parameters(self._models.value.encode(source)[1]))

    @in_graph(_CODES)
    def write_from(self, z):
        """Decode greedily from z_enc (B, Z); return ids (B, L)."""
        z = tf.ensure_shape(z, (None, self._width))
        return decoding.greedy(self._step(z), **self._start(tf.shape(z)[0]))["ids"]

    @in_graph(IDS, IDS, IDS, _CODES)
    def figures_at(self, source, target_input, target, z):
        """Return the values of `draw_figures` at a given z_enc (B, Z), with z_t and c~_t at the means of q."""
        return self._figures(source, target_input, target, tf.ensure_shape(z, (None, self._width)))

    @in_graph(IDS, IDS, IDS)
    def describe(self, source, target_input, target):
        """Return the Gaussian of each sentence (see summarize.py), as "mean" and "log_scale", (B, D) each."""
        models = self._models.value
        if models.latent is None:
            hidden = _last_of(models.decode(target_input, target)["hidden"], target)
            return _in_float32({"mean": hidden, "log_scale": tf.zeros_like(hidden)})
        if not models.attends:
            return self.posterior(source)
        memory, last = models.encode(source)
        decoded = models.decode(target_input, target, models.latent(last), memory, source)
        return _in_float32(models.decoder.prediction.parameters(_last_of(decoded["latent"], target)))

    @in_graph(IDS, IDS, IDS)
    def attention(self, source, target_input, target):
        """Return the attention weights of each step, (B, T, S), with all latent variables at their means."""
        models = self._models.value
        memory, last = models.encode(source)
        z = models.latent(last)
        return models.decode(target_input, target, z, memory, source, return_attention_scores=True)["weights"]

    @in_graph(IDS, IDS, IDS, _INTEGER, _INTEGER)
    def log_weights(self, source, target_input, target, num_samples, seed):
        """Return log p(x, z_n) - log q(z_n | x) in nats, (n, B), for `num_samples` samples z_n from q."""
        seed = random.as_seed(seed)

        def weight(number):
            draw = self.draw_figures(source, target_input, target, random.fold_in(seed, number))
            return draw["log_likelihood"] - draw["log_ratio"]

        specification = tf.TensorSpec([None], tf.float32)
        return tf.map_fn(weight, tf.range(num_samples), fn_output_signature=specification, parallel_iterations=1)

    @in_graph(IDS, IDS, IDS, _SEED)
    def draw_figures(self, source, target_input, target, seed):
        """Sample all latent variables z once from q. Return these values in nats:

        - "log_likelihood" (B,): log p(x | z)
        - "log_ratio" (B,): log q(z | x) - log p(z)
        - "kl_code" (B,): the KL of z_enc
        - "kl_steps" (B, T): the KLs of z_t
        - "kl_context" (B, T): the KLs of c~_t
        """
        with self._draws(self._models.value.training, seed):
            return self._figures(source, target_input, target)

    @in_graph(IDS, IDS, IDS, _SEED)
    def published_log_p(self, source, target_input, target, seed):
        """Return log p in nats, (B,), as the published code computes it: z_enc is a sample from q, and each z_t and
        c~_t is the mean of its prior. The value is not a bound on log p(x), because it omits the KL of z_enc."""
        models, z = self._models.value, None
        if models.latent is not None:
            with self._draws(models.latent, seed):
                z = models.latent(models.encode(source)[1])
        return self._log_words(models.decode(target_input, target, z), target)

    def _ids(self, texts):
        return self.text_encoder.encode(texts, self._max_length)

    def _draws(self, layer, seed):
        """Return a context manager in which `layer` draws samples, if the model has latent variables."""
        latent = self._models.value.latent
        return contextlib.nullcontext() if latent is None else keras_vattn.posterior_draws(layer, seed=seed)

    def _figures(self, source, target_input, target, z=None):
        models, mask = self._models.value, ops.not_equal(target, PAD)
        zeros, memory = tf.zeros_like(target, tf.float32), None
        figures = {"log_ratio": zeros[:, 0], "kl_code": zeros[:, 0], "kl_steps": zeros, "kl_context": zeros}
        if models.latent is not None:
            memory, last = models.encode(source)
            z = models.latent(last) if z is None else z
            q, p = models.latent.posterior_distribution(last), models.latent.prior_distribution(last)
            figures |= {"log_ratio": _log_ratio(q, p, z), "kl_code": q.kl_divergence(p)}
        options = {"return_distributions": True} if models.attends else {}
        decoded = models.decode(target_input, target, z, memory, source, **options)
        random_steps = {}
        if models.attends and models.decoder.informed:
            random_steps["kl_steps"] = decoded["latent_posterior"], decoded["latent_prior"], decoded["latent"]
        if models.attends and models.decoder.prediction.informed:
            p = models.decoder.prediction.parameters(decoded["latent"])
            q = models.decoder.prediction.posterior(p, decoded["context"])
            random_steps["kl_context"] = q, p, decoded["predicted_context"]
        for name, (q, p, draw) in random_steps.items():
            q, p = _normal(**q), _normal(**p)
            figures["log_ratio"] += tf.reduce_sum(tf.where(mask, _log_ratio(q, p, draw), 0.0), axis=1)
            figures[name] = tf.where(mask, q.kl_divergence(p), 0.0)
        return figures | {"log_likelihood": self._log_words(decoded, target)}

    def _log_words(self, decoded, target):
        value = self._models.value.words(decoded["hidden"][:, :, None], target)[..., 0]
        return tf.reduce_sum(tf.where(tf.not_equal(target, PAD), value, 0.0), axis=1)

    def _step(self, z, noise=()):
        """Return the step function for z_enc (N, Z). Without `noise` (N, L, ...), use prior means."""
        models = self._models.value
        memory = models.decoder.prepare_memory()

        def step(ids, state, position):
            step_noise = tf.nest.map_structure(lambda x: x[:, position], noise) if noise else None
            inputs = models.inputs(ids[:, None], z)[:, 0]
            outputs, state = models.decoder.step(inputs, state, memory, step_noise)
            return models.words(outputs["hidden"][:, None, None])[:, 0, 0], state, {}

        return step

    def _start(self, num):
        decoder = self._models.value.decoder
        return {
            "state": decoder.start(num, decoder.prepare_memory()),
            "start_ids": tf.fill([num], START),
            "end_id": END,
            "max_length": self._max_length + 1,
            "forbidden_ids": FORBIDDEN,
        }


def generate(run, options):
    """Yield new sentences, reconstructions of the input lines, or interpolations between them."""
    values = {name: getattr(options, name) for name in ("temperature", "top_p")}
    changed = {name: value for name, value in values.items() if value is not None}
    writer = Writer(run, dataclasses.replace(run.options.sampling, **changed))
    if options.mode == "new":
        num = options.num or NUM_NEW
        for number, start in enumerate(range(0, num, BATCH)):
            yield from strings(writer.generate(min(BATCH, num - start), seed_of_batch(options.seed, number)))
        return
    lines = read_input(options)
    if options.mode == "reconstruct":
        yield from aligned(lines, _reconstructed(writer, list(filter(has_word, lines))))
        return
    if len(lines) < 2:
        raise InputError(f"--mode interpolate: expected at least two lines. Received: {len(lines)}")
    for pair in itertools.pairwise(lines):
        has_words = all(map(has_word, pair))
        yield "\t".join(interpolated(writer, list(pair), options.num or NUM_BETWEEN)) if has_words else ""


def _reconstructed(writer, lines):
    for start in range(0, len(lines), BATCH):
        yield from strings(writer.reconstruct(tf.constant(lines[start : start + BATCH])))


def endpoints(run, options=None):
    has_code = run.models.latent is not None
    return Writer(run), ("generate", "encode", "reconstruct", "score") if has_code else ("generate", "score")


def strings(texts):
    return [text.decode() for text in texts.numpy()]


def interpolated(writer, texts, num_steps=NUM_BETWEEN):
    """Decode evenly spaced points between the z_enc of two sentences; return the decoded sentences."""
    z = writer.encode(tf.constant(texts))["mean"]
    fractions = tf.linspace(0.0, 1.0, num_steps)[:, None]
    ids = writer.write_from((1.0 - fractions) * z[:1] + fractions * z[1:])
    return strings(writer.text_encoder.decode(ids))


def seed_of_batch(seed, number):
    """Return a different integer seed for each batch."""
    return (seed + 7919 * number) % 2**31


def _last_of(steps, target):
    """Return the vectors (B, D) at the last step of each sentence, for `steps` (B, T, D)."""
    last = tf.math.count_nonzero(tf.not_equal(target, PAD), axis=1, dtype=tf.int32) - 1
    return tf.gather(steps, last, batch_dims=1)


def _normal(mean, log_scale):
    # The KL of `MultivariateNormalDiag` can be slightly negative.
    return tfd.Independent(tfd.Normal(ops.cast(mean, "float32"), tf.exp(log_scale)), 1)


def _log_ratio(q, p, z):
    z = ops.cast(z, "float32")
    return q.log_prob(z) - p.log_prob(z)


def _in_float32(parameters):
    return {name: ops.cast(x, "float32") for name, x in parameters.items()}

"""Sentences and bounds of a trained model, as an exportable module: strings in, strings out.

Shapes: B sentences, S words, T words with the end, Z units of z_enc, L words of what is written.
"""

import dataclasses

import tensorflow as tf
from keras import ops
from tensorflow_probability import distributions as tfd

import keras_vattn
from applications.common.serving import Untracked, in_graph
from applications.text.text import END, PAD, START, UNKNOWN
from applications.vrae.options import MODELS
from keras_vattn import decoding

_IDS = tf.TensorSpec([None, None], tf.int32)
_TEXTS = tf.TensorSpec([None], tf.string)
_INTEGER = tf.TensorSpec([], tf.int32)
_SEED = tf.TensorSpec([2], tf.int32)
# A sentence of words is asked for.
_FORBIDDEN = (PAD, START, UNKNOWN)


class Writer(tf.Module):
    """Everything that is exported: the tokeniser, the model's variables, and the loops.

    Args:
        run: `Run`.
        sampling: `SamplingOptions`, how words are drawn, or `None` for the run's.
    """

    def __init__(self, run, sampling=None):
        super().__init__(name="writer")
        models = run.models
        self.variables_of_model = [variable.value for variable in models.training.variables]
        self.text_encoder = run.codec.words
        self._models = Untracked(models)
        self._sampling = Untracked(sampling or run.options.sampling)
        self._max_length = run.options.text.max_length

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        return ("generate", "score")

    @in_graph(_INTEGER, _INTEGER)
    def generate(self, num, seed):
        """Return (num,) sentences: z_enc from N(0, I), z_t and c~_t from their priors, words from p."""
        seed = keras_vattn.random.as_seed(seed)
        return self.text_encoder.decode(self._write(self._code_of_prior(num, seed), num, seed))

    @in_graph(_TEXTS, _INTEGER, _INTEGER)
    def score(self, texts, num_samples, seed):
        """Return a bound of log p(x) in nats (B,), importance-weighted with so many draws, of which 1 is the ELBO with
        KLs that are drawn, too; and the number of tokens with the end."""
        target_input, target, num_tokens = self.text_encoder.encode_targets(texts, self._max_length)
        log_weights = self.log_weights(self._encoded(texts), target_input, target, num_samples, seed)
        bound = tf.reduce_logsumexp(log_weights, axis=0) - tf.math.log(tf.cast(num_samples, tf.float32))
        return {"log_likelihood_bound": bound, "num_tokens": num_tokens}

    @in_graph(_IDS, _IDS, _IDS)
    def describe(self, source, target_input, target):
        """Return what the model takes sentences for, a diagonal Gaussian each, "mean" and "log_scale" (B, D): of an
        LSTM N(h_T, I) (section 4.1)."""
        decoded = self._models.value.decode(target_input, target)
        hidden = _last_of(decoded["hidden"], target)
        return _in_float32({"mean": hidden, "log_scale": tf.zeros_like(hidden)})

    @in_graph(_IDS, _IDS, _IDS, _INTEGER, _INTEGER)
    def log_weights(self, source, target_input, target, num_samples, seed):
        """Return log p(x, z_n) - log q(z_n | x) in nats of so many draws, (n, B)."""
        seed = keras_vattn.random.as_seed(seed)

        def weight(number):
            found = self.drawn(source, target_input, target, keras_vattn.random.fold_in(seed, number))
            return found["log_likelihood"] - found["log_ratio"]

        specification = tf.TensorSpec([None], tf.float32)
        return tf.map_fn(weight, tf.range(num_samples), fn_output_signature=specification, parallel_iterations=1)

    @in_graph(_IDS, _IDS, _IDS, _SEED)
    def drawn(self, source, target_input, target, seed):
        """Return what one draw of all latents from q says of sentences, in nats: "log_likelihood" (B,), log p(x | z);
        "log_ratio" (B,), log q(z | x) - log p(z) of the draw; and the KLs that this is an estimate of, "kl_code" (B,)
        and "kl_steps" (B, T)."""
        return self._read(source, target_input, target, seed)

    @in_graph(_IDS, _IDS, _IDS, _SEED)
    def published(self, source, target_input, target, seed):
        """Return log p (B,) in nats as the published code has it: z_enc drawn from q, which has seen the sentence, z_t
        and c~_t at the means of their priors. It is no bound."""
        decoded = self._models.value.decode(target_input, target, self._code_of_posterior(source, seed))
        return self._log_words(decoded, target)

    def _code_of_prior(self, num, seed):
        return None

    def _code_of_posterior(self, source, seed):
        return None

    def _noise(self, num, seed):
        return {}

    def _read(self, source, target_input, target, seed):
        zeros = tf.zeros_like(target, tf.float32)
        log_likelihood = self._log_words(self._models.value.decode(target_input, target), target)
        return {"log_likelihood": log_likelihood, "log_ratio": zeros[:, 0], "kl_code": zeros[:, 0], "kl_steps": zeros}

    def _log_words(self, decoded, target):
        value = self._models.value.words(decoded["hidden"][:, :, None], target)[..., 0]
        return tf.reduce_sum(tf.where(tf.not_equal(target, PAD), value, 0.0), axis=1)

    def _encoded(self, texts):
        return self.text_encoder.encode(texts, self._max_length)

    def _write(self, z, num, seed):
        """Return ids (num, L) of words drawn from p, and z_t and c~_t from their priors."""
        noise, words = self._noise(num, seed), dataclasses.asdict(self._sampling.value)
        seed = keras_vattn.random.fold_in(seed, 2)
        return decoding.sample(self._step(z, noise), **self._start(num), seed=seed, **words)["ids"]

    def _step(self, z, noise=()):
        """Return the step of a search: z_enc (N, Z), and the noise of all steps, (N, L, ...), or none for means."""
        models = self._models.value
        memory = models.decoder.prepare_memory()

        def step(ids, state, position):
            now = tf.nest.map_structure(lambda x: x[:, position], noise) if noise else None
            inputs = models.inputs(ids[:, None], z)[:, 0]
            outputs, state = models.decoder.step(inputs, state, memory, now)
            return models.words(outputs["hidden"][:, None, None])[:, 0, 0], state, {}

        return step

    def _start(self, num):
        """Return the arguments of a search beside its step."""
        decoder = self._models.value.decoder
        return {
            "state": decoder.start(num, decoder.prepare_memory()),
            "start_ids": tf.fill([num], START),
            "end_id": END,
            "max_length": self._max_length + 1,
            "forbidden_ids": _FORBIDDEN,
        }


class Coder(Writer):
    """The same of a model with z_enc, which it infers and writes from.

    Args:
        run: As in `Writer`, like `sampling`.
        num_beams: Of what is written from a z_enc; 1 is greedy.
    """

    def __init__(self, run, sampling=None, num_beams=1):
        super().__init__(run, sampling)
        self._num_beams = num_beams
        self._width = run.options.network.latent_units

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        return ("generate", "encode", "reconstruct", "score")

    @in_graph(_TEXTS)
    def encode(self, texts):
        """Return q(z_enc | x) of each text: "mean" and "standard_deviation", (B, Z)."""
        found = self.posterior(self._encoded(texts))
        return {"mean": found["mean"], "standard_deviation": tf.exp(found["log_scale"])}

    @in_graph(_TEXTS)
    def reconstruct(self, texts):
        """Return the sentence (B,) that the mean of q(z_enc | x) stands for, greedy or by beam search, z_t and c~_t at
        the means of their priors (algorithm 2)."""
        return self.text_encoder.decode(self.write_from(self.posterior(self._encoded(texts))["mean"]))

    @in_graph(_IDS, _IDS, _IDS)
    def describe(self, source, target_input, target):
        """As of a `Writer`: of a VRAE q(z_enc | x), where the decoder attends p(c~_T | z_T) after the last word."""
        models = self._models.value
        if not models.attends:
            return self.posterior(source)
        memory, last = models.encode(source)
        decoded = models.decode(target_input, target, models.latent(last), memory, source)
        return _in_float32(models.decoder.prediction.parameters(_last_of(decoded["latent"], target)))

    @in_graph(_IDS)
    def posterior(self, source):
        """Return the parameters of q(z_enc | x), "mean" and "log_scale", (B, Z)."""
        return _in_float32(self._models.value.latent.parameters(self._models.value.encode(source)[1]))

    @in_graph(tf.TensorSpec([None, None], tf.float32))
    def write_from(self, z):
        """Return ids (B, L) of the most probable sentence that is found, given z_enc (B, Z)."""
        z = tf.ensure_shape(z, (None, self._width))
        given = self._start(tf.shape(z)[0])
        if self._num_beams == 1:
            return decoding.greedy(self._step(z), **given)["ids"]
        beams = self._step(tf.repeat(z, self._num_beams, axis=0))
        return decoding.beam_search(beams, **given, num_beams=self._num_beams)["ids"][:, 0]

    @in_graph(_IDS, _IDS, _IDS, tf.TensorSpec([None, None], tf.float32))
    def at(self, source, target_input, target, z):
        """Return what `drawn` does, given z_enc (B, Z), all other latents at the means of q."""
        return self._read_with(source, target_input, target, tf.ensure_shape(z, (None, self._width)))

    def _code_of_prior(self, num, seed):
        return keras_vattn.random.normal((num, self._width), keras_vattn.random.fold_in(seed, 0))

    def _code_of_posterior(self, source, seed):
        models = self._models.value
        with keras_vattn.posterior_draws(models.latent, seed=seed):
            return models.latent(models.encode(source)[1])

    def _noise(self, num, seed):
        models = self._models.value
        if not models.attends:
            return {}
        with keras_vattn.posterior_draws(models.training, seed=keras_vattn.random.fold_in(seed, 1)):
            return models.decoder.draw_noise(num, self._max_length + 1, models.decoder.prepare_memory())

    def _read(self, source, target_input, target, seed):
        with keras_vattn.posterior_draws(self._models.value.training, seed=seed):
            return self._read_with(source, target_input, target)

    def _read_with(self, source, target_input, target, z=None):
        models, mask = self._models.value, ops.not_equal(target, PAD)
        memory, last = models.encode(source)
        z = models.latent(last) if z is None else z
        q, p = models.latent.posterior_distribution(last), models.latent.prior_distribution(last)
        found = {"log_ratio": _log_ratio(q, p, z), "kl_code": q.kl_divergence(p)}
        found["kl_steps"] = tf.zeros_like(target, tf.float32)
        asked = {"return_distributions": True} if models.attends else {}
        decoded = models.decode(target_input, target, z, memory, source, **asked)
        if models.attends:
            q, p = (_normal(**decoded[f"latent_{name}"]) for name in ("posterior", "prior"))
            found["log_ratio"] += tf.reduce_sum(tf.where(mask, _log_ratio(q, p, decoded["latent"]), 0.0), axis=1)
            found["kl_steps"] = tf.where(mask, q.kl_divergence(p), 0.0)
        return {**found, "log_likelihood": self._log_words(decoded, target)}


def writer_of(run, sampling=None, num_beams=1):
    """Return the `Writer` of a run, a `Coder` where its model has z_enc."""
    if MODELS[run.options.model].latent:
        return Coder(run, sampling, num_beams)
    return Writer(run, sampling)


def seed_of_batch(seed, number):
    """Return an integer seed of one of many batches, so that not each has the draws of the first."""
    return (seed + 7919 * number) % 2**31


def _last_of(steps, target):
    """Return what stands at the end of each sentence, (B, D), of (B, T, D)."""
    last = tf.math.count_nonzero(tf.not_equal(target, PAD), axis=1, dtype=tf.int32) - 1
    return tf.gather(steps, last, batch_dims=1)


def _normal(mean, log_scale):
    # Not MultivariateNormalDiag, whose small KLs are negative.
    return tfd.Independent(tfd.Normal(ops.cast(mean, "float32"), tf.exp(log_scale)), 1)


def _log_ratio(q, p, z):
    z = ops.cast(z, "float32")
    return q.log_prob(z) - p.log_prob(z)


def _in_float32(parameters):
    return {name: ops.cast(x, "float32") for name, x in parameters.items()}

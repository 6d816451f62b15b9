"""Decoding with a trained variational encoder-decoder, as an exportable module: strings in, strings out."""

import tensorflow as tf

import keras_vattn
from applications.common.serving import Untracked, in_graph
from applications.text.text import END, PAD, START, UNKNOWN
from applications.ved.options import MODELS
from keras_vattn import decoding
from keras_vattn.losses import sequence_log_likelihood

_IDS = tf.TensorSpec([None, None], tf.int32)
_TEXTS = tf.TensorSpec([None], tf.string)
_INTEGER = tf.TensorSpec([], tf.int32)
_NUMBER = tf.TensorSpec([], tf.float32)


class Generator(tf.Module):
    """Everything that is exported: the tokenisers, the model's variables, and the decoding loops.

    `generate`, `sample` and `score` take strings; `evaluate` calls the functions on ids beneath them.

    Args:
        run: `Run`.
    """

    def __init__(self, run):
        super().__init__(name="generator")
        self.variables_of_model = [variable.value for variable in run.models.training.variables]
        self.source_encoder = run.codec.source
        self.target_encoder = run.codec.target
        self._models = Untracked(run.models)
        self._options = Untracked(run.options)

    @in_graph(_TEXTS)
    def generate(self, texts):
        """Return the greedy sentence (B,) of each text (B,) at the posterior means ("MAP" in the paper)."""
        return self.target_encoder.decode(self.greedy(self._encode(texts))["ids"])

    @in_graph(_TEXTS, _INTEGER, _INTEGER)
    def sample(self, texts, num_samples, seed):
        """Return (B, num_samples) greedy sentences under new latent draws; one seed always gives the same ones."""
        ids = self.draw(self._encode(texts), num_samples, seed, tf.constant(1.0))
        return self.target_encoder.decode(ids)

    @in_graph(_TEXTS, _TEXTS)
    def score(self, texts, targets):
        """Return log p(target | text) in nats at the posterior means, (B,), and the number of tokens with the end."""
        maximum = self._options.value.text.max_target_length
        target_input, target, num_tokens = self.target_encoder.encode_targets(targets, maximum)
        log_likelihood = self.log_likelihood(self._encode(texts), target_input, target)
        return {"log_likelihood": log_likelihood, "num_tokens": num_tokens}

    @in_graph(_IDS)
    def greedy(self, source):
        """Return a dictionary of ids (B, L), log_probabilities (B,) and, with attention, weights (B, L, S)."""
        return self._decode(source, decoding.GreedySampler())

    @in_graph(_IDS, _INTEGER, _INTEGER, _NUMBER)
    def draw(self, source, num_samples, seed, temperature):
        """Return ids (B, num_samples, L): greedy words under new draws of z and a; latent temperature 0 is the mean."""
        repeated = tf.repeat(source, num_samples, axis=0)
        if not MODELS[self._options.value.model].stochastic:
            ids = self.greedy(repeated)["ids"]
        else:
            with keras_vattn.posterior_draws(self._models.value.training, seed=seed, temperature=temperature):
                ids = self._decode(repeated, decoding.GreedySampler(), draws=True)["ids"]
        return self._by_source(ids, source, num_samples)

    @in_graph(_IDS, _INTEGER, _INTEGER, _NUMBER)
    def draw_words(self, source, num_samples, seed, word_temperature):
        """Return ids (B, num_samples, L): words drawn at a temperature above 0, the latents at their means."""
        sampler = decoding.RandomSampler(seed, word_temperature)
        ids = self._decode(tf.repeat(source, num_samples, axis=0), sampler)["ids"]
        return self._by_source(ids, source, num_samples)

    @in_graph(_IDS, _IDS, _IDS)
    def log_likelihood(self, source, target_input, target_output):
        """Return log p(y | posterior means), (B,) nats."""
        logits = self._models.value.training({"source": source, "target_input": target_input})
        return sequence_log_likelihood(target_output, logits, ignore_class=PAD)

    def _encode(self, texts):
        return self.source_encoder.encode(texts, self._options.value.text.max_source_length)

    def _decode(self, source, sampler, draws=False):
        """Return the result of `decoding.decode`; with `draws`, inside of `posterior_draws`, a and z are drawn."""
        models, num_steps = self._models.value, self._options.value.text.max_target_length + 1
        encoded, batch_size = models.encoder(source), tf.shape(source)[0]
        memory = models.prepare(source, encoded)
        noise = models.decoder.draw_noise(batch_size, num_steps, memory) if draws else {}

        def step(ids, state, position):
            noise_now = tf.nest.map_structure(lambda x: x[:, position], noise)
            outputs, state = models.decoder.step(models.step_inputs(ids, encoded), state, memory, noise_now)
            kept = {"weights": outputs["weights"]} if "weights" in outputs else {}
            return models.logits(outputs), state, kept

        return decoding.decode(
            step,
            models.start(source, encoded, memory),
            tf.fill([batch_size], START),
            END,
            num_steps,
            sampler,
            # A sentence is words: not padding, not a second start, not the token for unknown words.
            forbidden_ids=(PAD, START, UNKNOWN),
        )

    @staticmethod
    def _by_source(ids, source, num_samples):
        return tf.reshape(ids, [tf.shape(source)[0], num_samples, tf.shape(ids)[1]])

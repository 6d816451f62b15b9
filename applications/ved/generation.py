"""Decoding with a trained variational encoder-decoder, as an exportable module: strings in, strings out."""

import tensorflow as tf

import keras_vattn
from applications.common.serving import Untracked, in_graph
from applications.text.text import END, PAD, START, UNKNOWN
from keras_vattn import decoding
from keras_vattn.losses import sequence_log_likelihood

_IDS = tf.TensorSpec([None, None], tf.int32)
_TEXTS = tf.TensorSpec([None], tf.string)
_COUNT = tf.TensorSpec([], tf.int32)
_SEED = tf.TensorSpec([], tf.int32)
_NUMBER = tf.TensorSpec([], tf.float32)
# A sentence of words is asked for: not padding, not a second start, not the token for unknown words.
_FORBIDDEN = (PAD, START, UNKNOWN)


class Generator(tf.Module):
    """Everything that is exported: the tokenisers, the model's variables, and the decoding loops.

    `generate`, `sample` and `score` take strings; the functions on ids beneath them are what `evaluate` calls.

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

    @in_graph(_TEXTS, _COUNT, _SEED)
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
        encoded = self._models.value.encoder(source)
        return self._decode(source, encoded, {}, decoding.GreedySampler())

    @in_graph(_IDS, _COUNT, _SEED, _NUMBER)
    def draw(self, source, num_samples, seed, temperature):
        """Return ids (B, num_samples, L): greedy words under new draws of z and a; latent temperature 0 is the mean."""
        repeated = tf.repeat(source, num_samples, axis=0)
        if not self._is_stochastic:
            decoded = self.greedy(repeated)
        else:
            with keras_vattn.posterior_draws(self._models.value.training, seed=seed, temperature=temperature):
                encoded = self._models.value.encoder(repeated)
                decoded = self._decode(repeated, encoded, None, decoding.GreedySampler())
        return self._by_source(decoded["ids"], source, num_samples)

    @in_graph(_IDS, _COUNT, _SEED, _NUMBER)
    def draw_words(self, source, num_samples, seed, word_temperature):
        """Return ids (B, num_samples, L): words drawn at a temperature above 0, the latents at their means."""
        repeated = tf.repeat(source, num_samples, axis=0)
        encoded = self._models.value.encoder(repeated)
        sampler = decoding.RandomSampler(seed, word_temperature)
        return self._by_source(self._decode(repeated, encoded, {}, sampler)["ids"], source, num_samples)

    @in_graph(_IDS, _IDS, _IDS)
    def log_likelihood(self, source, target_input, target_output):
        """Return log p(y | posterior means), (B,) nats."""
        logits = self._models.value.training({"source": source, "target_input": target_input})
        return sequence_log_likelihood(target_output, logits, ignore_class=PAD)

    @property
    def _is_stochastic(self):
        return bool(keras_vattn.stochastic_layers(self._models.value.training))

    def _encode(self, texts):
        return self.source_encoder.encode(texts, self._options.value.text.max_source_length)

    def beam(self, source, num_beams, length_penalty=0.0):
        """Return what `greedy` does, of the best sentence of a beam search at the posterior means.

        Args:
            source: (B, S) ids.
            num_beams: Number of beams, a Python integer.
            length_penalty: As in `keras_vattn.decoding.beam_search`.
        """
        models = self._models.value
        encoded = models.encoder(source)
        # Every beam reads the memory of its sentence; the first state is repeated by the search itself.
        beams, of_beams = (
            tf.repeat(source, num_beams, axis=0),
            {name: tf.repeat(x, num_beams, axis=0) for name, x in encoded.items()},
        )
        start = models.start(source, encoded, models.prepare(source, encoded))
        found = decoding.beam_search(
            self._step(of_beams, models.prepare(beams, of_beams), {}),
            start,
            tf.fill([tf.shape(source)[0]], START),
            END,
            self._options.value.text.max_target_length + 1,
            num_beams,
            length_penalty=length_penalty,
            forbidden_ids=_FORBIDDEN,
        )
        return {name: x[:, 0] for name, x in found.items()}

    def _decode(self, source, encoded, noise, sampler):
        models, max_length = self._models.value, self._options.value.text.max_target_length + 1
        memory = models.prepare(source, encoded)
        batch_size = tf.shape(source)[0]
        if noise is None:
            noise = models.decoder.draw_noise(batch_size, max_length, memory)
        step, start_ids = self._step(encoded, memory, noise), tf.fill([batch_size], START)
        start = models.start(source, encoded, memory)
        return decoding.decode(step, start, start_ids, END, max_length, sampler, forbidden_ids=_FORBIDDEN)

    def _step(self, encoded, memory, noise):
        models = self._models.value

        def step(ids, state, position):
            noise_now = tf.nest.map_structure(lambda x: x[:, position], noise)
            outputs, state = models.decoder.step(models.step_inputs(ids, encoded), state, memory, noise_now)
            kept = {"weights": outputs["weights"]} if "weights" in outputs else {}
            return models.logits(outputs), state, kept

        return step

    @staticmethod
    def _by_source(ids, source, num_samples):
        return tf.reshape(ids, [tf.shape(source)[0], num_samples, tf.shape(ids)[1]])

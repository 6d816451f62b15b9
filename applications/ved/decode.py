"""Generate sentences with a variational encoder-decoder. `Generator` can be exported as a SavedModel."""

import numpy as np
import tensorflow as tf

import keras_vattn
from applications.common.progress import progress
from applications.common.serving import in_graph
from applications.text.batching import padded
from applications.text.module import FORBIDDEN, IDS, TEXTS, PairModule
from applications.text.pairs import read_inputs
from applications.text.readers import aligned
from applications.text.text import END, START
from applications.ved.model import MODELS
from keras_vattn import decoding

BATCH = 64
_INTEGER = tf.TensorSpec([], tf.int32)


class Generator(PairModule):
    """Decodes greedily. The latent variable z and the attention are posterior means or posterior samples."""

    def __init__(self, run):
        super().__init__(run, run.options.text.max_source_length, run.options.text.max_target_length)

    @in_graph(TEXTS)
    def generate(self, texts):
        """Return one sentence per text, (B,), from posterior means ("MAP" in Bahuleyan et al. 2018)."""
        return self.target_encoder.decode(self.greedy(self._encode(texts))["ids"])

    @in_graph(TEXTS, _INTEGER, _INTEGER)
    def sample(self, texts, num_samples, seed):
        """Return sentences (B, num_samples), each decoded from a new posterior sample."""
        return self.target_encoder.decode(self.draw(self._encode(texts), num_samples, seed))

    @in_graph(IDS)
    def greedy(self, source):
        """Return the result of `decoding.greedy` at posterior means, with attention "weights" (B, L, S)."""
        return self._decode(source)

    @in_graph(IDS, _INTEGER, _INTEGER)
    def draw(self, source, num_samples, seed):
        """Return ids (B, num_samples, L). Each sample has new draws of z and of the attention."""
        repeated = tf.repeat(source, num_samples, axis=0)
        if not MODELS[self._options.value.model].latent:
            ids = self.greedy(repeated)["ids"]
        else:
            with keras_vattn.posterior_draws(self._models.value.training, seed=seed):
                ids = self._decode(repeated, draws=True)["ids"]
        return tf.reshape(ids, [tf.shape(source)[0], num_samples, tf.shape(ids)[1]])

    @in_graph(IDS, IDS, IDS)
    def log_likelihood(self, source, target_input, target_output):
        """Return log p(target | source) in nats, (B,), with z and sampled attention at their posterior means."""
        models = self._models.value
        return models.log_likelihood(target_input, target_output, models.encoder(source), source)

    def _decode(self, source, draws=False):
        """Return the result of `decoding.greedy`. With `draws`, the caller must enter `posterior_draws`."""
        models, num_steps = self._models.value, self._max_target_length + 1
        encoded, batch_size = models.encoder(source), tf.shape(source)[0]
        memory = models.prepare(source, encoded)
        noise = models.decoder.draw_noise(batch_size, num_steps, memory) if draws else {}
        logits = models.step_logits(source, encoded)

        def step(ids, state, position):
            noise_now = tf.nest.map_structure(lambda x: x[:, position], noise)
            outputs, state = models.decoder.step(models.step_inputs(ids, encoded), state, memory, noise_now)
            stored = {"weights": outputs["weights"]} if "weights" in outputs else {}
            return logits(outputs), state, stored

        start, start_ids = models.start(source, encoded, memory), tf.fill([batch_size], START)
        return decoding.greedy(step, start, start_ids, END, num_steps, forbidden_ids=FORBIDDEN)


def generate(run, options):
    """Yield one output line per input line. Tabs separate several samples."""
    lines, ids = read_inputs(options, run.codec.source, run.options.text.max_source_length)
    sentences = write(Generator(run), ids, options.num_samples, options.seed, "generating")
    for sentence in aligned(lines, sentences):
        yield sentence if isinstance(sentence, str) else "\t".join(sentence)


def endpoints(run, options=None):
    return Generator(run), ("generate", "sample", "score")


def write(generator, ids, num_samples=0, seed=0, title=None):
    """Return a sentence, or `num_samples` sentences in a list, per source. `title` labels the progress."""
    sentences, starts = [], range(0, len(ids), BATCH)
    for number, start in enumerate(progress(starts, title) if title else starts):
        source = tf.constant(padded(ids[start : start + BATCH]))
        if num_samples:
            # With the same seed, all batches would share the same noise.
            batch_seed = int(np.int64(seed + 1_000_003 * number).astype(np.int32))
            decoded = generator.draw(source, num_samples, batch_seed)
        else:
            decoded = generator.greedy(source)["ids"]
        texts = generator.target_encoder.decode(decoded).numpy()
        sentences += np.char.decode(texts.astype(bytes), "utf-8").tolist()
    return sentences

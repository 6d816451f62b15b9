"""Caption images or precomputed features. `Captioner` can be exported as a SavedModel.

Shapes: B images, R regions of width D, T words of a caption with the end token, S samples.
"""

import tensorflow as tf
from keras import ops, tree

import keras_vattn
from applications.captioning.data import sources_of
from applications.captioning.model import MODELS
from applications.common.option_values import first_value
from applications.common.serving import Untracked, in_graph, noise_of
from applications.text.module import FORBIDDEN, IDS
from applications.text.readers import has_word, read_input
from applications.text.text import END, PAD, START
from applications.text.uncertainty import lines_of, require_noise, shifted, uncertainty_of, written_of
from applications.vision.program import INTEGER, ImageModule, answers_about
from applications.vision.regions import region_mask
from keras_vattn import decoding


class Captioner(ImageModule):
    """Exports the endpoints `generate`, `sample` and, if the attention is stochastic, `uncertain`.

    The command `evaluate` calls `search`, `read` and `written`. By default, `num_beams` is the value in the run's
    options.
    """

    def __init__(self, run, num_beams=None):
        super().__init__("captioner", run, run.models.training)
        self._max_length = run.options.captions.max_length
        self._num_beams = num_beams or run.options.reports.num_beams
        self._draws = MODELS[run.options.model].alignment is not None
        self.add_endpoint("generate")
        self.add_endpoint("sample", INTEGER, INTEGER)
        self.noise = Untracked(noise_of(run.models.training, run.options.network.dropout > 0, self._draws))
        if self._draws:
            self.add_endpoint("uncertain", INTEGER, INTEGER)
        regions = run.codec.regions
        regions_spec = tf.TensorSpec([None, regions.max_regions, regions.model_width], tf.float32)
        specs = regions_spec, tf.TensorSpec([None], tf.int32), IDS, IDS
        self.search = Untracked(in_graph(*specs[:2])(self._search))
        self._under_draws = Untracked(in_graph(*specs[:2], INTEGER, INTEGER)(self._uncertain))
        self._at_mean = Untracked(in_graph(*specs[:2])(self._uncertain))
        self.read = Untracked(in_graph(*specs)(self._read))

    def texts(self, ids):
        """Decode ids (B, T) to captions of at most `max_length` words."""
        return self.text_encoder.decode(ids[:, : self._max_length])

    def _generate(self, regions, num_regions):
        """Return captions (B,), their log p with the end token in nats (B,), and attention weights (B, T, R)."""
        best = self._search(regions, num_regions)
        return {"captions": self.texts(best["ids"])} | {name: best[name] for name in ("log_probabilities", "weights")}

    def _search(self, regions, num_regions):
        """Return the best beams: ids (B, T), lengths, scores and log_probabilities (B,), weights (B, T, R)."""
        memory, mask = self._memory(regions, num_regions)
        state, step = self._steps(memory, mask, self._num_beams)
        start = tf.fill([tf.shape(regions)[0]], START)
        beams = decoding.beam_search(
            step, state, start, END, self._max_length + 1, self._num_beams, forbidden_ids=FORBIDDEN
        )
        return {name: x[:, 0] for name, x in beams.items()}

    def _sample(self, regions, num_regions, num_samples, seed):
        """Return captions (B, S) with sampled words and, if the attention is stochastic, sampled weights."""
        with tf.control_dependencies([tf.debugging.assert_positive(num_samples, "num_samples must be positive")]):
            memory, mask = (tf.repeat(x, num_samples, axis=0) for x in self._memory(regions, num_regions))
        seed, num_rows = keras_vattn.random.as_seed(seed), tf.shape(memory)[0]
        noise, models = None, self._models.value
        if self._draws:
            with keras_vattn.posterior_draws(models.training, seed=keras_vattn.random.fold_in(seed, 0)):
                prepared = models.decoder.prepare_memory(memory, mask)
                noise = models.decoder.draw_noise(num_rows, self._max_length + 1, prepared)
        state, step = self._steps(memory, mask, noise=noise)
        start, word_seed = tf.fill([num_rows], START), keras_vattn.random.fold_in(seed, 1)
        samples = decoding.sample(step, state, start, END, self._max_length + 1, word_seed, forbidden_ids=FORBIDDEN)
        return {"captions": tf.reshape(self.texts(samples["ids"]), [tf.shape(regions)[0], num_samples])}

    def _uncertain(self, regions, num_regions, num_samples=None, seed=None):
        """Return captions (B,), their words with the end token (B, T), and the metrics of `uncertainty_of`.

        Without `num_samples`, the metrics are computed at the mean weights.
        """
        models, ids = self._models.value, self._search(regions, num_regions)["ids"]
        draws = () if num_samples is None else (self.noise.value, num_samples, seed)

        def log_words():
            return models.emission.log_words(*models.decode(regions, num_regions, shifted(ids), ids))

        written = {"captions": self.texts(ids), "words": self.text_encoder.tokens(ids)}
        return written | uncertainty_of(log_words, ids, *draws)

    def written(self, regions, num_regions, num_draws, seed):
        """Return captions with their uncertainty, in the format of `written_of`.

        If `num_draws` is 0, the metrics are computed at the mean weights.
        """
        if num_draws and self.noise.value is not None:
            captions = self._under_draws(regions, num_regions, num_draws, seed)
        else:
            captions = self._at_mean(regions, num_regions)
        return written_of(captions.pop("captions").numpy(), captions.pop("words").numpy(), captions)

    def written_about(self, features, boxes, num_regions, num_draws, seed):
        """Return the result of `written`, given region features instead of region inputs."""
        inputs = self._regions.value.inputs(features, boxes)
        return self.written(*self._padded(inputs, num_regions), num_draws, seed)

    def _memory(self, regions, num_regions):
        return self._models.value.encoder(regions), region_mask(num_regions, regions.shape[1])

    def _steps(self, memory, mask, num_beams=1, noise=None):
        """Return the initial state and the step function of a search over memory (B, R, units).

        Each step reads `num_beams` states per image. `noise` (B, T, ...) is the noise of all steps.
        """
        models = self._models.value
        start = models.decoder.start(tf.shape(memory)[0], models.decoder.prepare_memory(memory, mask))
        memory, mask = (tf.repeat(x, num_beams, axis=0) for x in (memory, mask))
        prepared = models.decoder.prepare_memory(memory, mask)

        def step(ids, state, position):
            embedded = models.embedding(ids[:, None])[:, 0]
            step_noise = None if noise is None else tree.map_structure(lambda x: x[:, position], noise)
            outputs, state = models.decoder.step(embedded, state, prepared, step_noise)
            decoded = {name: x[:, None] for name, x in outputs.items()}
            log_words = models.emission.log_words(decoded, memory, mask)[:, 0]
            return log_words, state, {"weights": ops.cast(outputs["weights"], "float32")}

        return start, step

    def _read(self, regions, num_regions, target_input, target):
        """Return "log_likelihood" of the target words, (B, T) in nats, and mean "weights" (B, T, R).

        The log-likelihood is 0 at padding. With latent regions, it is summed over regions, and "posterior" (B, T, R)
        contains p(region | word).
        """
        models = self._models.value
        decoded, memory, mask = models.decode(regions, num_regions, target_input, target)
        hidden, log_prior = models.emission.candidates(decoded, memory, mask)
        value = models.emission.words(hidden, target)
        figures = {"weights": ops.cast(decoded["weights"], "float32")}
        if log_prior is not None:
            value = log_prior + value
            figures["posterior"] = ops.softmax(value, axis=-1)
        value = ops.logsumexp(value, axis=-1)
        return figures | {"log_likelihood": ops.where(ops.not_equal(target, PAD), value, 0.0)}


def generate(run, options):
    """Yield a caption of the image that each input line names.

    If the options request the uncertainty, the output contains the uncertainty as well.
    """
    names = [line.strip() if has_word(line) else "" for line in read_input(options, is_text=False)]
    captioner = Captioner(run)

    def caption(numbers, regions):
        return [text.decode() for text in captioner.generate_features(*regions)["captions"].numpy()]

    require_noise(captioner.noise.value, options.num_draws)
    num_draws = first_value("num_draws", options, run.options.reports)

    def written(numbers, regions):
        return captioner.written_about(*regions, num_draws, numbers[0])

    origin, process = options.input or "standard input", written if options.uncertainty else caption
    results = answers_about(run.codec.regions, names, lambda: sources_of(run.options), origin, process)
    yield from lines_of(results) if options.uncertainty else (text or "" for text in results)


def endpoints(run, options=None):
    captioner = Captioner(run)
    return captioner, captioner.names

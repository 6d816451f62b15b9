"""Translate with a trained model. `Translator` can be exported as a SavedModel."""

import numpy as np
import tensorflow as tf
from keras import ops, tree

import keras_vattn
from applications.common.progress import progress
from applications.common.serving import Untracked, in_graph, noise_of
from applications.nmt.inference import Inference
from applications.nmt.model import MODELS
from applications.text.batching import padded
from applications.text.module import FORBIDDEN, IDS, TEXTS, PairModule
from applications.text.pairs import read_inputs
from applications.text.readers import aligned
from applications.text.text import END, PAD, START
from applications.text.uncertainty import lines_of, require_noise, shifted, uncertainty_of, written_of
from keras_vattn import decoding
from keras_vattn.latent_alignment.log_probabilities import without_empty_rows

BATCH = 32
NUM_DRAWS = 10
INTEGER = tf.TensorSpec([], tf.int32)


class Translator(PairModule):
    """A `PairModule` with beam search, alignments and uncertainty.

    Args:
        run: `Run`.
        inference: Name of an `Inference`, or `None` for the model's default.
        num_beams: Number of beams, or `None` for the value in the run's options.
        draws: Whether `uncertainty` draws samples. Otherwise, the result has only the metrics at the mean weights.
    """

    def __init__(self, run, inference=None, num_beams=None, draws=True):
        super().__init__(run, run.options.text.max_length, run.options.text.max_length)
        self._kind = MODELS[run.options.model]
        self.inference = Untracked(self._kind.parse(inference or self._kind.inference))
        self._num_beams = num_beams or run.options.search.num_beams
        self._latent = Untracked(self._latent_of(self.inference.value))
        has_noise = run.options.network.dropout > 0, self._kind.is_continuous
        self.noise = Untracked(noise_of(run.models.training, *has_noise) if draws else None)

    @in_graph(TEXTS)
    def generate(self, texts):
        """Return the best translation of each text, (B,)."""
        return self.target_encoder.decode(self._search(self._encode(texts), 1)["ids"][:, 0])

    @in_graph(TEXTS)
    def n_best(self, texts):
        """Return all beams, best first: "texts", "scores" and "log_probabilities", (B, num_beams) each."""
        sentences = self._search(self._encode(texts), self._num_beams)
        names = ("scores", "log_probabilities")
        return {"texts": self.target_encoder.decode(sentences["ids"]), **{name: sentences[name] for name in names}}

    @in_graph(TEXTS, INTEGER, INTEGER)
    def uncertain(self, texts, num_samples, seed):
        """Encode texts (B,) and call `uncertainty`."""
        return self.uncertainty(self._encode(texts), num_samples, seed)

    @in_graph(IDS, INTEGER, INTEGER)
    def uncertainty(self, source, num_samples, seed):
        """Return the results of `uncertainty_of`, with the translations as "texts" (B,) and "words" (B, T)."""
        ids, words = self._search(source, 1)["ids"][:, 0], self._models.value.emission.words
        # If only the attention is sampled, all samples share the encoder outputs.
        memory = self._models.value.encoder(source) if self._kind.is_continuous else None

        def log_words():
            hidden, log_weights = self._emitting(source, shifted(ids), ids, memory)
            return words(hidden, log_weights=log_weights)

        written = {"texts": self.target_encoder.decode(ids), "words": self.target_encoder.tokens(ids)}
        return written | uncertainty_of(log_words, ids, self.noise.value, num_samples, seed)

    @in_graph(IDS)
    def beam(self, source):
        """Return the best hypotheses of `beam_search`, (B, ...), with the attention "weights" (B, L, S)."""
        return {name: x[:, 0] for name, x in self._search(source, 1).items()}

    @in_graph(IDS, IDS, IDS)
    def log_likelihood(self, source, target_input, target):
        """Return log p(word | previous words) of each target word in nats, (B, T). Padding gets 0."""
        hidden, log_weights = self._emitting(source, target_input, target)
        log_likelihood = self._models.value.emission.words(hidden, target)
        # An empty source masks all candidates; give them equal weights.
        log_weights = without_empty_rows(ops.cast(log_weights, "float32"))
        value = ops.logsumexp(log_weights + log_likelihood, axis=-1)
        return ops.where(ops.not_equal(target, PAD), value, 0.0)

    @in_graph(IDS, IDS, IDS)
    def alignments(self, source, target_input, target):
        """Return alignment distributions, (B, T, S) each, as a dictionary.

        z is the alignment of a target word, x the source and y the target.

        - "prior": p(z | x, y_<t). Bayesian models return the mean weights as "mean" instead.
        - "posterior": q(z | x, y), for models with an inference network.
        - "exact": p(z | x, y_<=t) from Bayes' rule, for models with a categorical alignment.
        """
        models = self._models.value
        memory, source_mask, decoded = self._read(source, target_input, target)

        def masked(logits):
            return ops.where(source_mask[:, None], ops.cast(logits, "float32"), -1e9)

        log_prior = ops.log_softmax(masked(decoded["logits"]), axis=-1)
        alignments = {"mean" if self._kind.is_bayesian else "prior": ops.exp(log_prior)}
        if models.posterior is not None:
            alignments["posterior"] = ops.softmax(masked(models.posterior({"source": source, "target": target})))
        if models.latent is not None:
            every_position = self._latent_of(Inference.parse("exact"))
            hidden, _ = self._candidates(decoded, self._values(memory), source_mask, every_position)
            alignments["exact"] = ops.softmax(masked(log_prior + models.emission.words(hidden, target)))
        return alignments

    def _emitting(self, source, target_input, target, memory=None):
        """Return the result of `_candidates` for all target words."""
        memory, source_mask, decoded = self._read(source, target_input, target, memory)
        return self._candidates(decoded, self._values(memory), source_mask, self._latent.value)

    def _read(self, source, target_input, target, memory=None):
        """Return the memory (B, S, D), the source mask, and the decoder outputs for every target step."""
        models = self._models.value
        memory = models.encoder(source) if memory is None else memory
        source_mask = ops.not_equal(source, PAD)
        decoded = models.decoder(
            models.target_dropout(models.target_embedding(target_input)),
            memory,
            inputs_mask=ops.not_equal(target, PAD),
            memory_mask=source_mask,
            return_logits=True,
        )
        return memory, source_mask, decoded

    def _latent_of(self, inference):
        """Return a `CategoricalAttention`, or `None` without latent alignment."""
        if self._models.value.latent is None:
            return None
        return keras_vattn.CategoricalAttention(objective=inference.objective(), seed=self._options.value.run.seed)

    def _values(self, memory):
        """Return the projected memory, or `None` without latent alignment."""
        return None if self._latent.value is None else self._models.value.emission.projected(memory)

    def _candidates(self, decoded, values, source_mask, latent):
        """Return `Emission.hidden` (N, T, K, units) and the log weights (N, T, K) of K candidate contexts per word."""
        emission, query = self._models.value.emission, decoded["query"]
        if latent is None:
            context = emission.projected(decoded["context"])[:, :, None]
            return emission.hidden(query, context), ops.zeros_like(context[..., 0], "float32")
        latent_outputs = latent(query, values, value_mask=source_mask, logits=decoded["logits"])
        return emission.hidden(query, latent_outputs["candidates"]), latent_outputs["log_weights"]

    def _search(self, source, num_results):
        start, step = self._steps(source)
        start_ids, penalty = tf.fill([tf.shape(source)[0]], START), self._options.value.search.length_penalty
        sizes = self._max_target_length + 1, self._num_beams, num_results
        return decoding.beam_search(step, start, start_ids, END, *sizes, penalty, forbidden_ids=FORBIDDEN)

    def _steps(self, source):
        """Return the initial state and the step function of a beam search.

        If attention weights are sampled, the probability of a word is the mean over the samples. All beams of a
        sentence share these samples. The samples depend on the position of the sentence in the batch.
        """
        models, num_beams, noise = self._models.value, self._num_beams, {}
        decoder, encoded, source_mask = models.decoder, models.encoder(source), ops.not_equal(source, PAD)
        is_drawn = self._latent.value is None and self.inference.value.kind == "sample"
        draws = self.inference.value.count if is_drawn else 1

        def by_draw(x):
            return ops.reshape(x, (-1, draws, *ops.shape(x)[1:]))

        if is_drawn:
            memory = decoder.prepare_memory(*_repeat((encoded, source_mask), draws))
            with keras_vattn.posterior_draws(models.training, seed=self._options.value.run.seed):
                noise = decoder.draw_noise(draws * tf.shape(source)[0], self._max_target_length + 1, memory)
            noise = _repeat(tree.map_structure(by_draw, noise), num_beams)
            noise = tree.map_structure(lambda x: ops.reshape(x, (-1, *ops.shape(x)[2:])), noise)
        memory, memory_mask = _repeat((encoded, source_mask), num_beams * draws)
        prepared, values = decoder.prepare_memory(memory, memory_mask), self._values(memory)

        def step(ids, state, position):
            step_noise = tree.map_structure(lambda x: x[:, position], noise)
            words, states = _repeat((ids, state), draws) if is_drawn else (ids, state)
            outputs, new_state = decoder.step(models.target_embedding(words), states, prepared, step_noise)
            decoded = {name: x[:, None] for name, x in outputs.items()}
            hidden, log_weights = self._candidates(decoded, values, memory_mask, self._latent.value)
            weights = ops.cast(outputs["weights"], "float32")
            if is_drawn:
                hidden, weights = by_draw(hidden[:, 0, 0])[:, None], ops.mean(by_draw(weights), axis=1)
                log_weights = ops.full(ops.shape(hidden)[:-1], -np.log(draws), "float32")
                # The decoder reads the expected context, so all samples have the same state. Store one state.
                new_state = tree.map_structure(lambda x, old: tf.ensure_shape(x[::draws], old.shape), new_state, state)
            return models.emission.words(hidden, log_weights=log_weights)[:, 0], new_state, {"weights": weights}

        return decoder.start(tf.shape(source)[0], decoder.prepare_memory(encoded, source_mask)), step


def _repeat(tensors, count):
    return tree.map_structure(lambda x: tf.repeat(x, count, axis=0), tensors)


def generate(run, options):
    """Yield the translation of each input line, with uncertainty if the options request it."""
    lines, ids = read_inputs(options, run.codec.source, run.options.text.max_length)
    translator = Translator(run, options.inference, options.num_beams, draws=options.num_draws != 0)
    if options.uncertainty:
        require_noise(translator.noise.value, options.num_draws)
        yield from lines_of(aligned(lines, translate_with_uncertainty(translator, ids, options.num_draws), blank=None))
    else:
        yield from aligned(lines, translate(translator, run.codec, ids))


def endpoints(run, options=None):
    model = MODELS[run.options.model]
    uncertain = ("uncertain",) if model.is_continuous else ()
    return Translator(run, model.inference_without_draws), ("generate", "n_best", "score", *uncertain)


def translate(translator, codec, sources, title="translating"):
    """Return the best translation of each source (a list of ids), in input order."""

    def write(ids, number):
        return [text.decode() for text in codec.target.decode(translator.beam(ids)["ids"]).numpy()]

    return _in_batches(write, sources, title)


def translate_with_uncertainty(translator, sources, num_draws=None):
    """Return translations with uncertainty, in the format of `written_of`. `num_draws` defaults to 10."""
    num_draws = num_draws or NUM_DRAWS

    def write(ids, number):
        figures = translator.uncertainty(ids, num_draws, number)
        return written_of(figures.pop("texts").numpy(), figures.pop("words").numpy(), figures)

    return _in_batches(write, sources, "translating")


def _in_batches(write, sources, title):
    """Return the results of `write(ids, batch_number)` for batches, in the order of `sources`."""
    # Batches of similar lengths need less padding and stop earlier.
    order = np.argsort([len(ids) for ids in sources], kind="stable")
    sentences = [None] * len(sources)
    starts = range(0, len(order), BATCH)
    for number, start in enumerate(progress(starts, title) if title else starts):
        rows = order[start : start + BATCH]
        ids = tf.constant(padded([sources[row] for row in rows]))
        for row, sentence in zip(rows, write(ids, number), strict=True):
            sentences[row] = sentence
    return sentences

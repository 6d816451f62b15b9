"""Translation with a trained model, as an exportable module: strings in, strings out."""

import numpy as np
import tensorflow as tf
from keras import ops

import keras_vattn
from applications.common.inference import Inference
from applications.common.progress import progress
from applications.common.serving import Untracked, in_graph
from applications.nmt.ensemble import drawn_steps
from applications.nmt.options import MODELS
from applications.text.batching import padded
from applications.text.module import FORBIDDEN, IDS, TEXTS, PairModule
from applications.text.pairs import read_inputs
from applications.text.text import END, PAD, START
from keras_vattn import decoding
from keras_vattn.latent_alignment.log_probabilities import without_empty_rows

BATCH = 32


class WordModel:
    """The probability of a word, from the candidates of its alignment and their weights.

    Args:
        models: `Models`.
        inference: `Inference`.
        seed: Seed of "sample:n".
    """

    def __init__(self, models, inference, seed=0):
        self.models = models
        self.latent = None
        if models.latent is not None:
            self.latent = keras_vattn.CategoricalAttention(objective=inference.objective(), seed=seed)

    def prepare(self, memory):
        """Return the projected memory (N, S, units), once for all steps; `None` where the decoder draws the context."""
        return None if self.latent is None else self.models.emission.value_projection(memory)

    def candidates(self, decoded, values, source_mask):
        """Return the emission's hidden states (N, T, K, units), and the logarithms of their weights (N, T, K).

        Args:
            decoded: Result of the decoder for T steps, with `return_logits=True`.
            values, source_mask: Result of `prepare`, and the mask (N, S) of the memory.
        """
        emission, query = self.models.emission, decoded["query"]
        if self.latent is None:
            context = emission.value_projection(decoded["context"])[:, :, None]
            return emission.hidden(query, context), ops.zeros_like(context[..., 0], "float32")
        drawn = self.latent(query, values, value_mask=source_mask, logits=decoded["logits"])
        return emission.hidden(query, drawn["candidates"]), drawn["log_weights"]

    def log_words(self, decoded, values, source_mask):
        """Return log p of every word, (N, T, V), the alignment marginalised out."""
        hidden, log_weights = self.candidates(decoded, values, source_mask)
        return self.models.emission.words(hidden, log_weights=log_weights)

    def log_likelihood(self, decoded, values, source_mask, target):
        """Return log p of the words of `target` (N, T), in nats, (N, T); 0 at padding."""
        hidden, log_weights = self.candidates(decoded, values, source_mask)
        log_likelihood = self.models.emission.words(hidden, target)
        # A source without a word: all candidates are the same.
        log_weights = without_empty_rows(ops.cast(log_weights, "float32"))
        value = ops.logsumexp(log_weights + log_likelihood, axis=-1)
        return ops.where(ops.not_equal(target, PAD), value, 0.0)


class Translator(PairModule):
    """The `PairModule` with beam search, and with the alignments of a pair.

    Args:
        run: `Run`.
        inference: Name of an inference, or `None` for the model's own.
        num_beams: Beams, or `None` for the run's.
    """

    def __init__(self, run, inference=None, num_beams=None):
        super().__init__(run, run.options.text.max_length, run.options.text.max_length)
        kind = MODELS[run.options.model]
        self.inference = Untracked(Inference.parse(inference or kind.inference, kind.is_continuous))
        self._num_beams = num_beams or run.options.search.num_beams
        self._draws_weights = self.inference.value.kind == "sample" and kind.is_continuous
        self._words = Untracked(WordModel(run.models, self.inference.value, seed=run.options.run.seed))

    @in_graph(TEXTS)
    def generate(self, texts):
        """Return the best translation (B,) of each text (B,)."""
        return self.target_encoder.decode(self._search(self._encode(texts), 1)["ids"][:, 0])

    @in_graph(TEXTS)
    def n_best(self, texts):
        """Return all sentences of the beam, best first: "texts", "scores" and "log_probabilities", (B, num_beams)."""
        sentences = self._search(self._encode(texts), self._num_beams)
        names = ("scores", "log_probabilities")
        return {"texts": self.target_encoder.decode(sentences["ids"]), **{name: sentences[name] for name in names}}

    @in_graph(IDS)
    def beam(self, source):
        """Return the best sentence: ids (B, L), lengths, scores and log_probabilities (B,), weights (B, L, S)."""
        return {name: x[:, 0] for name, x in self._search(source, 1).items()}

    @in_graph(IDS, IDS, IDS)
    def log_likelihood(self, source, target_input, target):
        """Return log p of every word of `target` given those before it, (B, T) nats."""
        memory, source_mask, decoded = self._read(source, target_input, target)
        words = self._words.value
        return words.log_likelihood(decoded, words.prepare(memory), source_mask, target)

    @in_graph(IDS, IDS, IDS)
    def alignments(self, source, target_input, target):
        """Return distributions of each word's alignment, (B, T, S) each.

        `"prior"`: p(z | x, y_<t); for BAM, whose prior is another one, `"mean"`: the mean of the weights.
        `"posterior"`: q(z | x, y) of the inference network, where there is one. `"exact"`: p(z | x, y_<=t), which the
        emission and the prior imply, where the alignment is categorical.
        """
        models = self._models.value
        memory, source_mask, decoded = self._read(source, target_input, target)
        masked = lambda x: ops.where(source_mask[:, None], ops.cast(x, "float32"), -1e9)  # noqa: E731
        log_prior = ops.log_softmax(masked(decoded["logits"]), axis=-1)
        is_bayesian = MODELS[self._options.value.model].is_bayesian
        alignments = {"mean" if is_bayesian else "prior": ops.exp(log_prior)}
        if models.posterior is not None:
            alignments["posterior"] = ops.softmax(masked(models.posterior({"source": source, "target": target})))
        if models.latent is not None:
            joint = log_prior + self._enumerated(memory, source_mask, decoded, target)
            alignments["exact"] = ops.softmax(masked(joint))
        return alignments

    @in_graph(IDS, IDS, IDS)
    def k_curve(self, source, target_input, target):
        """Return the logarithms of two sums over the K most probable alignments, for every K, (B, T, S) nats each: of
        p(z) p(y_t | z), and of p(z), by which K-max divides."""
        memory, source_mask, decoded = self._read(source, target_input, target)
        log_prior = ops.log_softmax(ops.where(source_mask[:, None], decoded["logits"], -1e9), axis=-1)
        log_likelihood = self._enumerated(memory, source_mask, decoded, target)
        order = tf.argsort(log_prior, axis=-1, direction="DESCENDING", stable=True)
        log_prior = tf.gather(log_prior, order, batch_dims=2)
        joint = log_prior + tf.gather(log_likelihood, order, batch_dims=2)
        cumulative = lambda x: tf.math.cumulative_logsumexp(tf.maximum(x, -1e9), axis=-1)  # noqa: E731
        return cumulative(joint), cumulative(log_prior)

    def _read(self, source, target_input, target):
        """Return memory (B, S, D), the source's mask, and the result of the decoder for every step of the target."""
        models = self._models.value
        memory, source_mask = models.encoder(source), ops.not_equal(source, PAD)
        decoded = models.decoder(
            models.target_embedding(target_input),
            memory,
            inputs_mask=ops.not_equal(target, PAD),
            memory_mask=source_mask,
            return_logits=True,
        )
        return memory, source_mask, decoded

    def _enumerated(self, memory, source_mask, decoded, target):
        """Return log p(y_t | z = s) of every source position, (B, T, S)."""
        words = WordModel(self._models.value, Inference("exact", "exact", None))
        hidden, _ = words.candidates(decoded, words.prepare(memory), source_mask)
        return self._models.value.emission.words(hidden, target)

    def _search(self, source, num_results):
        encoded, source_mask = self._models.value.encoder(source), ops.not_equal(source, PAD)
        steps = self._averaged_steps if self._draws_weights else self._steps
        start, step = steps(encoded, source_mask)
        return decoding.beam_search(
            step,
            start,
            tf.fill([tf.shape(source)[0]], START),
            END,
            self._max_target_length + 1,
            self._num_beams,
            num_results=num_results,
            length_penalty=self._options.value.search.length_penalty,
            forbidden_ids=FORBIDDEN,
        )

    def _steps(self, encoded, source_mask):
        """Return the state before the first step and the step of a beam search."""
        models, words = self._models.value, self._words.value
        memory, memory_mask = (tf.repeat(x, self._num_beams, axis=0) for x in (encoded, source_mask))
        prepared, values = models.decoder.prepare_memory(memory, memory_mask), words.prepare(memory)

        def step(ids, state, position):
            outputs, state = models.decoder.step(models.target_embedding(ids), state, prepared)
            decoded = {name: x[:, None] for name, x in outputs.items()}
            log_words = words.log_words(decoded, values, memory_mask)[:, 0]
            return log_words, state, {"weights": ops.cast(outputs["weights"], "float32")}

        start = models.decoder.start(tf.shape(encoded)[0], models.decoder.prepare_memory(encoded, source_mask))
        return start, step

    def _averaged_steps(self, encoded, source_mask):
        """As `_steps`, over draws of a continuous alignment."""
        options, draws = self._options.value, self.inference.value.count
        size = self._num_beams, options.text.max_length + 1
        of_sentences = MODELS[options.model].feeding == "sampled"
        return drawn_steps(self._models.value, encoded, source_mask, *size, draws, options.run.seed, of_sentences)


def generate(run, options):
    """Yield the translation of each input."""
    ids = read_inputs(options, run.codec.source, run.options.text.max_length)
    yield from translate(Translator(run, options.inference, options.num_beams), run.codec, ids)


def endpoints(run, options=None):
    inference = (options and options.inference) or MODELS[run.options.model].inference_without_draws
    return Translator(run, inference), ("generate", "n_best", "score")


def translate(translator, codec, sources, title="translating"):
    """Return the best sentence of the beam for each list of source ids, in their order."""
    # Sentences of like length together: a batch ends with its longest.
    order = np.argsort([len(ids) for ids in sources], kind="stable")
    sentences = [None] * len(sources)
    starts = range(0, len(order), BATCH)
    for start in progress(starts, title) if title else starts:
        rows = order[start : start + BATCH]
        ids = translator.beam(tf.constant(padded([sources[row] for row in rows])))["ids"]
        for row, text in zip(rows, codec.target.decode(ids).numpy(), strict=True):
            sentences[row] = text.decode()
    return sentences

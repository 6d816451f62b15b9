"""Tests beam search against the enumeration of all sentences, and with the library's decoder."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax
from tiers import slow_after

import keras_vattn
from keras_vattn.decoding import beam_search, greedy

VOCABULARY, START, END, PAD, LENGTH, SOURCE = 4, 1, 2, 0, 4, 3
GENERATOR = np.random.default_rng(3)
TABLE = GENERATOR.normal(size=(VOCABULARY, VOCABULARY), scale=1.5).astype("float32")
# Attention scores that depend on the previous word and the position.
SCORES = GENERATOR.normal(size=(VOCABULARY, LENGTH, SOURCE), scale=2.0).astype("float32")
STARTS = np.array([1, 3, 2], "int32")
MASK = np.array([[True, True, True], [True, True, False], [True, False, False]])


def make_step(num_beams):
    mask = np.repeat(MASK, num_beams, axis=0)

    def step(ids, state, position):
        logits = tf.gather(TABLE, ids) + 0.5 * tf.cast(state["count"], tf.float32)[:, None] * tf.range(4.0)
        scores = tf.gather(SCORES, ids)[:, tf.minimum(position, LENGTH - 1)]
        weights = tf.nn.softmax(tf.where(mask, scores, -1e9))
        return logits, {"count": state["count"] + 1}, {"weights": weights, "nested": {"previous": ids}}

    return step


def search(num_beams, starts=STARTS, **options):
    options = {"max_length": LENGTH, **options}
    state = {"count": tf.zeros((len(starts),), tf.int32)}
    return beam_search(make_step(num_beams), state, tf.constant(starts), END, num_beams=num_beams, **options)


def all_sentences():
    """Yield every sentence that ends, and every unfinished sentence of the maximum length."""
    for length in range(1, LENGTH + 1):
        for words in itertools.product(range(VOCABULARY), repeat=length):
            if END not in words[:-1] and (words[-1] == END or length == LENGTH):
                yield words


def score_of(words, example, length_penalty=0.0):
    """Return four values computed with NumPy: whether the sentence ends, score, log p, and attention (t, S)."""
    mask, previous, log_probability, weights = MASK[example], STARTS[example], 0.0, []
    for position, word in enumerate(words):
        logits = TABLE[previous] + 0.5 * position * np.arange(VOCABULARY)
        log_probability += log_softmax(logits.astype("float64"))[word]
        scores = np.where(mask, SCORES[previous, position], -np.inf)
        weights.append(np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum())
        previous = word
    score = log_probability / ((5 + len(words)) / 6) ** length_penalty
    return words[-1] == END, score, log_probability, np.array(weights)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_beam_wider_than_all_sentences_enumerates_them(length_penalty):
    """The five best sentences match the enumeration in score, log p, length and attention."""
    results = search(200, num_results=5, length_penalty=length_penalty)
    for example in range(len(STARTS)):
        scored = [(*score_of(words, example, length_penalty), words) for words in all_sentences()]
        best = sorted(scored, key=lambda x: x[:2], reverse=True)[:5]
        for rank, (_, score, log_probability, weights, words) in enumerate(best):
            assert results["ids"][example, rank].numpy()[: len(words)].tolist() == list(words)
            assert (results["ids"][example, rank].numpy()[len(words) :] == PAD).all()
            assert int(results["lengths"][example, rank]) == len(words)
            np.testing.assert_allclose(results["scores"][example, rank], score, rtol=1e-4)
            np.testing.assert_allclose(results["log_probabilities"][example, rank], log_probability, rtol=1e-4)
            np.testing.assert_allclose(results["weights"][example, rank, : len(words)], weights, rtol=1e-4, atol=1e-6)
            assert (results["weights"][example, rank, len(words) :].numpy() == 0).all()
            previous = [STARTS[example], *words[:-1]]
            assert results["nested"]["previous"][example, rank].numpy()[: len(words)].tolist() == previous


def test_a_narrow_beam_matches_a_plain_loop():
    """At each step, the NumPy loop selects the best two among the finished sentences and all extensions."""
    for example in range(len(STARTS)):
        beams = [((), 0.0)]
        for _ in range(LENGTH):
            candidates = []
            for words, score in beams:
                if words and words[-1] == END:
                    candidates.append((words, score))
                    continue
                for word in range(VOCABULARY):
                    candidates.append(((*words, word), score_of((*words, word), example, 1.0)[1]))
            beams = sorted(candidates, key=lambda x: -x[1])[:2]
        beams.sort(key=lambda x: (x[0][-1] == END, x[1]), reverse=True)
        results = search(2, num_results=2, length_penalty=1.0)
        for rank, (words, score) in enumerate(beams):
            assert results["ids"][example, rank].numpy()[: len(words)].tolist() == list(words)
            np.testing.assert_allclose(results["scores"][example, rank], score, rtol=1e-4)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_one_beam_is_greedy_decoding(length_penalty):
    results = search(1, length_penalty=length_penalty)
    state = {"count": tf.zeros((len(STARTS),), tf.int32)}
    expected = greedy(make_step(1), state, tf.constant(STARTS), END, LENGTH)
    for name in ("ids", "lengths", "log_probabilities", "weights"):
        np.testing.assert_allclose(results[name][:, 0], expected[name], rtol=1e-5)


def test_forbidden_ids():
    """Forbidden ids are never chosen, and the other words keep their probabilities."""
    results = search(200, num_results=3, forbidden_ids=(3, 0))
    for example in range(len(STARTS)):
        allowed = [words for words in all_sentences() if not {0, 3} & set(words)]
        best = sorted(((*score_of(words, example)[:2], words) for words in allowed), reverse=True)[:3]
        for rank, (_, score, words) in enumerate(best):
            assert results["ids"][example, rank].numpy()[: len(words)].tolist() == list(words)
            np.testing.assert_allclose(results["log_probabilities"][example, rank], score, rtol=1e-4)


def test_truncated_sentences_rank_last():
    """Word 3 repeats forever with probability 1, but ranks after the finished sentence."""
    table = np.log(np.array([[0.25] * 4, [0.1, 0.1, 0.2, 0.6], [0.25] * 4, [1e-9, 1e-9, 1e-9, 1.0]]))
    step = lambda ids, state, position: (tf.gather(tf.constant(table, tf.float32), ids), state, {})  # noqa: E731
    results = beam_search(step, (), tf.constant([START]), END, 5, num_beams=2, num_results=2)
    assert results["ids"][0].numpy().tolist() == [[END, PAD, PAD, PAD, PAD], [3, 3, 3, 3, 3]]
    assert results["scores"][0, 0] < results["scores"][0, 1]


def test_fewer_sentences_than_results():
    """Word 2 ends the sentence and has probability 1, so only one sentence has a probability above 0."""
    step = lambda ids, state, position: (  # noqa: E731
        tf.where(tf.range(4) == END, 0.0, float("-inf")) + tf.zeros_like(ids, tf.float32)[:, None],
        state,
        {},
    )
    results = beam_search(step, (), tf.constant([START, START]), END, 3, num_beams=3, num_results=3)
    assert results["lengths"].numpy().tolist() == [[1, 0, 0]] * 2
    np.testing.assert_array_equal(results["scores"], [[0.0, -np.inf, -np.inf]] * 2)
    assert (results["ids"].numpy()[:, 1:] == PAD).all()


@pytest.mark.parametrize("num_beams", [1, 2])
def test_a_beam_without_a_word_is_missing(num_beams):
    """Word 3 is the most probable first word, but no word may follow. After word 4 the sentence ends."""
    table = np.full((5, 5), -np.inf, "float32")
    table[START, [3, 4]], table[4, END], table[END, END] = np.log([0.7, 0.3]), 0.0, 0.0
    step = lambda ids, state, position: (tf.gather(table, ids), state, {})  # noqa: E731
    results = beam_search(step, (), tf.constant([START, 4]), END, 3, num_beams=num_beams, num_results=num_beams)
    # With one beam, the search misses the sentence that ends.
    best, score = ([4, END, 0], np.log(0.3)) if num_beams == 2 else ([0, 0, 0], -np.inf)
    for row, words, expected in ((0, best, score), (1, [END, 0, 0], 0.0)):
        assert results["ids"][row].numpy().tolist() == [words, *[[0, 0, 0]] * (num_beams - 1)]
        for name in ("log_probabilities", "scores"):
            np.testing.assert_allclose(results[name][row], [expected, *[-np.inf] * (num_beams - 1)], rtol=1e-6)
    np.testing.assert_array_equal(results["lengths"], np.count_nonzero(results["ids"], axis=-1))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_and_xla(jit_compile):
    options = {"num_results": 3, "length_penalty": 0.6}
    compiled = tf.function(lambda: search(5, **options), jit_compile=jit_compile)
    eager, graph = search(5, **options), compiled()
    for name in ("ids", "lengths", "scores", "weights"):
        np.testing.assert_allclose(graph[name], eager[name], rtol=1e-4, atol=1e-5)


def test_an_unknown_batch_size(tmp_path):
    """A sentence has the same result alone and in a batch, also from a SavedModel."""
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def generate(starts):
        step = lambda ids, state, position: (tf.gather(TABLE, ids), state, {})  # noqa: E731
        return beam_search(step, (), starts, END, 6, num_beams=3, num_results=2)

    module.generate = generate
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    assert loaded.generate(tf.constant([], tf.int32))["ids"].shape == (0, 2, 6)
    together = loaded.generate(tf.constant(STARTS))
    for index, start in enumerate(STARTS):
        single = generate(tf.constant([start]))
        np.testing.assert_array_equal(together["ids"][index], single["ids"][0])
        np.testing.assert_allclose(together["scores"][index], single["scores"][0], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "`num_beams`.*Received: num_beams=0"),
        ({"num_results": 3, "num_beams": 2}, "at most `num_beams`. Received: num_results=3, num_beams=2"),
        ({"max_length": 0}, "Received: max_length=0"),
        ({"length_penalty": -1.0}, "Received: length_penalty=-1.0"),
        ({"length_penalty": float("nan")}, "Received: length_penalty=nan"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        search(**{"num_beams": 2, **options})


@pytest.mark.parametrize("attention", slow_after(["additive", "location_sensitive", "latent"]))
def test_the_decoder_of_the_library(attention):
    """A sentence found with `AttentionDecoder.step` has the score that a call of the decoder gives."""
    vocabulary, width, num_beams, end = 9, 6, 4, 2
    options = {"feeding": "expected"} if attention == "latent" else {}
    inner = keras_vattn.DeterministicAttention("additive" if attention == "latent" else attention)
    keras.utils.set_random_seed(1)
    embedding, output = keras.layers.Embedding(vocabulary, width), keras_vattn.TokenLogLikelihood(vocabulary)
    decoder = keras_vattn.AttentionDecoder(width, inner, **options)
    latent = keras_vattn.CategoricalAttention(objective="marginal")
    memory = tf.random.stateless_normal((2, 5, width), (1, 2)) * 3.0
    mask = tf.constant([[True] * 5, [True] * 3 + [False] * 2])

    def log_words(outputs, memory, mask):
        """Return log-probabilities (N, T, V) from the outputs of a decoder for T steps."""
        if attention != "latent":
            hidden = ops_concatenate(outputs["hidden"], outputs["context"])[:, :, None]
            return output(hidden)[:, :, 0]
        results = latent(outputs["query"], memory, value_mask=mask, logits=outputs["logits"])
        query = tf.repeat(outputs["query"][:, :, None], results["candidates"].shape[2], axis=2)
        return output(ops_concatenate(query, results["candidates"]), log_weights=results["log_weights"])

    def ops_concatenate(*parts):
        return 4.0 * keras.ops.concatenate(parts, axis=-1)

    decoder(embedding(tf.constant([[1], [1]])), memory, memory_mask=mask)
    beams, beams_mask = tf.repeat(memory, num_beams, axis=0), tf.repeat(mask, num_beams, axis=0)
    prepared = decoder.prepare_memory(beams, beams_mask)

    def step(ids, state, position):
        outputs, state = decoder.step(embedding(ids), state, prepared)
        outputs = {name: x[:, None] for name, x in outputs.items()}
        return log_words(outputs, beams, beams_mask)[:, 0], state, {"weights": outputs["weights"][:, 0]}

    start = decoder.start(2, decoder.prepare_memory(memory, mask))
    results = beam_search(step, start, tf.constant([1, 1]), end, 7, num_beams, num_results=3, length_penalty=0.2)
    for rank in range(3):
        ids, lengths = results["ids"][:, rank], results["lengths"][:, rank].numpy()
        inputs = tf.concat([[[1], [1]], ids[:, :-1]], axis=1)
        decoded = decoder(embedding(inputs), memory, memory_mask=mask, return_attention_scores=True, return_logits=True)
        words = log_words(decoded, memory, mask)
        chosen = tf.gather(words, ids, batch_dims=2).numpy()
        valid = np.arange(7) < lengths[:, None]
        np.testing.assert_allclose(results["log_probabilities"][:, rank], np.where(valid, chosen, 0).sum(1), rtol=1e-4)
        weights = np.where(valid[..., None], decoded["weights"], 0)
        np.testing.assert_allclose(results["weights"][:, rank], weights, rtol=1e-3, atol=1e-5)

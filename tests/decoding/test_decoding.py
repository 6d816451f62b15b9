import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, softmax

from keras_vattn.decoding import RandomSampler, decode, greedy, sample

VOCABULARY, START, END, PAD = 7, 1, 2, 0
TABLE = np.random.default_rng(5).normal(size=(VOCABULARY, VOCABULARY), scale=2.0).astype("float32")
STARTS = np.array([1, 3, 4, 5, 6], "int32")


def step(ids, state, position):
    """Compute logits from the previous word and the counter in the state; return word and counter as entries."""
    logits = tf.gather(TABLE, ids) + 0.3 * tf.cast(state["count"], tf.float32)[:, None] * tf.range(7.0)
    entries = {"seen": ids, "twice": {"count": tf.stack([state["count"]] * 2, axis=-1)}}
    return logits, {"count": state["count"] + 1}, entries


def state(batch=5):
    return {"count": tf.zeros((batch,), tf.int32)}


def reference(starts, max_length, table=TABLE):
    rows, scores, previous_words = [], [], []
    for start in starts:
        word, row, score, entries = start, [], 0.0, []
        for position in range(max_length):
            logits = table[word] + 0.3 * position * np.arange(7)
            entries.append(word)
            word = int(np.argmax(logits))
            row.append(word)
            score += log_softmax(logits)[word]
            if word == END:
                break
        rows.append(row)
        scores.append(score)
        previous_words.append(entries)
    return rows, scores, previous_words


def table_that_ends():
    """Return logits under which every chain of words ends, except 6, 6, ..."""
    table = np.full((VOCABULARY, VOCABULARY), -5.0, "float32")
    for word, following in {1: 3, 3: 4, 4: 2, 5: 2, 6: 6, 2: 5, 0: 0}.items():
        table[word, following] = 5.0
    return table


def test_greedy_is_a_loop_of_argmax():
    table = table_that_ends()

    def fixed(ids, state, position):
        return tf.gather(table, ids), {"count": state["count"] + 1}, {"seen": ids}

    decoded = greedy(fixed, state(), tf.constant(STARTS), END, max_length=6)
    assert decoded["ids"].numpy().tolist() == [
        [3, 4, 2, 0, 0, 0],
        [4, 2, 0, 0, 0, 0],
        [2, 0, 0, 0, 0, 0],
        [2, 0, 0, 0, 0, 0],
        [6, 6, 6, 6, 6, 6],
    ]
    assert decoded["lengths"].numpy().tolist() == [3, 2, 1, 1, 6]
    per_word = log_softmax(table[6])[6]
    np.testing.assert_allclose(decoded["log_probabilities"], per_word * np.array([3, 2, 1, 1, 6]), rtol=1e-3)


def test_against_numpy_with_a_state():
    decoded = greedy(step, state(), STARTS, END, max_length=5)
    rows, scores, previous_words = reference(STARTS, 5)
    for index, row in enumerate(rows):
        assert decoded["ids"][index].numpy().tolist() == row + [PAD] * (5 - len(row))
        assert int(decoded["lengths"][index]) == len(row)
        np.testing.assert_array_equal(decoded["seen"][index, : len(row)], previous_words[index])
        np.testing.assert_array_equal(decoded["twice"]["count"][index, : len(row), 1], np.arange(len(row)))
    np.testing.assert_allclose(decoded["log_probabilities"], scores, rtol=1e-5)
    assert decoded["ids"].shape == (5, 5)
    assert decoded["twice"]["count"].shape == (5, 5, 2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_unknown_batch_size_and_length(jit_compile):
    # XLA needs the length, which is a shape of the result, at compile time.
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.int32)], jit_compile=jit_compile)
    def run(starts):
        return greedy(step, state(tf.shape(starts)[0]), starts, END, max_length=5)

    expected = greedy(step, state(), STARTS, END, max_length=5)
    for rows in (5, 2, 0):
        decoded = run(STARTS[:rows])
        np.testing.assert_array_equal(decoded["ids"], expected["ids"][:rows])
        np.testing.assert_allclose(decoded["log_probabilities"], expected["log_probabilities"][:rows], rtol=1e-5)


def test_the_longest_length_may_be_a_tensor():
    run = tf.function(lambda length: greedy(step, state(), STARTS, END, length)["ids"])
    np.testing.assert_array_equal(run(tf.constant(3)), greedy(step, state(), STARTS, END, 3)["ids"])
    assert run(tf.constant(4)).shape == (5, 4)


def draws(sampler, logits, count=20_000):
    return sampler(tf.tile(tf.constant(logits, tf.float32)[None], [count, 1]), tf.constant(0)).numpy()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies(temperature):
    """The frequency of each word in 20 000 samples is its probability within 4 standard errors; seed 3."""
    logits = TABLE[0]
    counts = np.bincount(draws(RandomSampler(3, temperature), logits), minlength=VOCABULARY)
    probability = softmax(logits / temperature)
    standard_error = np.sqrt(probability * (1 - probability) / 20_000)
    assert (np.abs(counts / 20_000 - probability) < 4 * standard_error + 1e-12).all()


def test_frequencies_of_a_nucleus():
    """Over 20 000 samples, words of the nucleus keep their probability ratios, within 4 standard errors; seed 4."""
    logits = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
    counts = np.bincount(draws(RandomSampler(4, top_p=0.8), logits), minlength=5)
    probability = np.array([0.4, 0.3, 0.15, 0, 0]) / 0.85
    standard_error = np.sqrt(probability * (1 - probability) / 20_000)
    assert (np.abs(counts / 20_000 - probability) <= 4 * standard_error).all()


@pytest.mark.parametrize(
    ("options", "support"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.01}, {0}),
        ({"top_p": 0.39}, {0}),
        ({"top_p": 0.41}, {0, 1}),
        ({"top_p": 0.8}, {0, 1, 2}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        ({"top_k": 2, "top_p": 0.99}, {0, 1}),
        ({"top_k": 4, "top_p": 0.5}, {0, 1}),
    ],
)
def test_support(options, support):
    assert set(draws(RandomSampler(5, **options), np.log([0.4, 0.3, 0.15, 0.1, 0.05]))) == support


def test_a_seed_repeats_and_positions_differ():
    logits = tf.zeros((50, VOCABULARY))
    sampler = RandomSampler(tf.constant([3, 4]))
    np.testing.assert_array_equal(sampler(logits, 1), RandomSampler(tf.constant([3, 4]))(logits, 1))
    assert np.any(sampler(logits, 1) != sampler(logits, 2))
    assert np.any(sampler(logits, 1) != RandomSampler(5)(logits, 1))


def test_the_log_probability_of_a_sample_is_unrestricted():
    """The log-probability of a sample is computed under the full distribution, not the restricted one."""
    decoded = sample(step, state(), STARTS, END, 5, seed=1, temperature=0.7, top_k=2)
    for index, start in enumerate(STARTS):
        word, score = int(start), 0.0
        for position in range(int(decoded["lengths"][index])):
            logits = TABLE[word] + 0.3 * position * np.arange(7)
            word = int(decoded["ids"][index, position])
            score += log_softmax(logits)[word]
        assert float(decoded["log_probabilities"][index]) == pytest.approx(score, rel=1e-4)


def test_finished_sentences_are_padded():
    decoded = sample(step, state(200), np.resize(STARTS, 200), END, 12, seed=2)
    ids, lengths = decoded["ids"].numpy(), decoded["lengths"].numpy()
    is_within_length = np.arange(12) < lengths[:, None]
    assert (ids[~is_within_length] == PAD).all()
    ended = lengths < 12
    assert ended.any()
    assert (ids[ended, lengths[ended] - 1] == END).all()
    assert not ((ids == END) & (np.arange(12) < lengths[:, None] - 1)).any()


@pytest.mark.parametrize("options", [None, {"seed": 0}, {"seed": 0, "top_k": 2}, {"seed": 0, "top_p": 0.9}])
@pytest.mark.parametrize("forbidden_ids", [(), (3,)])
def test_a_sentence_without_a_word_has_no_length(options, forbidden_ids):
    """After word 4, every word is impossible or forbidden. After word 5, the sentence ends."""
    table = np.full((6, 6), -np.inf, "float32")
    table[START, 4] = table[5, END] = table[END, END] = 0.0
    table[4, list(forbidden_ids)] = 0.0
    step = lambda ids, state, position: (tf.gather(table, ids), state, {})  # noqa: E731
    run = greedy if options is None else sample
    results = run(step, (), tf.constant([START, 5]), END, 4, forbidden_ids=forbidden_ids, **(options or {}))
    assert results["ids"].numpy().tolist() == [[PAD] * 4, [END, PAD, PAD, PAD]]
    assert results["lengths"].numpy().tolist() == [0, 1]
    assert results["log_probabilities"].numpy().tolist() == [-np.inf, 0.0]


def test_a_custom_sampler():
    decoded = decode(step, state(), STARTS, END, 3, lambda logits, position: tf.fill([5], 4 + position))
    np.testing.assert_array_equal(decoded["ids"], np.tile([4, 5, 6], (5, 1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, r"greedy decoding.*Received: temperature=0\.0"),
        ({"top_k": 0}, "Received: top_k=0"),
        ({"top_k": 1.5}, r"Received: top_k=1\.5"),
        ({"top_p": 0.0}, r"Received: top_p=0\.0"),
        ({"top_p": 1.1}, r"Received: top_p=1\.1"),
    ],
)
def test_errors_of_the_sampler(options, message):
    with pytest.raises(ValueError, match=message):
        RandomSampler(1, **options)


def test_errors():
    with pytest.raises(ValueError, match="Received: max_length=0"):
        greedy(step, state(), STARTS, END, 0)


@pytest.mark.parametrize("options", [{"top_k": 2}, {"top_p": 2 / VOCABULARY}])
def test_ties_do_not_widen_the_support(options):
    restricted = RandomSampler(0, **options).restrict(tf.zeros((1, VOCABULARY)))
    assert (restricted.numpy() == 0).sum() == 2


def test_forbidden_ids():
    """Greedy decoding and sampling never choose forbidden ids, and the other words keep their probabilities."""
    forbidden = (0, 4, 6)
    results = greedy(step, state(), tf.constant(STARTS), END, 5, forbidden_ids=forbidden)
    allowed = np.where(np.isin(np.arange(VOCABULARY), forbidden), -np.inf, 0.0)
    for row, start in enumerate(STARTS):
        word, score = start, 0.0
        for position in range(int(results["lengths"][row])):
            logits = TABLE[word] + 0.3 * position * np.arange(7)
            word = int(np.argmax(logits + allowed))
            score += log_softmax(logits)[word]
            assert results["ids"][row, position] == word
        np.testing.assert_allclose(results["log_probabilities"][row], score, rtol=1e-5)
    starts = tf.repeat(tf.constant(STARTS), 50)
    for restriction in ({}, {"top_k": 5}, {"top_p": 0.99}):
        drawn = sample(
            step, state(250), starts, END, 5, seed=1, temperature=2.0, forbidden_ids=forbidden, **restriction
        )
        is_word = np.arange(5) < drawn["lengths"].numpy()[:, None]
        assert set(drawn["ids"].numpy()[is_word]) == {1, 2, 3, 5}

"""Tests beam search over several draws of a relaxed alignment."""

import numpy as np
import pytest
import tensorflow as tf
from keras import tree
from nmt_cases import arrays, translator_of
from tiers import slow_after

import keras_vattn
from applications.nmt.decode import Translator
from applications.text.text import PAD, START

SOURCE = tf.constant(arrays()["source"], tf.int32)


def log_likelihood_of_draws(run, sentence, ids, num_draws):
    """Decode each draw alone, with the noise of the search; return log p(word | previous words, draw), (n, T)."""
    models, options = run.models, run.options
    decoder, emission = models.decoder, models.emission
    encoded, mask = models.encoder(SOURCE), SOURCE != PAD
    repeated = decoder.prepare_memory(*(tf.repeat(x, num_draws, axis=0) for x in (encoded, mask)))
    with keras_vattn.posterior_draws(models.training, seed=options.run.seed):
        noise = decoder.draw_noise(len(SOURCE) * num_draws, options.text.max_length + 1, repeated)
    one = slice(sentence, sentence + 1)
    memory, values = decoder.prepare_memory(encoded[one], mask[one]), []
    for draw in range(sentence * num_draws, (sentence + 1) * num_draws):
        state, row, previous = decoder.start(1, memory), [], START
        for position, word in enumerate(ids):
            at_draw = tree.map_structure(lambda x: x[draw : draw + 1, position], noise)  # noqa: B023
            outputs, state = decoder.step(models.target_embedding(tf.constant([previous])), state, memory, at_draw)
            context = emission.projected(outputs["context"])[:, None, None]
            log_words = emission.words(emission.hidden(outputs["query"][:, None], context))
            row.append(float(log_words[0, 0, 0, word]))
            previous = int(word)
        values.append(row)
    return np.array(values)


@pytest.mark.slow
def test_search_scores_are_predictive_log_probabilities():
    """The search scores a word by the mean of its probabilities over draws."""
    translator, run = translator_of("relaxed", "sample:3")
    searched = translator._search(SOURCE, 2)
    # The second source is shorter.
    for sentence in range(2):
        for index in range(2):
            ids = searched["ids"][sentence, index, : int(searched["lengths"][sentence, index])].numpy()
            values = log_likelihood_of_draws(run, sentence, ids, 3)
            assert np.ptp(values.sum(axis=1)) > 1e-3
            expected = (np.logaddexp.reduce(values, axis=0) - np.log(3)).sum()
            np.testing.assert_allclose(searched["log_probabilities"][sentence, index], expected, rtol=1e-4)


@pytest.mark.parametrize("num_draws", slow_after([1, 2]))
def test_without_noise_the_search_is_at_the_mean(num_draws):
    """Without noise all draws are equal, so any number of draws gives the result of one draw."""
    soft, run = translator_of("relaxed", "soft")
    run.models.decoder.draw_noise = lambda batch_size, num_steps, memory: {}
    searched = Translator(run, f"sample:{num_draws}")._search(SOURCE, 1)
    expected = soft._search(SOURCE, 1)
    np.testing.assert_array_equal(searched["ids"], expected["ids"])
    np.testing.assert_allclose(searched["log_probabilities"], expected["log_probabilities"], rtol=1e-4)
    np.testing.assert_allclose(searched["weights"], expected["weights"], rtol=1e-4, atol=1e-6)

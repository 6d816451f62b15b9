"""Checks the uncertainty of generated sentences, for the tests of several programs."""

import numpy as np

from applications.text.text import PAD
from applications.text.uncertainty import shifted
from keras_vattn import Sampler, random


def require_draws_of_whole_sentences(found, model, inputs, target, seed):
    """Assert that two draws have the log-likelihoods of the training model with the same noise."""
    noise, values = Sampler(model), []
    inputs = {**inputs, "target_input": shifted(target), "target": target}
    for number in range(2):
        with noise.drawn_from(random.fold_in(random.as_seed(seed), number)):
            values.append(np.where(target != PAD, model(inputs), 0.0))
    np.testing.assert_allclose(found["word_log_likelihoods"], values, rtol=1e-4, atol=1e-5)
    assert (np.ptp(found["log_likelihoods"], axis=0) > 1e-4).all()
    assert (found["mutual_information"].numpy() > 1e-6).all()

"""Tests the options for stochastic weights and the alignments that these options select."""

from applications.common.bayesian_options import BayesianOptions, PublishedOptions


def test_options_stand_over_published_values():
    forms = {"parameterization": "raw", "kl_estimator": "sampled"}
    options = PublishedOptions(**forms).with_published({"lognormal_sigma": 0.1, "annealing_rate": 1.0})
    assert options == BayesianOptions(lognormal_sigma=0.1, prior_hidden_units=10, **forms)
    alignment = options.alignment("lognormal")
    assert (alignment.sigma, alignment.parameterization, alignment.kl_estimator) == (0.1, "raw", "sampled")
    assert PublishedOptions(lognormal_sigma=0.5).with_published({"lognormal_sigma": 0.1}).lognormal_sigma == 0.5

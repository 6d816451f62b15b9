import keras
import pytest
from latent_cases import OBJECTIVES

import keras_vattn
from keras_vattn import LatentObjective
from keras_vattn.latent_alignment.latent_objective import LEGAL

PAIRS = [(objective, estimator) for objective, estimators in LEGAL.items() for estimator in estimators]
OPTIONS = {"top_k": {"top_k": 3}, "wake_sleep": {"num_samples": 2}}


def options(objective, estimator):
    return {**OPTIONS.get(objective, {}), **OPTIONS.get(estimator, {})}


@pytest.mark.parametrize("objective", list(LEGAL))
@pytest.mark.parametrize("estimator", ["expected", "enumerate", "top_k", "sample", "gumbel", "exact"])
def test_invalid_pairs_raise_an_error_that_lists_the_valid_ones(objective, estimator):
    if (objective, estimator) in PAIRS:
        from_two_words = LatentObjective(objective, estimator, **options(objective, estimator))
        assert from_two_words == LatentObjective(f"{objective}/{estimator}", **options(objective, estimator))
        assert str(from_two_words.in_training) == f"{objective}/{estimator}"
        return
    for arguments in ((objective, estimator), (f"{objective}/{estimator}",)):
        with pytest.raises(ValueError, match=f"Received: objective='{objective}/{estimator}'") as error:
            LatentObjective(*arguments, top_k=2, num_samples=2)
        assert all(f"{one}/{other}" in str(error.value) for one, other in PAIRS)


def test_default_estimators():
    defaults = {objective: LatentObjective(objective, num_samples=2).estimator for objective in LEGAL}
    assert defaults == {
        "soft": "expected",
        "marginal": "enumerate",
        "elbo": "sample",
        "hard": "sample",
        "importance_weighted": "sample",
        "wake_sleep": "sample",
    }


def test_pairs_at_evaluation():
    at_inference = {name: str(objective.at_inference) for name, objective in OBJECTIVES.items()}
    assert at_inference == {
        "soft": "soft/expected",
        "marginal": "marginal/enumerate",
        "top_k": "marginal/top_k",
        "elbo-sample": "elbo/enumerate",
        "elbo-sample-3": "elbo/enumerate",
        "elbo-moving-average": "elbo/enumerate",
        "elbo-enumerate": "elbo/enumerate",
        "elbo-gumbel": "elbo/enumerate",
        "hard-sample": "hard/enumerate",
        "hard-enumerate": "marginal/enumerate",
        "importance-weighted": "elbo/enumerate",
        "wake-sleep": "marginal/enumerate",
    }
    assert str(LatentObjective("wake_sleep", num_samples=2, top_k=4).at_inference) == "marginal/top_k"


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"objective": "exact"}, "objective='exact'"),
        ({"objective": "marginal/top_k"}, "top_k=None"),
        ({"objective": "soft", "inference": "marginal/top_k"}, "top_k=None"),
        ({"objective": "marginal/top_k", "top_k": 0}, "top_k=0"),
        ({"objective": "elbo", "num_samples": 0}, "num_samples=0"),
        ({"objective": "wake_sleep"}, "num_samples=1"),
        ({"objective": "elbo/gumbel", "num_samples": 2}, "num_samples=2"),
        ({"objective": "elbo/gumbel", "tau": 0.0}, r"tau=0\.0"),
        ({"baseline": "mean"}, "baseline='mean'"),
        ({"baseline_decay": 1.0}, r"baseline_decay=1\.0"),
        ({"inference": "elbo/exact"}, "inference='elbo/exact'"),
        ({"objective": "elbo", "inference": "wake_sleep"}, "num_samples=1"),
    ],
)
def test_errors(arguments, received):
    with pytest.raises(ValueError, match=f"Received: {received}"):
        LatentObjective(**arguments)


def test_the_layers_accept_names_and_configs():
    config = keras.saving.serialize_keras_object(LatentObjective("marginal"))
    for layer in (keras_vattn.CategoricalAttention, keras_vattn.LatentLogLikelihood):
        assert layer(objective="marginal").objective == layer(objective=config).objective == LatentObjective("marginal")
        with pytest.raises(ValueError, match="Received: objective=None"):
            layer(objective=None)

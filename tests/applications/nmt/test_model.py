"""Tests causality, parameters, learning, inferences and search of every translation model."""

import keras
import numpy as np
import pytest
from application_cases import changed
from nmt_cases import CODEC, SMALL, arrays, random_run, translator_of
from tiers import slow_after

import keras_vattn
from applications.nmt.decode import Translator
from applications.nmt.model import MODELS, build
from applications.nmt.options import Options

INPUTS = arrays()
DENG = [name for name, kind in MODELS.items() if not kind.is_bayesian]


@pytest.mark.parametrize(
    "model", slow_after(["marginal", "variational_sample", "wc", "gaussian_mean", "variational_wake_sleep"])
)
def test_models_learn(model):
    """A few steps on one batch lower the loss of that batch."""
    training = random_run(model, kl_weight=0.0, dropout=0.1, num_layers=1).models.training
    training.compile(keras.optimizers.Adam(0.1), keras_vattn.NegativeBound(ignore_class=0), run_eagerly=True)
    inputs = arrays(source=4, target=3)

    def loss():
        return training.test_on_batch(inputs, inputs["target"], return_dict=True)["loss"]

    before = loss()
    for _ in range(4):
        training.train_on_batch(inputs, inputs["target"])
    training.reset_metrics()
    assert loss() < before - 1.0


@pytest.mark.parametrize("model", ["dirichlet", "gaussian_0", "gaussian_mean"])
def test_attentions_beyond_the_translation_papers(model, eagerly):
    """With random weights or a random context vector, the network adds the KL of the attention. Reports use the mean
    weights, the softmax of the scores."""
    run = random_run(model)
    attention = run.models.decoder.attention
    assert attention.kl_weight == 1.0
    if model == "dirichlet":
        assert isinstance(attention.alignment, keras_vattn.Dirichlet) and attention.alignment_prior.reads_keys
    else:
        assert attention.context_prior == {"gaussian_0": "standard", "gaussian_mean": "mean"}[model]
    training, arguments = run.models.training, [INPUTS[name] for name in ("source", "target_input", "target")]
    drawn = [training(INPUTS, training=True).numpy() for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()
    assert float(keras_vattn.divergences(training)["attention_kl"]) > 0.0
    translator = Translator(run)
    words = np.where(INPUTS["target"] != 0, training(INPUTS), 0.0)
    np.testing.assert_allclose(translator.log_likelihood(*arguments), words, rtol=1e-4, atol=1e-5)
    mean = translator.alignments(*arguments)["mean"].numpy()
    np.testing.assert_allclose(mean.sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_all_models_of_deng_have_the_same_generative_parameters():
    counts = {name: random_run(name).models.parameters for name in DENG}
    assert len({count["generative"] for count in counts.values()}) == 1
    for name, count in counts.items():
        assert (count["inference"] > 0) == MODELS[name].needs_posterior
    bayesian, deterministic = random_run("wc").models.parameters, counts["soft"]
    width, hidden = 2 * SMALL["encoder_units"], 5
    assert bayesian["generative"] - deterministic["generative"] == width * hidden + 2 * hidden


def test_initial_range_draws_the_biases_too():
    """Biases are drawn from U[-r, r], except the forget gates' biases, which start at 1."""
    limit = 0.1
    options = changed(Options(), model="variational_enum", **SMALL, num_layers=2, initial_range=limit)
    biases = {
        weight.path: weight.numpy()
        for weight in build(options, CODEC).training.trainable_weights
        if weight.path.endswith("bias")
    }
    # Biases: 12 in three encoders with two bidirectional layers, 2 in two cells, and 2 in the emission.
    assert len(biases) == 16
    cell_biases = [bias for path, bias in biases.items() if "cell" in path]
    for bias in cell_biases:
        np.testing.assert_array_equal(bias.reshape(4, -1)[1], 1.0)
    uniform_biases = [
        np.delete(x, np.s_[len(x) // 4 : len(x) // 2]) if "cell" in path else x for path, x in biases.items()
    ]
    drawn = np.concatenate(uniform_biases)
    # The Keras LSTM calls its initializer before and after the forget gate, with equal results.
    repeated = sum(len(bias) // 4 for path, bias in biases.items() if "bidirectional" in path)
    assert len(np.unique(drawn)) == len(drawn) - repeated and np.abs(drawn).max() <= limit
    # U[-r, r] has mean 0 and standard deviation r / sqrt(3); the tolerance is four standard errors.
    error = limit / np.sqrt(3 * len(drawn))
    assert abs(drawn.mean()) < 4 * error and abs(drawn.std() - limit / np.sqrt(3)) < 4 * error


@pytest.mark.parametrize("model", slow_after(["soft", "relaxed", "variational_sample", "lc"]))
def test_no_word_is_predicted_from_a_later_one(model, eagerly):
    translator, _ = translator_of(model)
    target = np.array([[5, 9, 7, 11, 6, 3]], "int32")
    source = INPUTS["source"][:1]
    shifted = lambda words: np.concatenate([[[2]], words[:, :-1]], axis=1).astype("int32")  # noqa: E731
    first = translator.log_likelihood(source, shifted(target), target).numpy()
    posterior = translator.alignments(source, shifted(target), target).get("posterior")
    for time in (1, 4):
        permuted = target.copy()
        permuted[:, time:] = target[:, time:][:, ::-1]
        changed = translator.log_likelihood(source, shifted(permuted), permuted).numpy()
        np.testing.assert_allclose(changed[:, :time], first[:, :time], rtol=1e-5)
        if posterior is not None:
            permuted_posterior = translator.alignments(source, shifted(permuted), permuted)["posterior"]
            assert (np.abs(permuted_posterior - posterior)[:, :time] > 1e-4).any()


@pytest.mark.parametrize("model", ["soft", "marginal", "variational_enum"])
def test_inferences_agree(model, eagerly):
    """K-max over all keys gives the exact value, and 3000 samples approximate it. Without a posterior, the training
    model also returns the exact value."""
    run = random_run(model)
    inputs = {name: x.copy() for name, x in INPUTS.items()}
    # One source is empty, so its alignments have equal weights.
    inputs["source"][2] = 0
    arguments = [inputs[name] for name in ("source", "target_input", "target")]

    def value(name):
        translator = Translator(run, name)
        return translator.log_likelihood(*arguments).numpy()

    exact = value("exact")
    np.testing.assert_allclose(value("kmax:5"), exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value("sample:3000"), exact, atol=0.2)
    assert (np.abs(value("soft") - exact) > 1e-3).any()
    assert (exact[1, 4:] == 0).all()
    if model == "marginal":
        bound = np.where(inputs["target"] != 0, run.models.training(inputs), 0.0)
        np.testing.assert_allclose(bound, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_beam_scores_match_teacher_forcing():
    """Teacher forcing gives the log-probability of the search. Translations contain no special tokens."""
    translator, _ = translator_of("variational_enum")
    source = INPUTS["source"][:2]
    searched = translator.beam(source)
    ids = searched["ids"].numpy()
    target_input = np.concatenate([np.full((2, 1), 2), ids[:, :-1]], axis=1).astype("int32")
    log_words = translator.log_likelihood(source, np.where(ids != 0, target_input, 0).astype("int32"), ids)
    np.testing.assert_allclose(searched["log_probabilities"], np.sum(log_words, axis=1), rtol=1e-3)
    for sentence, length in zip(ids, searched["lengths"].numpy(), strict=True):
        assert not set(sentence[:length]) & {0, 1, 2} and not sentence[length:].any()


def test_exact_posterior(eagerly):
    """The exact posterior is p(z | y) = p(z) p(y | z) / p(y)."""
    translator, run = translator_of("variational_sample")
    arguments = [INPUTS[name] for name in ("source", "target_input", "target")]
    alignments = {name: x.numpy() for name, x in translator.alignments(*arguments).items()}
    assert set(alignments) == {"prior", "posterior", "exact"}
    for weights in alignments.values():
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
        assert (weights[1, :, 3:] == 0).all()
    # Recompute log p(z, y) from the value of each source position.
    memory, _, decoded = translator._read(*arguments)
    values = translator._values(memory)
    hidden = run.models.emission.hidden(decoded["query"], values[:, None])
    joint = np.log(alignments["prior"] + 1e-30) + run.models.emission.words(hidden, arguments[-1])
    exact = translator.log_likelihood(*arguments).numpy()
    counted = INPUTS["target"] != 0
    expected = np.exp(joint - exact[..., None])[counted]
    np.testing.assert_allclose(alignments["exact"][counted], expected, rtol=1e-3, atol=1e-6)

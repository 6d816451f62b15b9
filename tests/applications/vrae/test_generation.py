"""Tests generation in each mode, bounds on log p(x), and the Gaussians of texts."""

import numpy as np
import pytest
import tensorflow as tf
from program_cases import VRAE_CASE
from scipy.special import logsumexp
from tiers import slow_after
from vrae_cases import EVERY_MODEL, run_of, sentences_of

from applications.text.text import END, PAD, START, UNKNOWN
from applications.vrae.decode import Writer, interpolated
from applications.vrae.options import SamplingOptions

every_model = pytest.mark.parametrize("model", EVERY_MODEL)
LINES = tf.constant(["the dog has seen the ball", "my friend has bought a book", "the zebra"])


@pytest.fixture(scope="module")
def run_of_model(tmp_path_factory):
    """Return a function that returns the cached run of a model."""
    cache = {}

    def run_of_model(model):
        if model not in cache:
            cache[model] = run_of(tmp_path_factory.mktemp(model), model=model)
        return cache[model]

    return run_of_model


def log_words(run, z, ids):
    """Decode sentences without a memory, and return log p of all words at each step, (B, T, V)."""
    target_input = np.insert(ids, 0, START, axis=1)[:, :-1]
    models = run.models
    decoded = models.decoder(models.inputs(tf.constant(target_input, tf.int32), z))
    return models.words(decoded["hidden"][:, :, None])[:, :, 0].numpy()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("model", slow_after(["vrae", "vrae_sa_aux", "vrae_sa"], 2))
def test_new_sentences(run_of_model, model):
    """A seed reproduces the sentences, which contain only words and respect the maximum length."""
    writer = Writer(run_of_model(model))
    one, again, other = (writer.generate(40, seed).numpy().tolist() for seed in (1, 1, 2))
    assert one == again != other
    assert len(one) == 40 and len(set(one)) > 20
    words = {word for text in one for word in text.decode().split()}
    assert not words & {"<pad>", "<unk>", "<start>", "<end>"}
    assert max(len(text.split()) for text in one) <= VRAE_CASE.options["max_length"] + 1
    # At a temperature near 0, only the latents can make sentences differ.
    likely = Writer(run_of_model(model), SamplingOptions(temperature=1e-6))
    assert len(set(likely.generate(40, 1).numpy())) > 3


@pytest.mark.usefixtures("eagerly")
def test_each_new_sentence_has_its_own_latents(tmp_path):
    """z_enc does not reach the state and decoding is greedy, so only z_t can make sentences differ."""
    run = run_of(tmp_path, model="vrae_sa")
    kernel = run.models.decoder.cell.kernel
    kernel.assign(tf.concat([kernel[:6], tf.zeros_like(kernel[6:])], axis=0))
    writer = Writer(run, SamplingOptions(temperature=1e-6))
    assert len(set(writer.generate(40, 1).numpy())) > 3


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("model", ["vrae", "vrae_sa"])
def test_a_sentence_is_rebuilt_from_the_mean_of_its_code(run_of_model, model):
    """Greedy decoding chooses the most probable word at each step, except special tokens."""
    run = run_of_model(model)
    writer = Writer(run)
    z = tf.constant(writer.encode(LINES)["mean"])
    ids = writer.write_from(z).numpy()
    log_p = log_words(run, z, ids)
    log_p[..., [PAD, START, UNKNOWN]] = -np.inf
    written = np.cumsum(np.roll(ids == END, 1, axis=1) & (np.arange(ids.shape[1]) > 0), axis=1) == 0
    assert np.array_equal(np.where(written, log_p.argmax(axis=-1), 0), ids)
    assert writer.reconstruct(LINES).numpy().tolist() == run.codec.decode(ids).numpy().tolist()


@pytest.mark.usefixtures("eagerly")
def test_interpolation(run_of_model):
    """The sentences are decoded at evenly spaced points between two z_enc."""
    run = run_of_model("vrae")
    writer = Writer(run)
    texts = [text.decode() for text in LINES.numpy()[:2]]
    sentences = interpolated(writer, texts, 3)
    first, last = (text.decode() for text in writer.reconstruct(tf.constant(texts)).numpy())
    z = writer.encode(tf.constant(texts))["mean"]
    middle = run.codec.decode(writer.write_from(tf.reduce_mean(z, axis=0, keepdims=True))).numpy()[0].decode()
    assert sentences == [first, middle, last]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("model", slow_after(["lstm", "vrae_sa"]))
def test_a_bound_of_more_draws_is_larger(run_of_model, model):
    """On the same samples, the importance-weighted bound is at least the mean ELBO. With one sample, both are equal.
    The bound grows with the number of samples, within three standard errors."""
    run = run_of_model(model)
    source, target_input, target = sentences_of(run, "train")
    writer = Writer(run)
    weights = writer.log_weights(source, target_input, target, 16, 5).numpy().astype("float64")
    if model == "lstm":
        assert np.ptp(weights, axis=0).max() == 0.0
        return
    assert np.all(np.ptp(weights, axis=0) > 0.0)
    bounds = {}
    for count in (1, 4, 16):
        parts = weights.reshape(16 // count, count, -1)
        bounds[count] = logsumexp(parts, axis=1) - np.log(count)
        assert np.all(bounds[count] >= parts.mean(axis=1) - 1e-9)
    for less, more in ((1, 4), (4, 16)):
        difference = bounds[more].mean(axis=0) - bounds[less].mean(axis=0)
        error = bounds[less].std(axis=0) / np.sqrt(len(bounds[less]))
        assert difference.mean() > -3 * error.mean()
    assert bounds[16].mean() > bounds[1].mean() + 0.01
    texts = run.codec.decode(source)
    scored = writer.score(texts, 4, 5)
    np.testing.assert_allclose(
        scored["log_likelihood_bound"], logsumexp(weights[:4], axis=0) - np.log(4), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(scored["num_tokens"], np.count_nonzero(target, axis=1))


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("model", "informed"), [("vrae", "latent"), ("vrae_sa_aux", "latent"), ("vrae_sa", "both")])
def test_divergences_match_means_over_draws(run_of_model, tmp_path, model, informed):
    """Over 400 samples, the mean of log q - log p is the closed-form KL, and the mean log importance weight is the
    ELBO, within 4 standard errors."""
    run = run_of_model(model) if informed == "latent" else run_of(tmp_path, model=model, informed=informed)
    source, target_input, target = (x[:4] for x in sentences_of(run))
    rows = [tf.repeat(x, 400, axis=0) for x in (source, target_input, target)]
    writer = Writer(run)
    figures = {name: x.numpy() for name, x in writer.draw_figures(*rows, tf.constant([1, 2])).items()}
    closed = figures["kl_code"] + (figures["kl_steps"] + figures["kl_context"]).sum(axis=1)
    difference = (figures["log_ratio"] - closed).reshape(4, 400)
    assert np.all(np.abs(difference.mean(axis=1)) < 4 * difference.std(axis=1) / np.sqrt(400))
    assert np.all(difference.std(axis=1) > 0.1)
    weights = writer.log_weights(*rows, 1, 7).numpy().reshape(4, 400)
    elbo = (figures["log_likelihood"] - closed).reshape(4, 400)
    error = np.sqrt((weights.var(axis=1) + elbo.var(axis=1)) / 400)
    assert np.all(np.abs(weights.mean(axis=1) - elbo.mean(axis=1)) < 4 * error)


@pytest.mark.usefixtures("eagerly")
@every_model
def test_describe(run_of_model, model):
    """The Gaussian of a text depends only on the text, not on its batch or on samples of latents."""
    run = run_of_model(model)
    writer = Writer(run)
    source = run.codec.encode(LINES, 7)
    target_input, target, _ = run.codec.encode_targets(LINES, 7)
    described = {name: x.numpy() for name, x in writer.describe(source, target_input, target).items()}
    width = {"lstm": 8, "vrae": 3}.get(model, 8)
    assert described["mean"].shape == described["log_scale"].shape == (len(source), width)
    for row in range(len(source)):
        words = int(np.count_nonzero(source[row]))
        alone = writer.describe(
            source[row : row + 1, :words], target_input[row : row + 1, : words + 1], target[row : row + 1, : words + 1]
        )
        for name, x in alone.items():
            np.testing.assert_allclose(x[0], described[name][row], rtol=1e-4, atol=1e-5)
    if model == "lstm":
        assert not described["log_scale"].any()
        decoded = run.models.decoder(run.models.inputs(target_input), inputs_mask=target != 0)["hidden"]
        np.testing.assert_allclose(described["mean"], [x[n] for x, n in zip(decoded, lengths(target))], rtol=1e-5)
    elif model == "vrae":
        np.testing.assert_allclose(described["mean"], writer.posterior(source)["mean"], rtol=1e-6)
    else:
        assert described["log_scale"].min() > run.options.variational.context_floor


def lengths(target):
    return np.count_nonzero(target, axis=1) - 1

import io
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from application_cases import changed
from ved_cases import APPLICATION, PAIRS, SMALL

from applications.common.application import Run
from applications.common.training import load_run
from applications.text.readers import ParallelText
from applications.text.text import END, PAD, START, UNKNOWN
from applications.ved import model as ved_model
from applications.ved.data import Codec
from applications.ved.decode import Generator
from applications.ved.options import GenerateVed, Options

LIMIT = SMALL["max_target_length"] + 1
END_BIAS = -1.0


def make_generator(model="ved_vattn_mean", **values):
    """Return a generator with peaked predictions that ends some sentences before the length limit."""
    options = changed(Options(), model=model, **SMALL, **values)
    codec = Codec.fit(options, ParallelText(*map(list, zip(*PAIRS))))
    models = ved_model.build(options, codec)
    generator = np.random.default_rng(5)
    for variable in models.training.trainable_variables:
        variable.assign(generator.normal(0.0, 0.7, variable.shape))
    bias = models.training.get_layer("out").bias
    bias.assign(tf.tensor_scatter_nd_update(bias, [[END]], [END_BIAS]))
    return Generator(Run(None, options, {}, codec, models))


@pytest.fixture(scope="module")
def generator():
    return make_generator()


@pytest.fixture(scope="module")
def sources(generator):
    return generator._encode(tf.constant([source for source, _ in PAIRS[::3]]))


@pytest.fixture(scope="module")
def greedy(generator, sources):
    return {name: value.numpy() for name, value in generator.greedy(sources).items()}


@pytest.mark.slow
def test_decoding_ends_and_fills_up_with_padding(greedy):
    ids, lengths = greedy["ids"], greedy["lengths"]
    assert ids.shape == (22, LIMIT)
    ended = (ids == END).any(axis=1)
    assert 2 <= ended.sum() < len(ids)
    np.testing.assert_array_equal(lengths, np.where(ended, (ids == END).argmax(axis=1) + 1, LIMIT))
    for row, length in zip(ids, lengths):
        assert not set(row[:length]) & {PAD, START, UNKNOWN} and set(row[length:]) <= {PAD}


@pytest.mark.slow
def test_the_score_of_a_decoded_sentence_is_the_sum_of_its_steps(generator, sources, greedy):
    """The score of a sentence includes the steps at which decoding forbids a probable word."""
    ended = (greedy["ids"] == END).any(axis=1)
    source, ids = sources.numpy()[ended], greedy["ids"][ended]
    target_input = np.insert(ids[:, :-1], 0, START, axis=1)
    target_input = np.where(np.roll(ids, 1, axis=1) == END, PAD, target_input).astype("int32")
    inputs = {"source": tf.constant(source), "target_input": tf.constant(target_input)}
    p = tf.nn.softmax(generator._models.value.training(inputs)).numpy()
    log_likelihood = generator.log_likelihood(source, target_input, ids).numpy()
    np.testing.assert_allclose(greedy["log_probabilities"][ended], log_likelihood, rtol=1e-5)
    assert (p[..., [PAD, START, UNKNOWN]].sum(axis=-1)[ids != PAD] > 1e-3).any()

    texts = tf.constant([text for (text, _), has_end in zip(PAIRS[::3], ended) if has_end])
    score = generator.score(texts, generator.target_encoder.decode(ids))
    np.testing.assert_allclose(score["log_likelihood"], log_likelihood, rtol=1e-5)
    np.testing.assert_array_equal(score["num_tokens"], greedy["lengths"][ended])


def test_weights_are_distributions_over_the_words_of_the_source(sources, greedy):
    for weights, length, source in zip(greedy["weights"], greedy["lengths"], sources.numpy()):
        np.testing.assert_allclose(weights[:length].sum(axis=-1), 1.0, rtol=1e-5)
        assert not weights[:length, source == PAD].any()


def test_batch_and_padding_do_not_change_an_output(generator, sources, greedy):
    ids = np.pad(sources.numpy(), [(0, 0), (0, 5)])
    np.testing.assert_array_equal(generator.greedy(ids)["ids"], greedy["ids"])
    for index in (0, 7):
        alone = sources[index : index + 1].numpy()
        np.testing.assert_array_equal(generator.greedy(alone[:, alone[0] != PAD])["ids"][0], greedy["ids"][index])


@pytest.mark.slow
def test_empty_and_unknown_input(generator):
    texts = tf.constant(["", "zzz qqq", "in kenya the tea is big"])
    together = generator.generate(texts).numpy().tolist()
    assert together == [generator.generate(texts[index : index + 1]).numpy()[0] for index in range(3)]
    assert generator.sample(texts, 2, 0).shape == (3, 2)
    score = generator.score(texts, tf.constant(["", "zzz", "what is the tea ?"]))
    assert np.isfinite(score["log_likelihood"]).all()
    assert score["num_tokens"].numpy().tolist() == [1, 2, 6]


def test_draws(generator, sources):
    draws = generator.draw(sources, 4, 3).numpy()
    assert draws.shape == (22, 4, LIMIT)
    np.testing.assert_array_equal(generator.draw(sources, 4, 3), draws)
    assert (generator.draw(sources, 4, 4).numpy() != draws).any()
    assert np.mean([len(np.unique(rows, axis=0)) for rows in draws]) > 2


@pytest.mark.parametrize(
    "model, values", [("ded", {}), ("ded_dattn", {}), ("ded_dattn", {"residual_stack": True})], ids=str
)
def test_a_deterministic_model_has_one_sentence(model, values, eagerly):
    generator = make_generator(model, **values)
    sources = generator._encode(tf.constant([source for source, _ in PAIRS[:3]]))
    greedy = generator.greedy(sources)
    assert ("weights" in greedy) == (model != "ded")
    draws = generator.draw(sources, 2, 1)
    np.testing.assert_array_equal(draws, np.repeat(greedy["ids"].numpy()[:, None], 2, axis=1))


@pytest.fixture(scope="module")
def loaded(trained):
    return load_run(APPLICATION, trained)


@pytest.mark.slow
def test_the_generate_command_samples(loaded, monkeypatch, capsys, eagerly):
    def generate(**options):
        lines = "in kenya the tea is big\n\nin peru the tea is big and big and big and big and big\n"
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(lines.encode())))
        return list(APPLICATION.generate(loaded, GenerateVed(str(loaded.folder.path), **options)))

    drawn = generate(num_samples=3, seed=1)
    assert capsys.readouterr().err.startswith("1 lines are truncated to 10 tokens")
    assert [len(line.split("\t")) for line in drawn] == [3, 1, 3] and drawn[1] == ""
    assert generate(num_samples=3, seed=1) == drawn != generate(num_samples=3, seed=2)

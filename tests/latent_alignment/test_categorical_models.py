"""Tests models with a CategoricalAttention: after a decoder, in training and in prediction."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from latent_cases import INPUTS, MASKED, OBJECTIVES, WIDTH, emit, layers, run

import keras_vattn
from keras_vattn import CategoricalAttention, LatentObjective, NegativeBound


def test_the_logits_of_a_decoder():
    """The layer uses the logits of the decoder instead of computing scores."""
    attention = keras_vattn.DeterministicAttention(score="additive")
    decoder = keras_vattn.AttentionDecoder(WIDTH, attention, feeding="expected")
    decoded = decoder(INPUTS["query"], INPUTS["memory"], memory_mask=MASKED["memory_mask"], return_logits=True)
    layer = CategoricalAttention(score="additive", objective="marginal")
    latent = layer(decoded["query"], INPUTS["memory"], value_mask=MASKED["memory_mask"], logits=decoded["logits"])
    assert layer.weights == []
    expected = tf.einsum("btk,btkd->btd", ops.exp(latent["log_prior"]), latent["candidates"])
    np.testing.assert_allclose(expected, decoded["context"], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="Received: logits=None"):
        layer(decoded["query"], INPUTS["memory"])


def test_predictions_do_not_depend_on_later_words():
    """p(y_t | y_<t) does not depend on later words, but the posterior depends on them."""
    vocabulary, words = 8, np.array([[1, 4, 2, 7, 5, 3]])
    embedding, width = keras.layers.Embedding(vocabulary, WIDTH), WIDTH
    decoder = keras_vattn.AttentionDecoder(width, keras_vattn.DeterministicAttention("additive"), feeding="expected")
    attention = CategoricalAttention(objective=LatentObjective("elbo/sample", top_k=4))
    bilinear = keras_vattn.Bilinear()
    output = keras_vattn.TokenLogLikelihood(vocabulary)
    inference = keras.layers.Bidirectional(keras.layers.GRU(width, return_sequences=True))
    memory = INPUTS["memory"][:1]

    def hidden_of(decoded, latent):
        return ops.tanh(decoded["query"][:, :, None] + latent["candidates"])

    def predict(words):
        decoded = decoder(embedding(words[:, :-1]), memory, return_logits=True)
        latent = attention(decoded["query"], memory, logits=decoded["logits"])
        return output(hidden_of(decoded, latent), log_weights=latent["log_weights"]).numpy()

    def posterior(words):
        return bilinear(inference(embedding(words[:, 1:])), memory)

    first, posterior_logits = predict(words), posterior(words)
    for time in range(1, 5):
        permuted = words.copy()
        permuted[:, time + 1 :] = words[:, time + 1 :][:, ::-1]
        permuted[:, -1] = 6
        np.testing.assert_array_equal(predict(permuted)[:, : time + 1], first[:, : time + 1])
        assert (np.asarray(posterior(permuted))[:, :time] != np.asarray(posterior_logits)[:, :time]).any()
    # The bound of the target words equals the predicted log p of these words.
    decoded = decoder(embedding(words[:, :-1]), memory, return_logits=True)
    latent = attention(decoded["query"], memory, logits=decoded["logits"])
    bound = keras_vattn.LatentLogLikelihood(attention.objective)(
        output(hidden_of(decoded, latent), words[:, 1:]), latent["log_prior"]
    )
    np.testing.assert_allclose(bound, np.take_along_axis(first, words[:, 1:, None], axis=-1)[..., 0], rtol=1e-4)


@pytest.mark.slow
def test_training_and_prediction_share_their_layers():
    """The prediction model has no posterior and returns the exact marginal of the trained layers."""
    parts = layers(OBJECTIVES["elbo-sample"])
    inputs = {
        "query": keras.Input((None, WIDTH), name="query"),
        "memory": keras.Input((None, WIDTH), name="memory"),
        "memory_mask": keras.Input((None,), dtype="bool", name="memory_mask"),
    }
    training_inputs = {
        "posterior_logits": keras.Input((None, None), name="posterior_logits"),
        "targets": keras.Input((None,), dtype="int32", name="targets"),
    }
    training = keras.Model({**inputs, **training_inputs}, run(parts, {**inputs, **training_inputs})[0])
    latent = parts["attention"](inputs["query"], parts["value"](inputs["memory"]), value_mask=inputs["memory_mask"])
    words = parts["words"](emit(parts, inputs, latent), log_weights=latent["log_weights"])
    prediction = keras.Model(inputs, words)
    training.compile("sgd", NegativeBound(ignore_class=0))
    training.fit(MASKED, MASKED["targets"], verbose=0)
    log_words = prediction.predict({name: MASKED[name] for name in inputs}, verbose=0)
    np.testing.assert_allclose(np.exp(log_words).sum(-1), 1.0, rtol=1e-5)
    exact, _ = run(parts, MASKED, posterior=False)
    chosen = np.take_along_axis(log_words, MASKED["targets"][..., None], axis=-1)[..., 0]
    valid_words = MASKED["targets"] != 0
    np.testing.assert_allclose(chosen[valid_words], exact.numpy()[valid_words], rtol=1e-4, atol=1e-5)

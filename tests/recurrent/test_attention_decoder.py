import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax

import keras_vattn
from keras_vattn import AttentionDecoder, DeterministicAttention, GaussianAttention

UNITS, BATCH, STEPS, SOURCE = 6, 3, 4, 5
GENERATOR = np.random.default_rng(1)
INPUTS = GENERATOR.normal(size=(BATCH, STEPS, 4)).astype("float32")
MEMORY = GENERATOR.normal(size=(BATCH, SOURCE, 5)).astype("float32")
MEMORY_MASK = np.arange(SOURCE) < np.array([5, 3, 1])[:, None]
INPUTS_MASK = np.array([[True, True, True, True], [True, True, False, False], [True, False, True, True]])
INITIAL = [GENERATOR.normal(size=(BATCH, UNITS)).astype("float32") for _ in range(6)]


def lstm(cell, inputs, context, hidden, memory_cell):
    gates = inputs @ cell.kernel.numpy() + hidden @ cell.recurrent_kernel.numpy() + cell.bias.numpy()
    if context is not None:
        gates = gates + context @ cell.context_kernel.numpy()
    i, f, c, o = np.split(gates, 4, axis=-1)
    memory_cell = expit(f) * memory_cell + expit(i) * np.tanh(c)
    return expit(o) * np.tanh(memory_cell), memory_cell


def additive(score, query, memory):
    hidden = np.tanh(
        (query @ score.query_kernel.numpy())[:, None] + memory @ score.key_kernel.numpy() + score.bias.numpy()
    )
    return hidden @ score.scale.numpy()[:, 0]


def attend(decoder, query, mask=None):
    logits = additive(decoder.attention.score, query, MEMORY)
    weights = softmax(logits if mask is None else np.where(mask, logits, -np.inf), axis=-1)
    return np.einsum("bs,bsd->bd", weights, MEMORY), weights


def log_scale(context_layer, mean):
    hidden = np.tanh(mean @ context_layer.hidden_kernel.numpy() + context_layer.hidden_bias.numpy())
    return hidden @ context_layer.log_scale_kernel.numpy() + context_layer.log_scale_bias.numpy()


@pytest.mark.parametrize(("cell", "layer_class"), [("lstm", keras.layers.LSTM), ("gru", keras.layers.GRU)])
def test_without_attention_it_equals_the_keras_layer(cell, layer_class):
    decoder = AttentionDecoder(UNITS, cell=cell)
    initial = INITIAL[: 2 if cell == "lstm" else 1]
    arguments = {"initial_state": initial, "inputs_mask": INPUTS_MASK}
    decoder(INPUTS, **arguments)
    first_cell = decoder.cells[0]
    layer = layer_class(UNITS, return_sequences=True, return_state=True)
    layer.build(INPUTS.shape)
    assert [w.shape for w in layer.cell.weights][:2] == [first_cell.kernel.shape, first_cell.recurrent_kernel.shape]
    first_cell.bias.assign(GENERATOR.normal(size=first_cell.bias.shape))
    bias = first_cell.bias.numpy()
    if cell == "gru":
        first_cell.recurrent_bias.assign(GENERATOR.normal(size=first_cell.bias.shape))
        bias = np.stack([bias, first_cell.recurrent_bias.numpy()])
    layer.set_weights([first_cell.kernel.numpy(), first_cell.recurrent_kernel.numpy(), bias])
    decoded = decoder(INPUTS, **arguments, return_state=True)
    sequence, *states = layer(INPUTS, initial_state=initial, mask=INPUTS_MASK)
    np.testing.assert_allclose(decoded["hidden"].numpy()[INPUTS_MASK], sequence.numpy()[INPUTS_MASK], atol=1e-5)
    for one, two in zip(decoded["state"], states, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_initial_weights_equal_the_keras_layer():
    decoder = AttentionDecoder(UNITS)
    decoder.build(INPUTS.shape)
    layer = keras.layers.LSTM(UNITS)
    layer.build(INPUTS.shape)
    np.testing.assert_array_equal(decoder.cells[0].bias, layer.cell.bias)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_context_enters_as_rows_of_the_kernel(cell):
    """A Keras cell on [input, context], with both kernels concatenated, gives the results of the decoder."""
    decoder = AttentionDecoder(UNITS, DeterministicAttention("additive"), cell=cell, query="previous")
    decoded = decoder(INPUTS, MEMORY)
    first_cell = decoder.cells[0]
    reference = (keras.layers.LSTMCell if cell == "lstm" else keras.layers.GRUCell)(UNITS)
    reference.build((BATCH, 9))
    kernel = np.concatenate([first_cell.kernel.numpy(), first_cell.context_kernel.numpy()])
    bias = (
        first_cell.bias.numpy()
        if cell == "lstm"
        else np.stack([first_cell.bias.numpy(), first_cell.recurrent_bias.numpy()])
    )
    reference.set_weights([kernel, first_cell.recurrent_kernel.numpy(), bias])
    states = [tf.zeros((BATCH, UNITS))] * (2 if cell == "lstm" else 1)
    for t in range(STEPS):
        context, _ = attend(decoder, np.asarray(states[0]))
        output, states = reference(tf.concat([INPUTS[:, t], context], -1), states)
        np.testing.assert_allclose(decoded["context"][:, t], context, atol=1e-5)
        np.testing.assert_allclose(decoded["hidden"][:, t], output, atol=1e-5)


def test_residual_stack_over_an_attention_rnn():
    """s0 = RNN0([y, c]), s1 = RNN1(s0) + s0, s2 = RNN2(s1) + s1; c attends with the previous state of RNN0."""
    decoder = AttentionDecoder(UNITS, DeterministicAttention("additive"), num_layers=3, query="previous", residual=True)
    decoded = decoder(INPUTS, MEMORY, memory_mask=MEMORY_MASK, return_attention_scores=True)
    states = [[np.zeros((BATCH, UNITS))] * 2 for _ in range(3)]
    for t in range(STEPS):
        context, weights = attend(decoder, states[0][0], MEMORY_MASK)
        states[0] = lstm(decoder.cells[0], INPUTS[:, t], context, *states[0])
        output = states[0][0]
        for layer in (1, 2):
            states[layer] = lstm(decoder.cells[layer], output, None, *states[layer])
            output = states[layer][0] + output
        np.testing.assert_allclose(decoded["weights"][:, t], weights, atol=1e-5)
        np.testing.assert_allclose(decoded["context"][:, t], context, atol=1e-5)
        np.testing.assert_allclose(decoded["hidden"][:, t], output, atol=1e-5)


@pytest.mark.parametrize("feeding", ["off", "sampled", "expected"])
@pytest.mark.parametrize("query", ["current", "previous"])
def test_query_and_feeding(query, feeding, monkeypatch):
    """Compares the decoder with a NumPy loop that uses the same noise. The decoder returns the sampled context."""
    noise = GENERATOR.normal(size=(BATCH, STEPS, 5)).astype("float32")
    monkeypatch.setattr(keras_vattn.random, "normal", lambda shape, seed: tf.constant(noise))
    decoder = AttentionDecoder(UNITS, GaussianAttention("additive"), query=query, feeding=feeding)
    decoded = decoder(INPUTS, MEMORY, memory_mask=MEMORY_MASK, training=True)
    hidden, memory_cell, fed = np.zeros((BATCH, UNITS)), np.zeros((BATCH, UNITS)), np.zeros((BATCH, 5))
    divergence = 0.0
    for t in range(STEPS):
        if query == "previous":
            mean, _ = attend(decoder, hidden, MEMORY_MASK)
        if query == "previous" or feeding == "off":
            context = None if feeding == "off" else (mean, sampled(decoder, mean, noise[:, t]))[feeding == "sampled"]
        else:
            context = fed
        hidden, memory_cell = lstm(decoder.cells[0], INPUTS[:, t], context, hidden, memory_cell)
        if query == "current":
            mean, _ = attend(decoder, hidden, MEMORY_MASK)
            fed = sampled(decoder, mean, noise[:, t]) if feeding == "sampled" else mean
        scale = log_scale(decoder.attention.context, mean)
        divergence += (0.5 * (np.exp(2 * scale) + mean**2 - 1.0) - scale).sum() / BATCH
        np.testing.assert_allclose(decoded["hidden"][:, t], hidden, atol=1e-5)
        np.testing.assert_allclose(decoded["context"][:, t], sampled(decoder, mean, noise[:, t]), rtol=1e-4, atol=1e-4)
    assert float(decoder.losses[0]) == pytest.approx(divergence, rel=1e-5)
    assert len(decoder.losses) == 1


def sampled(decoder, mean, noise):
    return mean + np.exp(log_scale(decoder.attention.context, mean)) * noise


@pytest.mark.parametrize("query", ["current", "previous"])
def test_query_of_a_stack_is_the_first_state_or_the_top_output(query):
    decoder = AttentionDecoder(UNITS, DeterministicAttention("additive"), num_layers=2, query=query, feeding="off")
    decoded = decoder(INPUTS, MEMORY)
    first = AttentionDecoder(UNITS)
    first.build(INPUTS.shape)
    first.set_weights(decoder.cells[0].get_weights())
    states = np.asarray(first(INPUTS)["hidden"])
    queries = decoded["hidden"] if query == "current" else np.pad(states, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    np.testing.assert_allclose(decoder.attention(queries, MEMORY), decoded["context"], atol=1e-5)


def test_feeding_off_equals_an_rnn_followed_by_attention():
    decoder = AttentionDecoder(UNITS, GaussianAttention("additive", context_prior="mean"), feeding="off")
    decoded = decoder(INPUTS, MEMORY, inputs_mask=INPUTS_MASK, memory_mask=MEMORY_MASK)
    loss = float(decoder.losses[0])
    rnn = AttentionDecoder(UNITS)
    rnn.build(INPUTS.shape)
    rnn.cells[0].set_weights(decoder.cells[0].get_weights())
    hidden = rnn(INPUTS, inputs_mask=INPUTS_MASK)["hidden"]
    np.testing.assert_allclose(decoded["hidden"], hidden, atol=1e-6)
    context = decoder.attention(hidden, MEMORY, query_mask=INPUTS_MASK, value_mask=MEMORY_MASK)
    np.testing.assert_allclose(decoded["context"], context, atol=1e-5)
    assert loss == pytest.approx(float(decoder.attention.losses[0]), rel=1e-5)


@pytest.mark.parametrize(
    ("query", "feeding", "cell", "num_layers"),
    [("current", "sampled", "lstm", 1), ("previous", "expected", "gru", 2), ("current", "off", "lstm", 2)],
)
def test_step_equals_the_loop(query, feeding, cell, num_layers):
    """Calls of `step` equal the loop, at inference and under `posterior_draws` with slices of the same noise."""
    options = {"query": query, "feeding": feeding, "cell": cell, "num_layers": num_layers}
    decoder = AttentionDecoder(UNITS, GaussianAttention("bilinear"), residual=True, **options)
    decoder.build(INPUTS.shape, MEMORY.shape)
    initial = INITIAL[: sum(cell.num_states for cell in decoder.cells)]
    with keras_vattn.posterior_draws(decoder, seed=7):
        arguments = {"initial_state": initial, "memory_mask": MEMORY_MASK}
        arguments |= {"return_attention_scores": True, "return_logits": True, "return_state": True}
        drawn = decoder(INPUTS, MEMORY, **arguments)
        memory = decoder.prepare_memory(MEMORY, MEMORY_MASK)
        noise = decoder.draw_noise(BATCH, STEPS, memory)
    assert set(noise["attention"]) == {"context"}
    mean = decoder(INPUTS, MEMORY, **arguments)
    for expected, noise_or_none in ((mean, None), (drawn, noise)):
        state = decoder.start(BATCH, memory, initial)
        for t in range(STEPS):
            slices = None if noise_or_none is None else keras.tree.map_structure(lambda x, t=t: x[:, t], noise_or_none)
            outputs, state = decoder.step(INPUTS[:, t], state, memory, slices)
            assert set(outputs) == {"hidden", "context", "weights", "query", "logits"}
            for name, output in outputs.items():
                np.testing.assert_allclose(output, expected[name][:, t], atol=1e-5)
        for one, two in zip(state["cells"], expected["state"], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
    assert np.any(drawn["context"] != mean["context"])


@pytest.mark.parametrize(("cell", "query"), [("lstm", "current"), ("gru", "previous")])
def test_masked_steps_hold_the_state(cell, query):
    decoder = AttentionDecoder(UNITS, DeterministicAttention("additive"), cell=cell, num_layers=2, query=query)
    masked = decoder(INPUTS, MEMORY, inputs_mask=INPUTS_MASK, return_state=True)
    for row, mask in enumerate(INPUTS_MASK):
        valid_inputs = INPUTS[row : row + 1, mask]
        short = decoder(valid_inputs, MEMORY[row : row + 1], return_state=True)
        np.testing.assert_allclose(masked["hidden"][row].numpy()[mask], short["hidden"][0], atol=1e-5)
        np.testing.assert_allclose(masked["context"][row].numpy()[mask], short["context"][0], atol=1e-5)
        for one, two in zip(masked["state"], short["state"], strict=True):
            np.testing.assert_allclose(one[row], two[0], atol=1e-5)


def test_dropout_between_layers_differs_between_steps_and_layers():
    """The fraction of dropped entries is 0.3 within 4 standard errors; seed 2."""
    decoder = AttentionDecoder(50, num_layers=3, dropout=0.3, seed=2)
    decoder.build((None, None, 4))
    masks = decoder.draw_noise(20, 10, decoder.prepare_memory(), training=True)["dropout"]
    assert len(masks) == 2
    masks = np.stack(masks)
    assert abs((masks == 0).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / masks.size)
    np.testing.assert_allclose(masks[masks > 0], 1 / 0.7, rtol=1e-6)
    assert np.any(masks[:, :, 0] != masks[:, :, 1])
    assert np.any(masks[0] != masks[1])
    assert decoder.draw_noise(20, 10, decoder.prepare_memory()) == {}


@pytest.mark.slow
def test_the_log_is_named_after_the_attention():
    inputs, memory = keras.Input((None, 4)), keras.Input((None, 5))
    decoded = AttentionDecoder(UNITS, GaussianAttention("bilinear", name="context_vector"))(inputs, memory)
    model = keras.Model([inputs, memory], keras.layers.Dense(1)(decoded["hidden"]))
    model.compile("sgd", "mse")
    history = model.fit([INPUTS, MEMORY], np.zeros((BATCH, STEPS, 1)), verbose=0).history
    assert set(history) == {"loss", "context_vector_kl"}


def test_errors():
    with pytest.raises(ValueError, match=r"`residual` must be True or False\. Received: residual='yes'"):
        AttentionDecoder(UNITS, residual="yes")
    with pytest.raises(ValueError, match=r"`seed` must be an integer or None\. Received: seed=1\.5"):
        AttentionDecoder(UNITS, seed=1.5)
    with pytest.raises(ValueError, match="Received: attention="):
        AttentionDecoder(UNITS, DeterministicAttention())(INPUTS)
    with pytest.raises(ValueError, match="Received: attention=None"):
        AttentionDecoder(UNITS)(INPUTS, MEMORY)
    with pytest.raises(ValueError, match=r"Received: memory\.shape=\(3, 5\)"):
        AttentionDecoder(UNITS, DeterministicAttention())(INPUTS, MEMORY[..., 0])
    with pytest.raises(ValueError, match=r"`initial_state` must be a list of 2 .*Received: 1"):
        AttentionDecoder(UNITS)(INPUTS, initial_state=INITIAL[:1])
    with pytest.raises(ValueError, match=r"Received: \w+_mask\.shape=\(3, 4\)"):
        AttentionDecoder(UNITS, DeterministicAttention("additive"))(INPUTS, MEMORY, memory_mask=MEMORY_MASK[:, :4])
    with pytest.raises(ValueError, match="`attention` must be a class, an instance or a config of Attention"):
        AttentionDecoder(UNITS, keras.layers.Dense(2))


def test_keras_masks_are_used():
    tokens = np.where(INPUTS_MASK, 1, 0)
    source = np.where(MEMORY_MASK, 2, 0)
    embedding = keras.layers.Embedding(3, 5, mask_zero=True)
    decoder = AttentionDecoder(UNITS, GaussianAttention("additive"))
    implicit = decoder(embedding(tokens), embedding(source), return_attention_scores=True)
    loss = float(decoder.losses[0])
    words, memory = (tf.convert_to_tensor(embedding(x).numpy()) for x in (tokens, source))
    explicit = decoder(words, memory, inputs_mask=INPUTS_MASK, memory_mask=MEMORY_MASK, return_attention_scores=True)
    for name in explicit:
        np.testing.assert_array_equal(implicit[name], explicit[name])
    assert loss == float(decoder.losses[0])
    np.testing.assert_array_equal(implicit["hidden"]._keras_mask, INPUTS_MASK)
    np.testing.assert_array_equal(implicit["context"]._keras_mask, INPUTS_MASK)

"""Tests that need a GPU. Run them with KERAS_VATTN_TEST_GPU=1 on a machine with a GPU."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vattn


@pytest.mark.gpu
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_the_decoder_trains_on_a_gpu(jit, policy):
    keras.config.set_dtype_policy(policy)
    words, memory = keras.Input((None, 8)), keras.Input((None, 6))
    attention = keras_vattn.GaussianAttention("bilinear", context_prior="mean", kl_weight=0.1)
    decoded = keras_vattn.AttentionDecoder(16, attention)(words, memory)
    logits = keras.layers.Dense(5, dtype="float32")(decoded["hidden"])
    model = keras.Model([words, memory], logits)
    model.compile("adam", keras_vattn.SequenceCrossentropy(), jit_compile=jit)
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(32, 7, 8)), generator.normal(size=(32, 9, 6))]
    history = model.fit(inputs, generator.integers(5, size=(32, 7)), epochs=20, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert "GPU" in model.trainable_variables[0].value.device


@pytest.mark.gpu
def test_noise_is_the_same_with_and_without_xla():
    def draw():
        return keras_vattn.random.normal((64, 64), keras_vattn.random.as_seed(3))

    np.testing.assert_allclose(tf.function(draw)(), tf.function(draw, jit_compile=True)(), rtol=1e-5, atol=1e-6)

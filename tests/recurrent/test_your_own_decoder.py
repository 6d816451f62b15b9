"""Tests that the code of docs/your_own_decoder.md runs and gives the results that the page describes."""

import pathlib
import re

import numpy as np
import pytest
from keras import ops

from keras_vattn import Attention, AttentionDecoder, recurrent

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "your_own_decoder.md"


@pytest.fixture(scope="module")
def names():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 4
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.mark.slow
def test_hard_attention(names):
    arrays = [np.ones((2, 4, 16)), np.ones((2, 6, 7)), np.ones((2, 4), int)]
    history = names["captioner"].fit(arrays, arrays[-1], verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_the_cell(names):
    decoder = AttentionDecoder(8, Attention("additive"), cell=names["CoupledCell"], query="previous")
    assert decoder(ops.ones((2, 4, 5)), ops.ones((2, 6, 7)))["hidden"].shape == (2, 4, 8)
    assert decoder.cells[0].context_kernel.shape == (7, 8)


def test_the_list_of_parts(names):
    assert names["decoded"]["hidden"].shape == (2, 4, 8)
    assert names["decoded"]["latent"].shape == (2, 4, 3)
    decoder = names["LatentDecoder"](8, 3)
    inputs, memory = np.ones((2, 4, 5), "float32"), np.ones((2, 6, 7), "float32")
    expected = decoder(inputs, memory)
    assert len(decoder.losses) == 1
    prepared = decoder.prepare_memory(memory)
    state = decoder.start(2, prepared)
    for t in range(4):
        outputs, state = decoder.step(inputs[:, t], state, prepared)
        np.testing.assert_allclose(outputs["hidden"], expected["hidden"][:, t], atol=1e-6)


def test_without_posterior_and_prior_the_latent_is_standard_normal(names, monkeypatch):
    class Standard(names["LatentDecoder"]):
        def parts(self):
            attention, _, cells = super().parts()
            return [attention, recurrent.LatentPart(self.latent, lambda results, state: None), cells]

    noise = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(2, 4, 3)), "float32")
    monkeypatch.setattr(names["keras_vattn"].random, "normal", lambda shape, seed: noise)
    decoder, inputs, memory = Standard(8, 3), np.ones((2, 4, 5), "float32"), np.ones((2, 6, 7), "float32")
    np.testing.assert_array_equal(decoder(inputs, memory)["latent"], ops.zeros_like(noise))
    np.testing.assert_array_equal(decoder(inputs, memory, training=True)["latent"], noise)
    assert decoder.losses == []


def test_the_search(names):
    """The results are sorted by their log-probabilities."""
    beams = names["found"]
    assert beams["ids"].shape[0] == 2
    assert np.all(np.diff(beams["log_probabilities"], axis=1) <= 1e-6)

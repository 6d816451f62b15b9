"""Every attention class of KerasHub, converted: rows of the table of docs/pretrained_models.md."""

import gc
import subprocess
import sys

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from conversion_cases import TOKENS, X, bayesian_of, functional_model, outputs_of, randomized
from hub_models import LOAD, attention_backbones, inputs_of, make_backbone, row_of

import keras_vattn
from keras_vattn import to_deterministic

# The table is checked in this many groups, which run at the same time.
GROUPS = 2
# Number of called layers, where other converted layers are called by an outer class or not at all.
CALLED = {"FluxBackbone": 2, "SAMBackbone": 2}
# Their attention classes are the same as in other rows, or are copies of classes in other rows.
SAME_ATTENTION = {
    *("BertBackbone", "CLIPBackbone", "CLIPTextEncoder", "CLIPVisionEncoder", "DINOV3Backbone", "DeiTBackbone"),
    *("DepthAnythingBackbone", "DistilBertBackbone", "ESMBackbone", "EdRecBackbone", "ElectraBackbone"),
    *("GPTNeoXBackbone", "Llama3Backbone", "MetaCLIP2Backbone", "MetaCLIP2TextEncoder", "MetaCLIP2VisionEncoder"),
    *("MistralBackbone", "MixtralBackbone", "OPTBackbone", "PARSeqBackbone", "PaliGemmaBackbone", "Phi3Backbone"),
    *("Qwen3Backbone", "Qwen3MoeBackbone", "Qwen3_5MoeBackbone", "QwenBackbone", "QwenMoeBackbone"),
    *("RobertaBackbone", "SegFormerBackbone", "SigLIPBackbone", "SigLIPTextEncoder", "SigLIPVisionEncoder"),
    *("T5GemmaBackbone", "ViTBackbone", "XLMRobertaBackbone"),
}
# Files of other backbones store the same configs of attention layers.
FILES = {"BartBackbone", "GPT2Backbone", "Gemma3nBackbone", "LlamaBackbone", "SAMBackbone", "T5Backbone"}
# Some KerasHub models raise warnings themselves.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def check_rows(names, folder=None):
    for name in names:
        row = row_of(name, folder)
        assert row["converted"] == row["attentions"], (name, row)
        assert row["called"] == CALLED.get(name, row["converted"]), (name, row)
        assert row["difference"] <= 1e-5 and row["back"] <= 1e-5, (name, row)
        assert 0.0 < row["kl"] < np.inf and 0.0 < row["gradient"] < np.inf, (name, row)
        assert row["same"] in (None, True), (name, row)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_the_table(group):
    check_rows([name for name in attention_backbones() if name not in SAME_ATTENTION | FILES][group::GROUPS])


@pytest.mark.slow
def test_files_load_in_another_process(tmp_path):
    check_rows(FILES, tmp_path)
    bayesian = bayesian_of(functional_model())
    bayesian.save(tmp_path / "functional.keras")
    np.savez(tmp_path / "functional.npz", outputs_of(bayesian, X), input=X)
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    loaded = {name: float(difference) for name, _, difference in map(str.split, printed.splitlines())}
    assert loaded.keys() == FILES | {"functional"} and max(loaded.values()) <= 1e-5, printed


@pytest.mark.slow
def test_a_llama_whose_embeddings_are_tied(tmp_path):
    """KerasHub's config does not record this; also in a task and in an outer model."""
    backbone = randomized(make_backbone("LlamaBackbone", tie_word_embeddings=True))
    assert (
        "tie_word_embeddings" not in backbone.get_config()
    )  # if this fails, `copies.serialized` need not add it any more
    task = keras_hub.models.LlamaCausalLM(backbone=backbone, preprocessor=None)
    for model in (backbone, task, keras.Model(backbone.input, keras.layers.Dense(2)(backbone(backbone.input)))):
        bayesian = bayesian_of(model, prior=None)
        bayesian.save(tmp_path / "model.keras")
        for each in (bayesian, keras.saving.load_model(tmp_path / "model.keras"), to_deterministic(bayesian)):
            assert len(each.weights) == len(model.weights)
            np.testing.assert_allclose(outputs_of(each, TOKENS), outputs_of(model, TOKENS), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_lora_and_quantisation_come_after():
    for change in (lambda model: model.enable_lora(2), lambda model: model.quantize("int8")):
        model = make_backbone("LlamaBackbone")
        change(model)
        with pytest.raises(ValueError, match=r"`to_bayesian` first, and `(enable_lora|quantize)` on the result"):
            bayesian_of(model, prior=None)
    bayesian = bayesian_of(make_backbone("LlamaBackbone"), prior=None, seed=1)
    before = outputs_of(bayesian, TOKENS)
    bayesian.enable_lora(2)
    np.testing.assert_allclose(outputs_of(bayesian, TOKENS), before, rtol=1e-5, atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(bayesian({x.name: TOKENS[x.name] for x in bayesian.inputs}, training=True) ** 2)
    names = [x.name for x in bayesian.trainable_variables]
    assert "lora_kernel_a" in names and "kernel" not in names
    assert all(x is not None for x in tape.gradient(loss, [x.value for x in bayesian.trainable_variables]))
    # `to_deterministic` merges LoRA into the weights.
    for variable in bayesian.trainable_variables:
        variable.assign_add(np.random.default_rng(0).normal(size=variable.shape))
    trained = outputs_of(bayesian, TOKENS)
    assert np.abs(trained - before).max() > 0.1
    np.testing.assert_allclose(
        outputs_of(keras_vattn.to_deterministic(bayesian), TOKENS), trained, rtol=1e-5, atol=1e-5
    )
    bayesian = bayesian_of(make_backbone("LlamaBackbone"), prior=None, seed=1)
    before = outputs_of(bayesian, TOKENS)
    bayesian.quantize("int8")
    np.testing.assert_allclose(outputs_of(bayesian, TOKENS), before, atol=0.5)
    with pytest.raises(ValueError, match=r"call `to_deterministic` before `quantize`"):
        keras_vattn.to_deterministic(bayesian)


@pytest.mark.slow
def test_a_file_of_a_quantised_model(monkeypatch, tmp_path):
    """The model has converted layers with a contextual prior, and a head that was added later."""
    bayesian = bayesian_of(randomized(make_backbone("GemmaBackbone")), prior="contextual", seed=1)
    model = keras.Model(bayesian.input, keras.layers.Dense(3)(bayesian(bayesian.input)))
    with monkeypatch.context() as context:
        # Keras collects garbage after each weight, which is slow.
        context.setattr(gc, "collect", lambda: 0)
        model.quantize("int8")
    inputs = inputs_of(bayesian)
    loaded = model
    for _ in range(2):
        loaded.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    draws, loaded_draws = (keras_vattn.posterior_predictive(x, inputs, 2, seed=3) for x in (model, loaded))
    np.testing.assert_array_equal(loaded_draws, draws)
    assert draws.std(axis=0).max() > 1e-3
    assert {x.dtype for x in loaded.weights} >= {"int8", "float32"}

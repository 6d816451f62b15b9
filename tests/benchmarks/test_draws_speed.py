"""Times 20 sampled predictions of a BERT with twelve blocks, relative to one prediction. Prints a table."""

import functools

import keras
import keras_hub
import numpy as np
import pytest

import keras_vattn
from benchmarks.paired import interleave, median_interval, report
from keras_vattn.draws.shared_prefix import SharedPrefix

WIDTH, HEADS, LENGTH, BLOCKS, DRAWS = 256, 4, 64, 12, 20


def classifier(num_drawing):
    """Return a classifier with twelve transformer blocks; the last `num_drawing` blocks have stochastic attention."""
    keras.utils.set_random_seed(1)
    sizes = {"hidden_dim": WIDTH, "intermediate_dim": 4 * WIDTH, "max_sequence_length": LENGTH}
    backbone = keras_hub.models.BertBackbone(1000, num_layers=BLOCKS, num_heads=HEADS, **sizes)
    backbone = keras_vattn.to_bayesian(backbone, prior=None, layers=num_drawing)
    pooled = backbone(backbone.input)["pooled_output"]
    model = keras.Model(backbone.input, keras.layers.Dense(2, "softmax")(pooled))
    model.compile()
    return model


def batch_of(size):
    ids = np.random.default_rng(0).integers(1, 1000, size=(size, LENGTH)).astype("int32")
    return {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": np.ones_like(ids)}


@pytest.mark.parametrize(("num_drawing", "size", "most"), [(3, 1, None), (3, 8, 7.0), (3, 32, None), (12, 8, None)])
def test_draws_over_a_prediction(num_drawing, size, most, monkeypatch):
    model, x = classifier(num_drawing), batch_of(size)
    unshared = keras.models.clone_model(model)
    draws = {
        name: functools.partial(keras_vattn.Sampler(sampled_model), x, DRAWS, seed=1, batch_size=size)
        for name, sampled_model in (("shared", model), ("whole", unshared))
    }
    with monkeypatch.context() as patch:
        patch.setattr(SharedPrefix, "_operations", lambda self: set())
        draws["whole"]()
    functions = {**draws, "predict": lambda: model.predict_on_batch(x)}
    seconds = interleave(functions, num_rounds=9, num_warm_up=1)
    ratios = {name: median_interval(seconds[name] / seconds["predict"]) for name in draws}
    rows = [(f"{name} / predict_on_batch", ratio, "ratio") for name, ratio in ratios.items()]
    rows.append(("shared / whole", median_interval(seconds["shared"] / seconds["whole"]), "ratio"))
    report(f"draws {num_drawing} of {BLOCKS} at batch {size}: {DRAWS} draws, width {WIDTH}, length {LENGTH}", rows)
    assert most is None or ratios["shared"][0] < most

import json
import math

import keras
import numpy as np
import pytest

import keras_vattn
from keras_vattn import LatentObjective, LinearAnnealing, NegativeBound, SequenceCrossentropy, TokenLogLikelihood
from keras_vattn.support import validation


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (validation.integer, 2.0, "an integer"),
        (validation.integer, True, "an integer"),
        (validation.integer, np.True_, "an integer"),
        (validation.positive_integer, 0, "a positive integer"),
        (validation.positive_integer, None, "a positive integer"),
        (validation.whole_number, -1, "an integer of at least 0"),
        (validation.number, math.inf, "a finite number"),
        (validation.number, np.float64("nan"), "a finite number"),
        (validation.number, "1", "a finite number"),
        (validation.number, True, "a finite number"),
        (validation.positive_number, 0.0, "a finite number above 0"),
        (validation.nonnegative_number, -0.1, "a finite number of at least 0"),
        (validation.fraction, 1.0, "a finite number of at least 0 and below 1"),
        (validation.boolean, 1, "True or False"),
    ],
)
def test_errors(check, value, expected):
    with pytest.raises(ValueError, match=rf"`x` must be {expected}\. Received: x="):
        check("x", value)


THREE, HALF = np.int64(3), np.float32(0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearAnnealing(THREE, start_step=THREE, final_value=HALF),
        lambda: keras_vattn.CyclicalAnnealing(THREE, HALF, THREE),
        lambda: LatentObjective("elbo", "sample", num_samples=THREE, top_k=THREE, baseline_decay=HALF, tau=HALF),
        lambda: SequenceCrossentropy(ignore_class=THREE, label_smoothing=HALF),
        lambda: NegativeBound(ignore_class=THREE),
        lambda: TokenLogLikelihood(THREE, ignore_class=THREE, chunk_size=THREE),
        lambda: keras_vattn.WordDropout(HALF, replacement_id=THREE, protected_ids=np.arange(2), seed=THREE),
        lambda: keras_vattn.GaussianLatent(THREE, kl_weight=HALF, temperature=HALF, free_bits=HALF, seed=THREE),
        lambda: keras_vattn.Attention(alignment="weibull", dropout=HALF, warm_start_steps=THREE, seed=THREE),
        lambda: keras_vattn.Perplexity(ignore_class=THREE),
    ],
)
def test_a_config_with_numpy_numbers_is_json(make):
    instance = make()
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(instance)))
    assert keras.saving.deserialize_keras_object(config).get_config() == instance.get_config()

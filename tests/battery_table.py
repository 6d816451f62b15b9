"""The table of the battery: every public layer, in the configurations that take their own path through the code."""

import inspect

import keras
import pytest
from battery_attention import ATTENTION_CASES
from battery_cases import VOCABULARY
from battery_decoder import DECODER_CASES
from battery_graph import GRAPH_CASES
from battery_latent import LATENT_CASES
from battery_multi_head import MULTI_HEAD_CASES
from battery_parts import PART_CASES, WordsCase
from keras import ops

CASES = [*PART_CASES, *ATTENTION_CASES, *DECODER_CASES, *MULTI_HEAD_CASES, *GRAPH_CASES, *LATENT_CASES]


def rows(condition=lambda case: True):
    return pytest.mark.parametrize("case", [case for case in CASES if condition(case)], ids=lambda case: case.name)


every_row = rows()
rows_with_draws = rows(lambda case: case.draws)
rows_with_key_mask = rows(lambda case: case.key_mask)


def takes_training(case):
    return "training" in inspect.signature(case.make().call).parameters


rows_with_training = rows(takes_training)


def model_inputs(case, with_masks=True):
    """Symbolic inputs of unknown batch size and length."""
    arrays, masks = case.arrays(), case.masks() if with_masks else {}
    inputs = {}
    for name, x in {**arrays, **masks}.items():
        unknown = (None,) * (len(x.shape) - 1)
        integer_or_bool = not x.dtype.is_floating
        shape = unknown if integer_or_bool else (*unknown[:-1], x.shape[-1])
        inputs[name] = keras.Input(shape, dtype=x.dtype.name if integer_or_bool else "float32", name=name)
    return inputs


def build_model(case, layer):
    """The layer, the mean of every output over all axes but the batch, and a Dense layer: (B, 1)."""
    inputs = model_inputs(case)
    outputs = case.outputs(layer(**inputs))
    if isinstance(case, WordsCase):
        outputs = [keras.layers.Embedding(VOCABULARY, 2)(x) for x in outputs]
    pooled = [ops.mean(x, axis=tuple(range(1, len(x.shape)))) for x in outputs]
    return keras.Model(inputs, keras.layers.Dense(1)(ops.stack(pooled, axis=-1)))

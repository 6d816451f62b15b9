"""Lists the test cases of the battery: every public layer, in all configurations that run different code.

A cheap check runs on every case. A costly check runs on a few cases that cover every path (`paths`), an expensive check
on fewer cases that cover every trait (`traits`). A check of code around the layer runs on one case per class.
"""

import collections
import inspect
import itertools

import keras
import pytest
from battery_attention import ATTENTION_CASES
from battery_cases import VOCABULARY
from battery_decoder import DECODER_CASES
from battery_graph import GRAPH_CASES
from battery_latent import LATENT_CASES
from battery_multi_head import MULTI_HEAD_CASES
from battery_parts import COMPONENT_CASES, WordsCase
from keras import ops

FAMILIES = (COMPONENT_CASES, ATTENTION_CASES, DECODER_CASES, MULTI_HEAD_CASES, GRAPH_CASES, LATENT_CASES)
CASES = [case for family in FAMILIES for case in family]
HALF_POLICIES = ("mixed_float16", "mixed_bfloat16")
_LAYERS = {case.name: case.make() for case in CASES}


def paths(case):
    """Return the code paths of a case: the class of the layer, with or without a KL, the classes of its components,
    whether it draws, its masks, and whether it has query chunks."""
    layer = _LAYERS[case.name]
    flags = {(name, getattr(case, name)) for name in ("draws", "query_mask", "key_mask", "shows_weights")}
    return {(type(layer).__name__, case.divergence), *_classes(layer.get_config()), *flags}


def traits(case):
    """Return the classes that a case uses anywhere, and whether it has draws, a KL, a loop, masks and chunks."""
    layer = _LAYERS[case.name]
    names = ("draws", "divergence", "has_loop", "query_mask", "key_mask", "shows_weights")
    return {type(layer).__name__, *_classes(layer.get_config()), *((name, getattr(case, name)) for name in names)}


def _classes(config):
    if not isinstance(config, dict):
        return set()
    class_name = {config["class_name"]} if "class_name" in config else set()
    return class_name.union(*map(_classes, config.values()))


def covering(cases, features=paths):
    """Return the names of a few cases that together have all features of the given cases."""
    features_by_row, chosen = {case.name: features(case) for case in cases}, set()
    uncovered = set().union(*features_by_row.values())
    while uncovered:
        best = max(features_by_row, key=lambda name: len(features_by_row[name] & uncovered))
        chosen.add(best)
        uncovered -= features_by_row[best]
    return chosen


def rows(condition=lambda case: True, costly=False, expensive=False, by_class=False):
    """Parametrize a check by the cases to which it applies. Of expensive checks, the default tier runs only the first
    case of each family."""
    chosen = _chosen(condition, costly, expensive, by_class)
    marks = _marks(chosen, expensive)
    return pytest.mark.parametrize("case", [pytest.param(x, id=x.name, marks=marks[x.name]) for x in chosen])


def _marks(chosen, expensive):
    """Return the marks of each case: `slow` in expensive checks, except for the first case of each family."""
    first = [next((case for case in family if case in chosen), None) for family in FAMILIES]
    return {case.name: pytest.mark.slow if expensive and case not in first else () for case in chosen}


def half_precision_rows(condition=lambda case: True, costly=False, expensive=False, extreme=False):
    """Parametrize as `rows`, with one half-precision policy per case; policies alternate within a class. A class with
    one case gets both policies, except in expensive checks. In extreme checks, some cases get only bfloat16."""
    cases_by_class, parameters, directions = collections.defaultdict(list), [], itertools.cycle((1, -1))
    chosen = _chosen(condition, costly, expensive)
    marks = _marks(chosen, expensive)
    for case in chosen:
        cases_by_class[type(_LAYERS[case.name])].append(case)
    for class_cases in cases_by_class.values():
        policy_cycle = itertools.cycle(HALF_POLICIES[:: 1 if len(class_cases) == 1 else next(directions)])
        for case in class_cases:
            policies = [next(policy_cycle) for _ in range(2 if len(class_cases) == 1 and not expensive else 1)]
            policies = ["mixed_bfloat16"] if extreme and not case.fits_float16 else policies
            parameters += [
                pytest.param(case, policy, id=f"{policy}-{case.name}", marks=marks[case.name]) for policy in policies
            ]
    return pytest.mark.parametrize(("case", "policy"), parameters)


def _chosen(condition, costly, expensive, by_class=False):
    cases = [case for case in CASES if condition(case)]
    if by_class:
        return [*{type(_LAYERS[case.name]): case for case in reversed(cases)}.values()][::-1]
    selected = covering(cases, traits if expensive else paths) if costly or expensive else {case.name for case in cases}
    return [case for case in cases if case.name in selected]


every_row = rows()
ROWS_WITH_ALL_TRAITS = covering(CASES, traits)
rows_of_each_trait = rows(lambda case: case.name in ROWS_WITH_ALL_TRAITS)
rows_with_key_mask = rows(lambda case: case.key_mask, costly=True)


def takes_training(case):
    return "training" in inspect.signature((_LAYERS.get(case.name) or case.make()).call).parameters


def model_inputs(case, with_masks=True):
    """Return symbolic inputs with unknown batch size and length."""
    arrays, masks = case.arrays(), case.masks() if with_masks else {}
    inputs = {}
    for name, x in {**arrays, **masks}.items():
        unknown = (None,) * (len(x.shape) - 1)
        integer_or_bool = not x.dtype.is_floating
        shape = unknown if integer_or_bool else (*unknown[:-1], x.shape[-1])
        inputs[name] = keras.Input(shape, dtype=x.dtype.name if integer_or_bool else "float32", name=name)
    return inputs


def build_model(case, layer):
    """Return a model (B, 1): a Dense layer on the means of the layer's outputs over all axes but the batch."""
    inputs = model_inputs(case)
    outputs = case.outputs(layer(**inputs))
    if isinstance(case, WordsCase):
        outputs = [keras.layers.Embedding(VOCABULARY, 2)(x) for x in outputs]
    pooled = [ops.mean(x, axis=tuple(range(1, len(x.shape)))) for x in outputs]
    return keras.Model(inputs, keras.layers.Dense(1)(ops.stack(pooled, axis=-1)))

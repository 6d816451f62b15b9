"""A model whose attentions draw their weights, made from a model whose attentions do not."""

import copy
import functools
import numbers
import types

import keras

from keras_vattn import alignments
from keras_vattn.conversion.attention_kinds import all_attentions, attentions_in, mixin_of
from keras_vattn.conversion.copies import (
    copy_state,
    copy_weights,
    model_layers,
    rebuild,
    refuse_changed_layers,
    serialized,
)
from keras_vattn.conversion.options import check_options, prior_for, seeds_and_names, select, serialized_prior
from keras_vattn.conversion.padding import HeadsWithPadding
from keras_vattn.conversion.redirected_functions import SOFTMAX_NAME, redirected_functions
from keras_vattn.conversion.swapped_softmax import SwappedSoftmax, SwappedSoftmaxAttention, store_keys, swap_softmax
from keras_vattn.layers.alignment_layer import AlignmentLayer
from keras_vattn.layers.chunked_attention import ChunkedAttention, chunk_size
from keras_vattn.layers.keras_attention_mixin import KerasAttentionMixin
from keras_vattn.layers.multi_head_attention import MultiHeadAttention
from keras_vattn.layers.multi_head_mixin import MultiHeadMixin
from keras_vattn.support import keras_private
from keras_vattn.support.quantization import quantized, restore_quantization
from keras_vattn.support.sublayers import claim, path_of


def to_bayesian(
    model,
    alignment=None,
    prior=None,
    per_head_prior=False,
    kl_weight=1.0,
    kl_annealing=None,
    kl_reduction="sum",
    seed=None,
    skip_unknown=False,
    layers=1 / 3,
    verbose=False,
    query_chunk_size=None,
):
    """Return a new model, with the same parameters, whose attentions draw their attention weights.

    Without options the last third of the attentions draws Weibull weights of k = 1, without a KL. Fan et al. 2020,
    section 4.5, draw in every attention and hold the draws to a prior; docs/pretrained_models.md compares both.

    Every `keras.layers.MultiHeadAttention`, `Attention` and `AdditiveAttention`, and every
    `keras_hub.layers.CachedMultiHeadAttention`, gets the alignment and a prior of its own, wherever in the model it is;
    a layer that is called many times, such as the attention of ALBERT, stays one layer. Subclasses are understood
    unless they compute the weights in a way of their own. Another layer whose class name contains Attention, as in
    Llama and T5: its softmax (a layer it holds, or a call of `ops.softmax`) becomes a `StochasticSoftmax`. The new
    model has the class of the old one, and predicts the same (weights at their mean) until it is trained; `fit` draws,
    and adds the KLs to the loss. It is not compiled.

    The conversion is part of the model's config: `.keras` files load in any process that has imported keras_vattn.
    In self-attention a position that no query sees is padding, and adds no KL as a query; in a model from KerasHub only
    the padding mask tells.

    Args:
        model: A built `keras.Model`, of the functional API or a subclass with a `get_config`.
        alignment: As in `keras_vattn.Attention`, stochastic. Defaults to `None`, which is `Weibull(k=1.0)`; `"weibull"`
            has a k of 10.
        prior: `None` for no KL, `"fixed"`, `"contextual"` or a `Prior`, of which every attention gets a copy. A
            contextual prior reads the projected keys of a head or its group, before any rotation: the output of the
            only attribute named `key`, `key_dense`, `key_proj`, `key_projector`, `k`, `k_dense` or `k_proj`, whose
            number of heads is an axis, or the attribute `num_key_value_heads`, `num_heads`, `num_attention_heads` or
            `heads`. Otherwise only `None` and `"fixed"` are possible. Defaults to `None`.
        per_head_prior: Whether a contextual prior has one network for each head. Defaults to `False`.
        kl_weight, kl_annealing, kl_reduction: As in `keras_vattn.StochasticLayer`, for each attention.
        seed: Integer or `None`; the attentions get this integer and the following ones. Defaults to `None`.
        skip_unknown: Whether to leave attention that is not understood as it is. Defaults to `False`.
        layers: The attentions to convert: `None` for all, an integer for the last so many of the model, a share below 1
            for this share at the end, at least one (ALBERT's layers share one), a regular expression that is searched
            for in the path of each, or a function of the layer. Defaults to 1/3.
        verbose: Whether to print how many attentions draw now, and which do not. Defaults to `False`.
        query_chunk_size: As in `keras_vattn.MultiHeadAttention`. An attention that only has its softmax swapped has all
            weights at once, whatever stands here: a number is refused, `"auto"` leaves it. Defaults to `None`.

    Returns:
        A model of the class of `model`.

    Raises:
        ValueError: If the model is not built, has no attention, has attention that is not understood (the error lists
            it), is converted already, or cannot be made again from its config; and for wrong options, as in
            `keras_vattn.MultiHeadAttention`.

    Example:

    >>> x = keras.Input((5, 8))
    >>> attended = keras.layers.MultiHeadAttention(2, 4)(x, x)
    >>> model = keras.Model(x, keras.layers.Dense(3)(attended))
    >>> bayesian = keras_vattn.to_bayesian(model, seed=1)
    >>> inputs = keras.random.normal((2, 5, 8))
    >>> bool(keras.ops.all(keras.ops.isclose(model(inputs), bayesian(inputs), atol=1e-5)))
    True
    >>> keras_vattn.posterior_predictive(bayesian, inputs, num_samples=7).shape
    (7, 2, 5, 3)
    """
    alignment = alignments.Weibull(k=1.0) if alignment is None else alignment
    conversion = {
        "alignment": keras.saving.serialize_keras_object(alignments.get(alignment)),
        "prior": serialized_prior(prior, alignment),
        "per_head_prior": per_head_prior,
        "kl_weight": kl_weight,
        "kl_annealing": keras.saving.serialize_keras_object(kl_annealing),
        "kl_reduction": kl_reduction,
        "query_chunk_size": chunk_size(query_chunk_size),
    }
    if not isinstance(model, keras.Model) or not model.built:
        raise ValueError(
            f"`to_bayesian` needs a built keras.Model: call it once. Received: {type(model).__name__}, "
            f"built={getattr(model, 'built', None)}"
        )
    if any(isinstance(x, Converted) for x in keras_private.flatten_layers(model)):
        raise ValueError(
            "A model is converted once: name all its attentions in one call, by `layers`; `to_deterministic` undoes a "
            f"conversion. Received: model={model.name}, converted already"
        )
    attentions = all_attentions(model)
    selected = _select_attentions(model, attentions, layers, skip_unknown)
    check_options(conversion, seed, selected)
    refuse_changed_layers(model)
    new = rebuild(serialized(model), model)
    copy_weights(model.weights, new.weights)
    copy_state(model, new)
    is_selected = [x in selected for x in attentions_in(model)]
    _convert(new, conversion | {"attentions": seeds_and_names(attentions_in(new), is_selected, seed)})
    if verbose:
        rest = [path_of(x) for x in attentions if x not in selected]
        print(f"{len(selected)} attentions of {len(attentions)} draw now{'; left: ' if rest else ''}{', '.join(rest)}")
    return new


@keras.saving.register_keras_serializable(package="keras_vattn", name="Converted")
class Converted:
    """Mixin of layers and models that `to_bayesian` has converted, or that create a converted layer: their config holds
    the config of the original and the conversion.

    `_class_of` makes a subclass for each converted class. All subclasses are saved under the name of this class, which
    another process can load. The subclasses are not registered, because KerasHub instantiates the first registered
    class that fits.
    """

    def get_config(self):
        original = copy.deepcopy(self._original)
        if "trainable" in original["config"]:
            original["config"]["trainable"] = self.trainable
        # The user may have changed the weight of a KL. `stochastic_config` also warns of a legacy file.
        weights = iter([layer.stochastic_config()["kl_weight"] for layer in converted_drawing_layers(self)])
        attentions = [x and {**x, "kl_weight": next(weights)} for x in self._conversion["attentions"]]
        conversion = {**self._conversion, "attentions": attentions}
        return {"original": original, "conversion": conversion, "quantized": quantized(model_layers(self))}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        layer = keras.saving.deserialize_keras_object(config["original"], custom_objects=custom_objects)
        _convert(layer, config["conversion"])
        # Files of earlier versions lack the entry.
        restore_quantization(model_layers(layer), config.get("quantized", ()))
        return layer


def converted_drawing_layers(model):
    """Return the layers that draw the weights of converted attentions, in the order of the attentions."""
    layers = keras_private.flatten_layers(model)
    return [x for x in layers if isinstance(x, AlignmentLayer) and isinstance(x, (Converted, SwappedSoftmax))]


def _save_to_preset(self, preset_dir, *arguments, **options):
    raise ValueError(
        "A preset holds classes of KerasHub alone: use `save`, or save a preset of `to_deterministic` of the model, "
        "without its priors, and call `to_bayesian` on what `from_preset` returns. Received: "
        f"preset_dir={preset_dir!r}"
    )


REGISTERED_NAME = keras.saving.get_registered_name(Converted)


def _select_attentions(model, attentions, layers, skip_unknown):
    """Return the attentions to convert, a dictionary as `attentions_in` returns it.

    Raises:
        ValueError: If there is no attention to convert, or one is not understood and not skipped.
    """
    convertible = attentions_in(model)
    # A share is a share of the attentions that can be converted.
    is_fraction = isinstance(layers, numbers.Real) and layers < 1
    candidates = [x for x in attentions if x in convertible] if skip_unknown and is_fraction else attentions
    selected = select(candidates, layers)
    unknown = [x for x in selected if x not in convertible]
    if unknown and not skip_unknown:
        raise ValueError(
            "`to_bayesian` understands attention of Keras and KerasHub, and every other layer named an attention that "
            "holds a keras.layers.Softmax over its last axis or calls keras.ops.softmax or "
            "keras.ops.dot_product_attention. Convert the others yourself, or leave them as they are with `layers` or "
            f"skip_unknown=True. Received: {_describe(unknown)}"
        )
    if candidates and not selected:
        raise ValueError(
            f"`layers` must name an attention of the model. Received: layers={layers!r}, with the attentions "
            f"{_describe(attentions)}"
        )
    if len(unknown) == len(selected):
        reason = "no layer of it is an attention of Keras or a subclass of one, or is named one"
        if attentions:
            reason = f"layers={layers!r}, skip_unknown={skip_unknown}, with the attentions {_describe(attentions)}"
        raise ValueError(
            "`to_bayesian` needs a model with attention that it understands; `keras_vattn.MultiHeadMixin` is for one "
            f"of your own. Received: model={model}, {reason}"
        )
    return {x: path for x, path in convertible.items() if x in selected}


def _describe(layers):
    return ", ".join(f"{type(layer).__name__}(path={path_of(layer)!r})" for layer in layers)


def _convert(layer, conversion):
    """Convert the attentions in a built layer or model, in place."""
    options = dict(zip(attentions_in(layer), conversion["attentions"], strict=True))
    options = {attention: x for attention, x in options.items() if x is not None}
    # A layer that creates its sublayers must convert them when it is rebuilt. The config of a functional model holds
    # the configs of its layers instead.
    creators = [
        x
        for x in keras_private.flatten_layers(layer)
        if x not in options
        and type(x) not in (keras.Sequential, _functional_class())
        and any(each in options for each in keras_private.flatten_layers(x))
    ]
    # A layer that another one creates may have no config, as the blocks of KerasHub's Llama.
    created_layers = {each for x in creators for each in keras_private.flatten_layers(x) if each is not x}
    configs = {x: serialized(x, optional=x in created_layers) for x in (*options, *creators)}
    inner_attentions = {x: attentions_in(x) for x in configs}
    for attention, attention_options in options.items():
        _convert_attention(attention, conversion, **attention_options)
    for converted, original in configs.items():
        if original is None:
            continue
        if converted not in options:
            converted.__class__ = _class_of(type(converted))
        # A layer may be rebuilt without this model, so its config has the options of the attentions in it.
        attentions = [options.get(x) for x in inner_attentions[converted]]
        # A usual assignment would have Keras look for layers in the dictionaries.
        object.__setattr__(converted, "_original", original)
        object.__setattr__(converted, "_conversion", {**conversion, "attentions": attentions})


def _convert_attention(layer, conversion, seed, name, kl_weight=None):
    """Make an attention draw, with the same parameters, in place: its class changes."""
    kl_weight = conversion["kl_weight"] if kl_weight is None else kl_weight
    alignment = keras.saving.deserialize_keras_object(conversion["alignment"])
    prior = prior_for(conversion, layer)
    mixin = mixin_of(type(layer))
    drawing_layer = layer if mixin else swap_softmax(layer)
    with keras_private.unlocked(drawing_layer), keras.name_scope(layer.name, caller=layer):
        if getattr(drawing_layer, "seed_generator", None) is not None:
            del drawing_layer.seed_generator
        layer.__class__ = _class_of(type(layer), mixin or SwappedSoftmaxAttention, SOFTMAX_NAME in vars(layer))
        drawing_layer.become_stochastic(kl_weight, conversion["kl_annealing"], conversion["kl_reduction"], seed)
        drawing_layer.add_alignment(alignment, prior, conversion["per_head_prior"], name)
        if isinstance(drawing_layer, ChunkedAttention):
            # Files of earlier versions lack the option.
            drawing_layer.query_chunk_size = conversion.get("query_chunk_size")
        claim(drawing_layer, "prior", drawing_layer.alignment_prior)
    if drawing_layer is not layer and drawing_layer.reads_keys:
        store_keys(layer, drawing_layer)
    if drawing_layer.built:
        _build_prior(drawing_layer)
    else:
        # The enclosing layer builds it in its first call, with the `build` that Keras has bound to the layer.
        layer.build = _with_prior(layer, layer.build)


def _build_prior(layer):
    """Create the weights of the prior of a built attention, frozen where the attention is."""
    if layer.alignment_prior is None:
        return
    with keras_private.unlocked(layer), keras.name_scope(layer.name, caller=layer):
        # The last input of a `keras.layers.Attention` is its keys, or its values, which serve as keys.
        width = [layer.get_build_config()["input_shape"][-1][-1]] if isinstance(layer, KerasAttentionMixin) else []
        layer.build_prior(*([layer.key_shape] if isinstance(layer, SwappedSoftmax) else width))
    layer.alignment_prior.trainable = layer.trainable


def _with_prior(layer, build):
    @functools.wraps(build)
    def build_with_prior(*arguments, **options):
        build(*arguments, **options)
        _build_prior(layer)

    return build_with_prior


@functools.cache
def _functional_class():
    """Return the class of the functional models of Keras."""
    x = keras.Input((1,), name="x")
    return type(keras.Model(x, keras.layers.Identity(name="y")(x), name="identity"))


@functools.cache
def _class_of(original, mixin=None, redirects=False):
    """Return the class of a converted `original`, whose calls of Keras's softmax are redirected or not."""
    mixins = {MultiHeadMixin: (HeadsWithPadding, MultiHeadMixin), None: ()}.get(mixin, (mixin,))
    base = original
    if original is keras.layers.MultiHeadAttention:
        mixins, base = (HeadsWithPadding,), MultiHeadAttention
    namespace = {"__module__": __name__, "__doc__": original.__doc__, "converted_from": original}
    if hasattr(original, "save_to_preset"):
        namespace["save_to_preset"] = _save_to_preset
    if redirects:
        namespace |= redirected_functions(original)
    bases = (Converted, *mixins, base)
    converted_class = types.new_class(base.__name__, bases, exec_body=lambda ns: ns.update(namespace))
    keras_private.save_as(converted_class, Converted)
    return converted_class

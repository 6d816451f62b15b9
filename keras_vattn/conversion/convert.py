"""Convert the attention layers of a model to layers that sample their attention weights."""

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
    """Return a copy of a model, with the same weights, whose attention layers sample their attention weights.

    By default, the last third of the attention layers sample Weibull weights with k = 1, without a KL. Fan et al.
    2020, section 4.5, sample in every attention layer and use a prior; docs/pretrained_models.md compares both choices.

    The conversion finds attention layers at any depth of the model. Keras's `MultiHeadAttention`, `Attention` and
    `AdditiveAttention`, and KerasHub's `CachedMultiHeadAttention`, get the alignment and a prior. So do their
    subclasses, unless a subclass changes how the weights are computed. Other layers whose class name contains
    Attention, such as those of Llama and T5, get a `StochasticSoftmax` in place of their softmax. A layer that is
    called several times, such as the attention of ALBERT, remains one layer.

    The new model has the class of the original, and is not compiled. Until you train the new model, its predictions
    with the mean weights equal the predictions of the original. `fit` samples the weights and adds the KLs to the loss.
    `.keras` files of the new model load in any process that imports keras_vattn.

    Queries at padding positions add no KL in multi-head self-attention without a `StochasticSoftmax`. A position is
    padding if the mask hides its key from all queries. In KerasHub models, only the padding mask is used.

    Args:
        model: A built `keras.Model`: a functional model, or a subclass with a `get_config`.
        alignment: Stochastic alignment, as in `keras_vattn.Attention`. `None` selects `Weibull(k=1.0)`, but `"weibull"`
            selects k = 10. Defaults to `None`.
        prior: `None` for no KL, `"fixed"`, `"contextual"` or a `Prior`. Every attention layer uses a copy. A contextual
            prior reads the projected keys, before any rotary embedding. If the layer gets a `StochasticSoftmax`, these
            keys are the output of the only sublayer named `key`, `key_dense`, `key_proj`, `key_projector`, `k`,
            `k_dense` or `k_proj`. The number of heads is an axis of this output, or the attribute
            `num_key_value_heads`, `num_heads`, `num_attention_heads` or `heads`. Attention without such keys supports
            only `None` and fixed priors. Defaults to `None`.
        per_head_prior: Whether a contextual prior has one network for each head. Defaults to `False`.
        kl_weight, kl_annealing, kl_reduction: As in `keras_vattn.StochasticLayer`, for each attention layer.
        seed: Integer or `None`. The attention layers use the seeds seed, seed + 1, and so on. Defaults to `None`.
        skip_unknown: Whether to skip attention that cannot be converted. Defaults to `False`.
        layers: The attention layers to convert. `None`: all. An integer n: the last n. A fraction below 1: this
            fraction of the attention layers, the last ones, at least one. A string: layers whose path matches this
            regular expression. A function: layers for which the function returns `True`. Defaults to 1/3.
        verbose: Whether to print how many attention layers are converted, and which are skipped. Defaults to `False`.
        query_chunk_size: As in `keras_vattn.MultiHeadAttention`. Attention with a `StochasticSoftmax` does not support
            chunks: a number raises an error, and `"auto"` has no effect. Defaults to `None`.

    Returns:
        A model of the same class as `model`.

    Raises:
        ValueError: If the model is not built, is already converted, has no attention, or cannot be rebuilt from its
            config. If a selected layer cannot be converted. If an option is invalid.

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
            f"`to_bayesian` needs a built keras.Model. Call the model once. Received: {type(model).__name__}, "
            f"built={getattr(model, 'built', None)}"
        )
    if any(isinstance(x, Converted) for x in keras_private.flatten_layers(model)):
        raise ValueError(
            "A model can be converted only once: select all layers to convert in one call, or undo the previous "
            f"conversion with `to_deterministic`. Received: model={model.name}, already converted"
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
        rest = ", ".join(path_of(x) for x in attentions if x not in selected)
        print(f"converted {len(selected)} of {len(attentions)} attention layers" + f"; skipped: {rest}" * bool(rest))
    return new


@keras.saving.register_keras_serializable(package="keras_vattn", name="Converted")
class Converted:
    """Mixin of converted attention layers, and of the layers and models that create them.

    The config contains the config of the original and the options of the conversion. `_class_of` creates a subclass for
    each converted class. All subclasses are saved under the name `Converted`, so that another process can load them. Do
    not register the subclasses: `from_preset` of KerasHub could choose one for an unconverted model.
    """

    def get_config(self):
        original = copy.deepcopy(self._original)
        if "trainable" in original["config"]:
            original["config"]["trainable"] = self.trainable
        # The user may have changed the KL weights since the conversion.
        weights = iter([layer.stochastic_config()["kl_weight"] for layer in converted_drawing_layers(self)])
        attentions = [x and {**x, "kl_weight": next(weights)} for x in self._conversion["attentions"]]
        conversion = {**self._conversion, "attentions": attentions}
        return {"original": original, "conversion": conversion, "quantized": quantized(model_layers(self))}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        layer = keras.saving.deserialize_keras_object(config["original"], custom_objects=custom_objects)
        _convert(layer, config["conversion"])
        # Files of earlier versions lack this key.
        restore_quantization(model_layers(layer), config.get("quantized", ()))
        return layer


def converted_drawing_layers(model):
    """Return the layers that sample: converted attention layers or, if they have one, their `SwappedSoftmax`."""
    layers = keras_private.flatten_layers(model)
    return [x for x in layers if isinstance(x, AlignmentLayer) and isinstance(x, (Converted, SwappedSoftmax))]


def _save_to_preset(self, preset_dir, *arguments, **options):
    raise ValueError(
        "A preset can contain only KerasHub classes. Use `save` instead. To write a preset, convert the model with "
        "`to_deterministic`, which removes the priors, and call `to_bayesian` after `from_preset`. Received: "
        f"preset_dir={preset_dir!r}"
    )


REGISTERED_NAME = keras.saving.get_registered_name(Converted)


def _select_attentions(model, attentions, layers, skip_unknown):
    """Return the attention layers to convert, as a dictionary in the format of `attentions_in`."""
    convertible = attentions_in(model)
    is_fraction = isinstance(layers, numbers.Real) and layers < 1
    candidates = [x for x in attentions if x in convertible] if skip_unknown and is_fraction else attentions
    selected = select(candidates, layers)
    unknown = [x for x in selected if x not in convertible]
    if unknown and not skip_unknown:
        raise ValueError(
            "`to_bayesian` converts the attention layers of Keras and KerasHub. It also converts layers with Attention "
            "in their class name, if they have a keras.layers.Softmax over the last axis or call keras.ops.softmax or "
            "keras.ops.dot_product_attention. Convert other layers yourself, or skip them with `layers` or "
            f"skip_unknown=True. Received: {_describe(unknown)}"
        )
    if candidates and not selected:
        raise ValueError(
            f"`layers` must select an attention layer of the model. Received: layers={layers!r}, attention layers "
            f"{_describe(attentions)}"
        )
    if len(unknown) == len(selected):
        reason = "no layer is a subclass of Keras attention or has Attention in its class name"
        if attentions:
            reason = f"layers={layers!r}, skip_unknown={skip_unknown}, attention layers {_describe(attentions)}"
        raise ValueError(
            "`to_bayesian` needs a model with attention that it can convert. To write a stochastic attention layer, "
            f"subclass `keras_vattn.MultiHeadMixin`. Received: model={model}, {reason}"
        )
    return {x: path for x, path in convertible.items() if x in selected}


def _describe(layers):
    return ", ".join(f"{type(layer).__name__}(path={path_of(layer)!r})" for layer in layers)


def _convert(layer, conversion):
    """Convert the attention layers of a built layer or model, in place."""
    options = dict(zip(attentions_in(layer), conversion["attentions"], strict=True))
    options = {attention: x for attention, x in options.items() if x is not None}
    # A layer that creates its own attention layers also becomes a `Converted`. Otherwise, `from_config` would create
    # unconverted attention layers. The configs of functional and Sequential models contain the converted layers.
    creators = [
        x
        for x in keras_private.flatten_layers(layer)
        if x not in options
        and type(x) not in (keras.Sequential, _functional_class())
        and any(each in options for each in keras_private.flatten_layers(x))
    ]
    # A layer that another layer creates may have no config.
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
        # Every layer stores its own options, because Keras may rebuild a layer without the model.
        attentions = [options.get(x) for x in inner_attentions[converted]]
        # Keras's `__setattr__` would wrap and track these dictionaries.
        object.__setattr__(converted, "_original", original)
        object.__setattr__(converted, "_conversion", {**conversion, "attentions": attentions})


def _convert_attention(layer, conversion, seed, name, kl_weight=None):
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
            # Files of earlier versions lack this option.
            drawing_layer.query_chunk_size = conversion.get("query_chunk_size")
        claim(drawing_layer, "prior", drawing_layer.alignment_prior)
    if drawing_layer is not layer and drawing_layer.reads_keys:
        store_keys(layer, drawing_layer)
    if drawing_layer.built:
        _build_prior(drawing_layer)
    else:
        # The enclosing layer will call `build`.
        layer.build = _with_prior(layer, layer.build)


def _build_prior(layer):
    if layer.alignment_prior is None:
        return
    with keras_private.unlocked(layer), keras.name_scope(layer.name, caller=layer):
        # The last input of `keras.layers.Attention` is the key, or the value if there is no key.
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
    x = keras.Input((1,), name="x")
    return type(keras.Model(x, keras.layers.Identity(name="y")(x), name="identity"))


@functools.cache
def _class_of(original, mixin=None, redirects=False):
    """Return the converted subclass of `original`. `redirects`: whether to redirect calls of Keras's softmax."""
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

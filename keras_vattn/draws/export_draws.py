"""Export a model as a SavedModel that samples predictions and returns their mean and uncertainty."""

import functools
import inspect
import re

import keras
import tensorflow as tf
from keras import tree, utils

from keras_vattn.draws.sampler import Sampler
from keras_vattn.metrics.in_graph import predictive_statistics
from keras_vattn.support.validation import one_of, positive_integer, positive_number

OUTPUTS = ("probabilities", "logits", "values")
_ERROR = 'the outputs are not probabilities: export with outputs="logits" or outputs="values"'
# Keras's default names of inputs. Their numbers differ between processes.
_AUTOMATIC = re.compile(r"(keras_tensor|input_layer)(_\d+)?")


def export_draws(
    model,
    path,
    num_samples=20,
    outputs="probabilities",
    temperature=1.0,
    dropout=False,
    posterior=True,
    max_rows=256,
    input_signature=None,
    preprocessor=None,
):
    """Write a SavedModel that samples predictions and returns their mean and uncertainty.

    A draw is one pass through the model with random noise. The signature `serving_default` takes the inputs of the
    model by name, and `seed`, an int32 scalar. To load the SavedModel, you need TensorFlow but not this library. The
    same batch and seed give the same results. The results for an example also depend on the other examples of its
    batch.

    For a KerasHub task with a tokenizer, the input is a vector of strings, `texts`. The graph contains the
    preprocessor, so import tensorflow_text before you load the SavedModel. To export the task without the preprocessor,
    export `keras.Model(task.inputs, task.outputs)`.

    Args:
        model: A built `keras.Model` with one output.
        path: Folder of the SavedModel.
        num_samples: Number of draws per request. Defaults to 20.
        outputs: Type of the model's output: `"probabilities"` or `"logits"` of C classes (the last axis), or
            `"values"`. A KerasHub task without an activation returns logits. For probabilities and logits, the
            signature returns `mean`, the mean probabilities (B, ..., C), and the `entropy` and `mutual_information` of
            `keras_vattn.metrics` in nats, (B, ...). For values, it returns `mean` and `sd`, the standard deviation over
            draws, (B, ...). The export and each request check that probabilities sum to 1. Defaults to
            `"probabilities"`.
        temperature: Number by which the logits are divided, for instance from `keras_vattn.metrics.fit_temperature`.
            Only for `outputs="logits"`. Defaults to 1.0.
        dropout: Whether layers apply dropout, as in `keras_vattn.posterior_predictive`. Defaults to `False`.
        posterior: Whether stochastic layers sample, instead of using their mean. Defaults to `True`.
        max_rows: Maximum number of rows (examples times draws) in one call of the model. A call computes at least one
            draw of the whole batch. Defaults to 256.
        input_signature: `tf.TensorSpec`s with names, in the structure of the inputs of the model or its preprocessor.
            It is required for a subclass of `keras.Model`, and for a preprocessor that is a function. It can rename
            inputs. For pairs of texts, pass a tuple. Defaults to the inputs of the model. A single unnamed input gets
            the name `inputs`.
        preprocessor: Layer or function that computes the inputs of the model, such as a KerasHub preprocessor for a
            model that is not a task. Defaults to the preprocessor of a task.

    Raises:
        ValueError: If the model is not built, or has no random layer. If an input has no unique name. If `outputs` is
            unknown, or does not match the model. If `temperature` is set without logits.

    Example:

    >>> import os, tempfile
    >>> import tensorflow as tf
    >>> inputs = keras.Input((3,), name="measured")
    >>> latent = keras_vattn.GaussianLatent(4)(inputs)
    >>> model = keras.Model(inputs, keras.layers.Softmax()(latent))
    >>> path = os.path.join(tempfile.mkdtemp(), "draws")
    >>> keras_vattn.export_draws(model, path)
    >>> predict = tf.saved_model.load(path).signatures["serving_default"]
    >>> results = predict(measured=tf.ones((2, 3)), seed=tf.constant(1))
    >>> {name: tuple(results[name].shape) for name in sorted(results)}
    {'entropy': (2,), 'mean': (2, 4), 'mutual_information': (2,)}
    """
    positive_integer("num_samples", num_samples)
    positive_integer("max_rows", max_rows)
    one_of("outputs", outputs, OUTPUTS)
    if positive_number("temperature", temperature) != 1.0 and outputs != "logits":
        raise ValueError(f'`temperature` requires logits. Received: temperature={temperature}, outputs="{outputs}"')
    if not model.built:
        raise ValueError(f"`export_draws` needs a built model: call the model once. Received: {model.name}.built=False")
    # Fail before tracing if a functional model has several outputs.
    _single_output(getattr(model, "outputs", None) or [None])
    preprocessor = getattr(model, "preprocessor", None) if preprocessor is None else preprocessor
    structure, specs = _signature(model, preprocessor, input_signature)
    sampler = Sampler(model, dropout, posterior)

    def predict(inputs):
        result = _single_output(tree.flatten(model(inputs, training=False)))
        return tf.nn.softmax(tf.cast(result, tf.float32) / temperature) if outputs == "logits" else result

    def serve(seed, **named_inputs):
        inputs = tree.pack_sequence_as(structure, [named_inputs[name] for name in specs])
        if preprocessor is not None:
            inputs = utils.unpack_x_y_sample_weight(preprocessor(inputs))[0]
        draws = sampler.draws(predict, inputs, num_samples, seed, max_rows)
        if outputs == "values":
            return {"mean": tf.reduce_mean(draws, axis=0), "sd": tf.math.reduce_std(draws, axis=0)}
        unit_sum = tf.abs(tf.reduce_sum(draws, axis=-1) - 1.0) < 1e-2
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(unit_sum & (draws[..., 0] >= 0.0)), [_ERROR])]):
            return predictive_statistics(tf.identity(draws))

    function = tf.function(serve, autograph=False).get_concrete_function(seed=tf.TensorSpec((), tf.int32), **specs)
    if outputs == "probabilities":
        _check_probabilities(function, specs)
    module = tf.Module()
    module.variables_of_graph, module.resources = function.variables, _resources(model, preprocessor)
    tf.saved_model.save(module, str(path), signatures=function)


def _resources(model, preprocessor):
    """Return the lookup tables and asset files that a model and a preprocessor use.

    TensorFlow does not track objects that only functions, methods or `functools.partial` objects refer to.
    """
    resources = tf.saved_model.experimental.TrackableResource, tf.saved_model.Asset
    sources, pending = {id(model): model}, [preprocessor]
    while pending:
        source = pending.pop()
        if id(source) not in sources:
            sources[id(source)] = source
            pending += _referenced_objects(source)
    root = tf.Module()
    root.roots = [x for x in sources.values() if isinstance(x, (keras.layers.Layer, tf.Module, *resources))]
    return [x for x in tf.train.TrackableView(root).descendants() if isinstance(x, resources)]


def _referenced_objects(function):
    """Return the objects that a function references, except functions of other modules."""
    if isinstance(function, functools.partial):
        return [function.func, *function.args, *function.keywords.values()]
    if inspect.ismethod(function):
        return [function.__self__, function.__func__]
    if not inspect.isfunction(function):
        return []
    names = inspect.getclosurevars(function)
    objects = [*names.nonlocals.values(), *names.globals.values()]
    return [x for x in objects if not inspect.isfunction(x) or x.__module__ == function.__module__]


def _check_probabilities(function, specs):
    """Raise ValueError if the outputs for one row of ones are not probabilities."""
    ones = {}
    for name, spec in specs.items():
        shape = [size or 1 for size in spec.shape]
        ones[name] = tf.fill(shape, "1") if spec.dtype == tf.string else tf.ones(shape, spec.dtype)
    try:
        function(seed=tf.constant(0), **ones)
    except tf.errors.OpError as error:
        # A model may reject the row of ones, so ignore other errors. Compare no quotes, which TensorFlow escapes.
        if _ERROR.partition(":")[0] in str(error):
            raise ValueError(f'{_ERROR}. Received: outputs="probabilities"') from None


def _single_output(outputs):
    if len(outputs) != 1:
        raise ValueError(
            "`export_draws` needs a model with one output: export `keras.Model(model.inputs, output)`. "
            f"Received: {len(outputs)} outputs"
        )
    return outputs[0]


def _signature(model, preprocessor, structure):
    """Return the structure of the inputs, and a dictionary that maps input names to `tf.TensorSpec`s."""
    if structure is None:
        if getattr(preprocessor, "tokenizer", None) is not None:
            structure = tf.TensorSpec([None], tf.string, "texts")
        elif preprocessor is getattr(model, "preprocessor", None) or isinstance(preprocessor, keras.Layer):
            # A `Sequential` has no `input`; its `inputs` is a list of one tensor.
            structure = getattr(model, "input", None)
            structure = (getattr(model, "inputs", None) or [None])[0] if structure is None else structure
    if structure is None:
        raise ValueError(
            "The inputs of a subclass of keras.Model, and of a preprocessor function, are unknown: pass "
            '`input_signature`, such as tf.TensorSpec((None, 3), name="inputs"). '
            f"Received: model={model}, preprocessor={preprocessor}, input_signature=None"
        )
    leaves = tree.flatten_with_path(structure)
    names = [path[-1] if path and isinstance(path[-1], str) else leaf.name for path, leaf in leaves]
    is_automatic = [name is None or _AUTOMATIC.fullmatch(name) is not None for name in names]
    if len(names) == 1 and is_automatic[0]:
        names, is_automatic = ["inputs"], []
    if any(is_automatic) or len({*names, "seed"}) <= len(names) or not all(map(str.isidentifier, names)):
        raise ValueError(
            'Every input needs a unique name that is a Python identifier other than "seed". Set keras.Input(..., '
            f"name=...) or pass `input_signature`. Received: inputs named {names}"
        )
    specs = [tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype) for _, leaf in leaves]
    return structure, dict(zip(names, specs, strict=True))

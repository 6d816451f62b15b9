"""Split model inputs into batches. The inputs may have any type that `keras.Model.predict` accepts."""

import keras
import numpy as np
import tensorflow as tf
from keras import config, tree, utils


def input_batches(model, inputs, batch_size):
    """Yield each batch of a model's inputs with its structure of `tf.TensorSpec`s.

    In a spec, the batch axis has size `None`. So does an axis whose size differed between the batches so far.

    Args:
        model: A `keras.Model` or layer.
        inputs: As in `posterior_predictive`.
        batch_size: Number of examples per batch, if the inputs are arrays.
    """
    if isinstance(inputs, tf.data.Dataset):
        yield from _dataset_batches(_preprocessed(model, inputs))
    elif isinstance(inputs, keras.utils.PyDataset):
        if inputs.num_batches is None:
            raise ValueError(
                "`inputs` must be finite: pass a generator over a limited number of batches of this PyDataset. "
                f"Received: {type(inputs).__name__}.num_batches=None"
            )
        yield from _iterator_batches(model, (inputs[i] for i in range(inputs.num_batches)))
    elif hasattr(inputs, "__next__"):
        yield from _iterator_batches(model, inputs)
    else:
        yield from _array_batches(_arrays(_preprocessed(model, inputs)), batch_size)


def flat_tensors(inputs):
    """Return the tensors of a structure as a list."""
    return [tf.convert_to_tensor(x) for x in tf.nest.flatten(inputs, expand_composites=True)]


def repeated(inputs, count):
    """Tile each tensor (B, ...) of a structure `count` times along the first axis; return tensors (count * B, ...)."""
    return tree.map_structure(lambda x: tf.tile(x, [count, *[1] * (len(x.shape) - 1)]), inputs)


def _dataset_batches(dataset):
    spec = tree.map_structure(_any_rows, utils.unpack_x_y_sample_weight(dataset.element_spec)[0])
    options = tf.data.Options()
    # Autotuning can double the time that a short dataset takes.
    options.autotune.enabled = False
    for batch in dataset.with_options(options):
        yield utils.unpack_x_y_sample_weight(batch)[0], spec


def _iterator_batches(model, iterator):
    spec = None
    for batch in iterator:
        arrays = _arrays(_preprocessed(model, utils.unpack_x_y_sample_weight(batch)[0]))
        batch_spec = tree.map_structure(_array_spec, arrays)
        spec = batch_spec if spec is None else tree.map_structure(_common_spec, spec, batch_spec)
        yield arrays, spec


def _array_batches(arrays, batch_size):
    shapes = [x.shape for x in tree.flatten(arrays)]
    lengths = {shape[0] if shape else None for shape in shapes}
    if lengths == {0}:
        raise ValueError(f"`inputs` must contain at least one example. Received: arrays of shapes {shapes}")
    if len(lengths) != 1 or None in lengths:
        raise ValueError(
            "`inputs` must be arrays of equal length along the first axis. If they share no first axis (a graph, for "
            f"example), pass a tf.data.Dataset that yields complete inputs, and set max_rows=1. Received: {shapes}"
        )
    spec = tree.map_structure(_array_spec, arrays)
    for start in range(0, *lengths, batch_size):
        yield tree.map_structure(lambda x: x[start : start + batch_size], arrays), spec  # noqa: B023


def _preprocessed(model, inputs):
    """Return the inputs of the model. A KerasHub task preprocesses strings."""
    is_dataset = isinstance(inputs, tf.data.Dataset)
    leaves = tree.flatten(utils.unpack_x_y_sample_weight(inputs.element_spec)[0] if is_dataset else inputs)
    has_text = any(isinstance(x, (str, bytes)) for x in leaves)
    has_preprocessor = getattr(model, "preprocessor", None) is not None and hasattr(model, "preprocess_samples")
    if has_text and (isinstance(inputs, (str, bytes)) or not has_preprocessor):
        names = [x.name for x in getattr(model, "inputs", None) or ()]
        raise ValueError(
            "Only a KerasHub task with a preprocessor accepts a list of strings. For other models, pass preprocessed "
            "texts, or `np.array(texts)` if the model itself reads strings. Received: strings, "
            f"model={model}{', with the inputs ' if names else ''}{', '.join(names)}"
        )
    has_text = has_text or tf.string in {tf.as_dtype(x.dtype) for x in leaves if hasattr(x, "dtype")}
    if not (has_preprocessor and has_text):
        return inputs
    if is_dataset:
        return inputs.map(model.preprocess_samples, num_parallel_calls=tf.data.AUTOTUNE)
    return utils.unpack_x_y_sample_weight(model.preprocess_samples(inputs))[0]


def _arrays(inputs):
    leaves = tree.flatten(inputs)
    other_types = {type(x).__name__ for x in leaves if not hasattr(x, "__array__")}
    if other_types or not leaves:
        raise ValueError(
            "`inputs` must be arrays (convert nested lists with `np.array(inputs)`), a list or dictionary of arrays, "
            "a tf.data.Dataset, a keras.utils.PyDataset or a generator of batches. "
            f"Received: a {type(inputs).__name__}{' of ' * bool(other_types)}{', '.join(sorted(other_types))}"
        )
    return tree.map_structure(_as_array, inputs)


def _as_array(x):
    x = np.asarray(x)
    # `predict` casts floats in the same way.
    return x.astype(config.floatx()) if np.issubdtype(x.dtype, np.floating) else x


def _any_rows(spec):
    if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
        return spec
    return tf.TensorSpec((None, *spec.shape[1:]), spec.dtype)


def _array_spec(array):
    return _any_rows(tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)))


def _common_spec(spec, other):
    return spec.most_specific_common_supertype([other]) or other

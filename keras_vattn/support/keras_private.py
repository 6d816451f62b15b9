"""Access private names of Keras and TensorFlow. Other modules must not use private names.

Three classes may override a private method of Keras: `StochasticLayer` overrides `_get_own_losses`, `MultiHeadMixin`
overrides `_compute_attention`, and `fast.LSTM` overrides the undocumented `inner_loop`.
"""

import contextlib
import inspect
import warnings

import keras
import tensorflow as tf

try:
    from keras.src.backend.common import global_state
except ImportError:
    global_state = None
try:
    from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
except ImportError:
    get_keras_mask = set_keras_mask = None
try:
    from keras.src.saving.object_registration import GLOBAL_CUSTOM_NAMES
except ImportError:
    GLOBAL_CUSTOM_NAMES = None
try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
except ImportError:
    GraphOrParentsInXlaContext = None
try:
    from tensorflow.python.framework.ops import gradient_registry
except ImportError:
    gradient_registry = None

# Private name: (feature that needs the name, what happens without the name).
FEATURES = {
    "_flatten_layers": ("sampling, KL losses, conversion and quantization", "they raise an error"),
    "_tracker": ("`to_bayesian`, which adds layers to built layers", "it raises an error"),
    "_get_own_losses": ("the KL in the log", "no KL is logged"),
    "_compute_attention": ("`MultiHeadAttention` and `MultiHeadMixin`", "they raise an error"),
    "_gate_dense": ("`MultiHeadAttention(use_gate=True)`", "it raises an error"),
    "_calculate_scores": ("`to_bayesian` of `keras.layers.Attention`", "it rejects these layers"),
    "inner_loop": ("`fast.LSTM`", "it runs the loop of Keras"),
    "_maybe_symbolic_build": ("`distribute.prepare`", "it raises an error"),
    "_all_reduce_sum_gradients": ("`distribute.prepare`", "it raises an error"),
    "get_keras_mask": ("masks that Keras attaches to tensors", "these masks are ignored: pass masks as arguments"),
    "GLOBAL_CUSTOM_NAMES": ("`to_bayesian`, whose classes are saved under one name", "it raises an error"),
    "use_legacy_config": ("the warning about a `.h5` file", "there is no warning"),
    "GraphOrParentsInXlaContext": ("causal query chunks, which skip masked keys outside XLA", "graphs skip no keys"),
    "_cardinality": ("`distribute.shard` of a finite dataset", "`fit` needs `steps_per_epoch`"),
    "gradient_registry": ("freeing gradients", "a process keeps the graphs of all models that it has trained"),
}


def lacks(name, owner):
    """Return the error message for a private name that is missing."""
    feature, consequence = FEATURES.get(name, ("keras_vattn", "it raises an error"))
    return (
        f"This version lacks `{name}`, needed by {feature}. Without it, {consequence}. Install keras>=3.12,<4 and "
        f"tensorflow>=2.19,<2.22. Received: keras {keras.__version__}, tensorflow {tf.__version__}, {owner}"
    )


def read(owner, name):
    """Return a private attribute. If it is missing, raise AttributeError with an explanation."""
    try:
        return getattr(owner, name)
    except AttributeError as error:
        kind = owner if isinstance(owner, type) else type(owner)
        raise AttributeError(lacks(name, kind.__name__)) from error


def available(value, name, owner):
    """Return whether a private name exists, that is, `value` is not `None`. Warn if the name is missing."""
    if value is None:
        warnings.warn(lacks(name, owner), stacklevel=3)
    return value is not None


def save_as(new_class, registered_class):
    """Make Keras save instances of `new_class` under the registered name of `registered_class`."""
    if GLOBAL_CUSTOM_NAMES is None:
        raise AttributeError(lacks("GLOBAL_CUSTOM_NAMES", "keras.src.saving.object_registration"))
    GLOBAL_CUSTOM_NAMES[new_class] = keras.saving.get_registered_name(registered_class)


def mask_of(x):
    """Return the mask that Keras attached to a tensor, or `None`."""
    module = "keras.src.backend.common.masking"
    return get_keras_mask(x) if available(get_keras_mask, "get_keras_mask", module) else None


def set_mask(x, mask):
    """Attach a Keras mask to a tensor."""
    if set_keras_mask is not None:
        set_keras_mask(x, mask)


def bind_call(call, arguments, options):
    """Return a dictionary of the arguments of `call`, including default values.

    If an argument `x_mask` is `None`, the dictionary contains the Keras mask of the argument `x` instead. Pass
    `partial(Class.call, self)` as `call` if a subclass may override `call`.
    """
    bound = inspect.signature(call).bind(*arguments, **options)
    bound.apply_defaults()
    call_arguments = dict(bound.arguments)
    for name, x in bound.arguments.items():
        mask = f"{name}_mask"
        if mask in call_arguments and call_arguments[mask] is None:
            call_arguments[mask] = mask_of(x)
    return call_arguments


def copy_masked(x):
    """Return a copy of a tensor and its Keras mask. Return symbolic or unmasked tensors and other objects unchanged."""
    mask = mask_of(x)
    if mask is None or isinstance(x, keras.KerasTensor):
        return x
    copy = tf.identity(x)
    set_mask(copy, mask)
    return copy


def flatten_layers(layer):
    """Return a layer and all nested layers, without duplicates. Every layer precedes its sublayers."""
    flat_layers = {}

    def visit(layer):
        if id(layer) not in flat_layers:
            flat_layers[id(layer)] = layer
            # With `recursive=True`, Keras would reverse the order of layers.
            for inside in read(layer, "_flatten_layers")(include_self=False, recursive=False):
                visit(inside)

    visit(layer)
    return list(flat_layers.values())


@contextlib.contextmanager
def unlocked(layer):
    """Allow a built layer to receive new weights and sublayers inside a `with` block."""
    tracker = read(layer, "_tracker")
    tracker.unlock()
    try:
        yield
    finally:
        if layer.built:
            tracker.lock()


def own_losses(layer):
    """Return the losses that a layer added itself, without the losses of its sublayers."""
    method = getattr(keras.layers.Layer, "_get_own_losses", None)
    return method(layer) if available(method, "_get_own_losses", "keras.layers.Layer") else []


def require_multi_head():
    """Raise AttributeError if `keras.layers.MultiHeadAttention` lacks `_compute_attention`."""
    read(keras.layers.MultiHeadAttention, "_compute_attention")


def gate_of(layer):
    """Return the gate layer of a `keras.layers.MultiHeadAttention`."""
    return read(layer, "_gate_dense")


def dropout_of(layer):
    """Return the dropout layer of a `keras.layers.MultiHeadAttention`."""
    return next(x for x in flatten_layers(layer) if isinstance(x, keras.layers.Dropout))


def computes_weights_as_keras(layer_class):
    """Return whether a subclass of `keras.layers.MultiHeadAttention` uses Keras's `_compute_attention`."""
    base = keras.layers.MultiHeadAttention
    if not hasattr(base, "_compute_attention"):
        return False
    inherits = layer_class._compute_attention is base._compute_attention
    return inherits and "_compute_attention" in inspect.unwrap(layer_class.call).__code__.co_names


def changes_scores_alone(layer_class):
    """Return whether a subclass of `keras.layers.Attention` changes nothing but the attention scores.

    The subclass may override `_calculate_scores`, but neither `call` nor another private method.
    """
    base = keras.layers.Attention
    if not hasattr(base, "_calculate_scores"):
        return False
    names = [name for name, x in vars(base).items() if inspect.isfunction(x) and name.startswith("_")]
    names = {"call", *(name for name in names if not name.startswith("__"))} - {"_calculate_scores"}
    return all(getattr(layer_class, name) is getattr(base, name) for name in names)


def writes_legacy_file():
    """Return whether this thread is writing or reading a legacy `.h5` file of a model."""
    return global_state is not None and bool(global_state.get_global_attribute("use_legacy_config"))


def symbolic_build(model):
    """Return the method that `fit` calls to build a model from a batch or an iterator of batches."""
    return read(model, "_maybe_symbolic_build")


def set_symbolic_build(model, method):
    """Replace the method that `fit` calls to build a model."""
    model._maybe_symbolic_build = method


def skip_gradient_sum(optimizer):
    """Stop an optimizer from summing gradients over replicas. The caller must sum the gradients."""
    read(optimizer, "_all_reduce_sum_gradients")
    optimizer._all_reduce_sum_gradients = list


def set_cardinality(dataset, num_batches):
    """Set the number of batches of a distributed dataset, which Keras reads as the number of steps."""
    if available(getattr(dataset, "_cardinality", None), "_cardinality", type(dataset).__name__):
        dataset._cardinality = num_batches


def take_gradient(operation):
    """Remove the gradient function of a `tf.custom_gradient` operation from TensorFlow's registry.

    Returns:
        The name and the gradient function, or `None` if the registry has no gradient for the operation.
    """
    entries = getattr(gradient_registry, "_registry", None)
    if not available(entries, "gradient_registry", "tensorflow.python.framework.ops"):
        return None
    name = operation.get_attr("_gradient_op_type").decode()
    if name not in entries:
        return None
    gradient = gradient_registry.lookup(name)
    del entries[name]
    return name, gradient


def forget_gradient(name):
    """Remove the gradient function with this name from TensorFlow's registry."""
    gradient_registry._registry.pop(name, None)


def in_xla():
    """Return whether XLA will compile the current graph, or `True` if this is unknown."""
    if tf.executing_eagerly():
        return False
    return GraphOrParentsInXlaContext is None or GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())

"""What is private in Keras and read here: the one place to look at when Keras renames something.

What a subclass overrides or calls on itself stays in that class: `_get_own_losses`, `_trainable_variables` and
`_non_trainable_variables` of a layer, and what `FunctionByMarks` overrides in it, its `_setattr_hook`; of
`keras.layers.MultiHeadAttention` `_compute_attention`, `_compute_attention_mask`, `_inverse_sqrt_key_dim` and, from
Keras 3.14 on, `_gate_dense`; `inner_loop` of `keras.layers.LSTM`; `_clip_gradients`, `_get_variable_index` and, in
`distribute.prepare`, `_all_reduce_sum_gradients` of an optimizer; there too `_maybe_symbolic_build` of a model; and
`_run_through_graph` of a functional model, which `SharedPrefix` overrides.
Their names stand in `OVERRIDDEN`, for the test that tells of a rename.
"""

import contextlib
import inspect

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.common.variables import AutocastScope
from keras.src.models.functional import Functional
from keras.src.saving import object_registration
from keras.src.saving.keras_saveable import KerasSaveable

MASK = "_keras_mask"
RUN = "_run_through_graph"
OVERRIDDEN = {
    keras.layers.Layer: ("_get_own_losses", "_trainable_variables", "_non_trainable_variables", "_setattr_hook"),
    keras.layers.MultiHeadAttention: (
        "_compute_attention",
        "_compute_attention_mask",
        "_inverse_sqrt_key_dim",
        "_gate_dense",
    ),
    keras.layers.LSTM: ("inner_loop",),
    keras.Model: ("_maybe_symbolic_build",),
    keras.optimizers.Optimizer: ("_clip_gradients", "_get_variable_index", "_all_reduce_sum_gradients"),
    Functional: (RUN,),
}


def save_as(one, other):
    """Save instances of a class under the name of a registered one, which loads them."""
    object_registration.GLOBAL_CUSTOM_NAMES[one] = keras.saving.get_registered_name(other)


def mask_of(x):
    """Return the mask that Keras keeps on a tensor, `None` where there is none."""
    return getattr(x, MASK, None)


def bind_call(call, arguments, options):
    """Return the arguments of a call by name, with the defaults of those that are not given, and Keras's masks.

    A class binds to its own `call`, `partial(Class.call, self)`, not to that of a subclass, which may take others.
    """
    bound = inspect.signature(call).bind(*arguments, **options)
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name, x in bound.arguments.items():
        mask = f"{name}_mask"
        if mask in given and given[mask] is None:
            given[mask] = mask_of(x)
    return given


def set_mask(x, mask):
    """Put a mask on a tensor, for the layer that it goes into next."""
    setattr(x, MASK, mask)


def copy_masked(x):
    """Return a copy of a masked tensor with its mask; anything else is returned unchanged."""
    mask = mask_of(x)
    if mask is None or isinstance(x, keras.KerasTensor):
        return x
    copy = tf.identity(x)
    set_mask(copy, mask)
    return copy


def flatten_layers(layer):
    """Return a layer and all layers inside it, however deep, each once, in the order of the model: a layer stands
    before what is inside it, and that before the next layer."""
    found = {}

    def visit(layer):
        if id(layer) not in found:
            found[id(layer)] = layer
            # Keras's own order of what is deeper turns with every level.
            for inside in read(layer, "_flatten_layers")(include_self=False, recursive=False):
                visit(inside)

    visit(layer)
    return list(found.values())


def seed_generators(layer):
    """Return the seed generators that are attributes of this layer itself, not of those inside it."""
    return read(layer, "_seed_generators")


@contextlib.contextmanager
def unlocked(layer):
    """Within, a layer takes weights and layers though it is built; one that is not takes them afterwards too."""
    tracker = read(layer, "_tracker")
    tracker.unlock()
    try:
        yield
    finally:
        if layer.built:
            read(layer, "_lock_state")()


def graph_of(layer):
    """Return the functional model that a layer is or a `Sequential` holds, `None` where it has a `call` of its own."""
    if isinstance(layer, keras.Sequential) and type(layer).call is keras.Sequential.call:
        layer = read(layer, "_functional")
    return layer if isinstance(layer, Functional) and type(layer).call is Functional.call else None


def nodes_of(graph):
    """Return the calls of operations of a functional model, in the order in which it makes them."""
    by_depth = read(graph, "_nodes_by_depth")
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in nodes if node.operation and not node.is_input]


def called_model():
    """Return the model or layer whose call this thread is in, the outermost, `None` outside of any."""
    context = global_state.get_global_attribute("current_call_ctx")
    return None if context is None else context.entry_layer


def state():
    """Return what Keras knows of the call at hand in this thread: scopes, dtypes, the phase of training."""
    # The module's own: `clear_session` puts another one in its place.
    return dict(vars(global_state.GLOBAL_STATE_TRACKER))


@contextlib.contextmanager
def in_state(state):
    """Within, Keras knows what `state()` returned."""
    here = vars(global_state.GLOBAL_STATE_TRACKER)
    outer = dict(here)
    here.clear()
    here.update(state)
    try:
        yield
    finally:
        here.clear()
        here.update(outer)


def writes_legacy_file():
    """Return whether this thread is writing, or reading, a legacy `.h5` file of a whole model."""
    return bool(global_state.get_global_attribute("use_legacy_config"))


def value_of(variable):
    """Return the value of a variable as a tensor of its own dtype, whatever a layer computes in."""
    with AutocastScope(None):
        return tf.convert_to_tensor(variable.value)


def in_xla():
    """Return whether XLA compiles the operations that are created here; `True` where TensorFlow does not say.

    Causal query chunks skip hidden keys outside of XLA, whose estimates of a KL need known shapes. Without this name
    they skip none.
    """
    if tf.executing_eagerly():
        return False
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:
        return True
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def read(layer, name):
    """Return a private attribute of a layer; where it is gone, the AttributeError says who needs it."""
    try:
        return getattr(layer, name)
    except AttributeError as error:
        raise AttributeError(
            f"keras_vattn reads `Layer.{name}`, which this version of Keras lacks: install keras>=3.12,<3.16. "
            f"Received: keras {keras.__version__}, layer={type(layer).__name__}"
        ) from error


__all__ = [
    "MASK",
    "OVERRIDDEN",
    "RUN",
    "Functional",
    "KerasSaveable",
    "called_model",
    "copy_masked",
    "flatten_layers",
    "graph_of",
    "in_state",
    "in_xla",
    "mask_of",
    "nodes_of",
    "read",
    "seed_generators",
    "set_mask",
    "state",
    "unlocked",
    "value_of",
    "writes_legacy_file",
]

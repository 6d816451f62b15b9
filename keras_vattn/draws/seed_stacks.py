"""Whether what a layer draws is right with a stack of seeds: a claim of its class, `takes_seed_stacks`."""

import inspect

from keras import layers

from keras_vattn.support import keras_private

KERAS_DROPOUTS = (layers.Dropout, layers.GaussianDropout, layers.AlphaDropout)
# What a subclass of a class with the claim may define without losing it: how it is made, described and saved.
HARMLESS = {
    "__init__",
    "__repr__",
    "build",
    "compute_mask",
    "compute_output_shape",
    "compute_output_spec",
    "from_config",
    "get_config",
    "initial_kernel",
}


def takes_stacks(layer, drops):
    """Return whether a stack of seeds gives every part of the batch the very noise that its seed alone would give.

    Args:
        layer: A layer.
        drops: Whether it drops.
    """
    if not keras_private.seed_generators(layer):
        return True
    if is_of_keras(layer):
        return not drops or isinstance(layer, KERAS_DROPOUTS)
    return claims(layer) and all(claims(part) for part in parts(layer))


def is_of_keras(layer):
    """Return whether this is a layer of Keras itself; those draw in training only."""
    return type(layer).__module__.startswith("keras.")


def parts(layer):
    """Return what a layer holds whose class says anything of stacks: alignments, contexts, attentions."""
    held = [*vars(layer).values(), getattr(layer, "alignment", None), getattr(layer, "context", None)]
    return [x for x in held if hasattr(type(x), "takes_seed_stacks")]


def claims(x):
    """Return whether the class of a layer or part claims that it takes stacks of seeds.

    The claim is one about the code of the class that makes it: a subclass that overrides any of its methods, but for
    those in `HARMLESS`, has to make it again.
    """
    ancestry = type(x).__mro__
    claimant = next((index for index, one in enumerate(ancestry) if "takes_seed_stacks" in vars(one)), None)
    if claimant is None or not ancestry[claimant].takes_seed_stacks:
        return False
    methods = {name for one in ancestry[claimant:] for name, value in vars(one).items() if inspect.isroutine(value)}
    return not any(methods & set(vars(one)) - HARMLESS for one in ancestry[:claimant])

"""The layers inside a layer: an attention's score, context and prior, a decoder's attention."""

import weakref

import keras


def claim(owner, name, sublayer):
    """Note that the part is the owner's; ValueError if it is another layer's already.

    Two owners of one part can be saved but not loaded: each comes back with a part of its own.

    Args:
        owner: A layer.
        name: The word for the part in the error message.
        sublayer: A layer inside it, or `None`.
    """
    if sublayer is None:
        return
    previous = getattr(sublayer, "claimed_by", lambda: None)()
    if previous is not None and previous is not owner:
        raise ValueError(
            f"This {name} belongs to another layer already: give each its own. "
            f"Received: {name}={sublayer.name}, of {previous.name} and {owner.name}"
        )
    sublayer.claimed_by = weakref.ref(owner)


def require_dtype(owner, name, sublayer):
    """Raise ValueError unless a sublayer, or `None`, computes in the dtype of its owner.

    Args:
        owner: A layer.
        name: The word for the part in the error message.
        sublayer: A layer inside it.
    """
    if sublayer is not None and sublayer.compute_dtype != owner.compute_dtype:
        raise ValueError(
            f"{type(owner).__name__} and its {name} must compute in one dtype: give both the same `dtype`. "
            f"Received: {name}.compute_dtype={sublayer.compute_dtype}, dtype={owner.compute_dtype}"
        )


def serialize_sublayer(sublayer):
    """Return the configuration of a part, without the shapes that it was built for: its owner builds it."""
    if sublayer is None:
        return None
    config = keras.saving.serialize_keras_object(sublayer)
    config.pop("build_config", None)
    return config


def path_of(layer):
    """Return where in the model a layer is; its name where the model holds it and has not built it."""
    return layer.path or layer.name

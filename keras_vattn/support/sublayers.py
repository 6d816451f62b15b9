"""Check, record and serialize sublayers, such as the score of an attention layer or the attention of a decoder."""

import weakref

import keras


def claim(owner, name, sublayer):
    """Record the owner of a sublayer. Raise ValueError if the sublayer already belongs to another layer.

    If two layers shared a sublayer, saving and loading would replace the sublayer by two copies.

    Args:
        owner: A layer.
        name: Name of the sublayer in the error message.
        sublayer: A layer inside the owner, or `None`.
    """
    if sublayer is None:
        return
    previous = getattr(sublayer, "claimed_by", lambda: None)()
    if previous is not None and previous is not owner:
        raise ValueError(
            f"This {name} already belongs to another layer, {previous.name}: create a new {name} for {owner.name}. "
            f"Received: {name}={sublayer.name}"
        )
    sublayer.claimed_by = weakref.ref(owner)


def require_dtype(owner, name, sublayer):
    """Raise ValueError if a sublayer and its owner compute in different dtypes. The sublayer may be `None`.

    Args:
        owner: A layer.
        name: Name of the sublayer in the error message.
        sublayer: A layer inside the owner.
    """
    if sublayer is not None and sublayer.compute_dtype != owner.compute_dtype:
        raise ValueError(
            f"{type(owner).__name__} and its {name} must have the same compute dtype: give both the same `dtype`. "
            f"Received: {name}.compute_dtype={sublayer.compute_dtype}, dtype={owner.compute_dtype}"
        )


def serialize_sublayer(sublayer):
    """Return the config of a sublayer, without the build config: the owner builds the sublayer."""
    if sublayer is None:
        return None
    config = keras.saving.serialize_keras_object(sublayer)
    config.pop("build_config", None)
    return config


def path_of(layer):
    """Return the path of a layer in its model, or its name if the layer is not built."""
    return layer.path or layer.name

"""Create objects from names, classes or configs, as Keras does for activations."""

import inspect

import keras


def resolve(identifier, classes, base_class, kind, **kwargs):
    """Return the instance of `base_class` that an identifier describes.

    Args:
        identifier: A name in `classes`, a class, a config dictionary, or an instance of `base_class`.
        classes: Dictionary that maps name to class.
        base_class: Required class of the result.
        kind: Name of the argument in error messages.
        **kwargs: Constructor arguments, used if the identifier is a name or a class.

    Raises:
        ValueError: If the name is unknown, or the result is not a `base_class`.
    """
    resolved = identifier
    if isinstance(identifier, dict):
        resolved = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str) and classes:
        if identifier not in classes:
            names = ", ".join(f'"{name}"' for name in classes)
            raise ValueError(f'Unknown {kind}. Expected one of {names}. Received: {kind}="{identifier}"')
        return classes[identifier](**kwargs)
    elif inspect.isclass(identifier) and issubclass(identifier, base_class):
        return identifier(**kwargs)
    if not isinstance(resolved, base_class):
        names = "".join(f'"{name}", ' for name in classes)
        raise ValueError(
            f"`{kind}` must be {names}a class, an instance or a config of {base_class.__name__}. "
            f"Received: {kind}={identifier!r}"
        )
    return resolved

"""Check that inputs have the widths that `build` received, and cast integer inputs to floats."""

import inspect

import keras
from keras import ops

from keras_vattn.support import keras_private


class FeatureInputs:
    """Mixin for layers whose weights depend on the width (the length of the last axis) of an input.

    If an input has another width than in `build`, a ValueError names the argument. Integer inputs are cast to the
    compute dtype.

    Attributes:
        feature_arguments: Names of the arguments of `call` whose last axis contains features.
        width_arguments: Names of arguments whose width determines weight shapes. Defaults to `feature_arguments`.
    """

    feature_arguments = ()

    @property
    def width_arguments(self):
        return self.feature_arguments

    def __call__(self, *arguments, **options):
        names = list(inspect.signature(self.call).parameters)[: len(arguments)]
        inputs = dict(zip(names, arguments, strict=False)) | options
        if self.built and self.weights:
            self._check_widths(inputs)
        for name in inputs.keys() & set(self.feature_arguments):
            inputs[name] = _as_floats(inputs[name], self.compute_dtype)
        arguments = *(inputs[name] for name in names), *arguments[len(names) :]
        return super().__call__(*arguments, **{name: inputs[name] for name in options})

    def _check_widths(self, inputs):
        built = super().get_build_config() or {}
        # Keras stores names of arguments only for layers with several inputs.
        built = built.get("shapes_dict", {"inputs_shape": built.get("input_shape")})
        built = {name.removesuffix("_shape"): shape for name, shape in built.items() if shape}
        shapes = {name: tuple(x.shape) for name, x in inputs.items() if getattr(x, "shape", None)}
        for each in (built, shapes):
            each.setdefault("key", each.get("value"))
        for name in self.width_arguments:
            shape, expected = shapes.get(name), built.get(name)
            if not shape or not expected or None in (shape[-1], expected[-1]) or shape[-1] == expected[-1]:
                continue
            name = "value" if name == "key" and inputs.get("key") is None else name
            raise ValueError(
                f"The layer was built for a `{name}` of width {expected[-1]}. For another width, create a new layer. "
                f"Received: {name}.shape={shape}"
            )


def _as_floats(x, dtype):
    """Return integers as floats with the same Keras mask. Return floats and symbolic inputs unchanged."""
    if not hasattr(x, "dtype") or isinstance(x, keras.KerasTensor) or not keras.backend.is_int_dtype(x.dtype):
        return x
    floats = ops.cast(x, dtype)
    keras_private.set_mask(floats, keras_private.mask_of(x))
    return floats

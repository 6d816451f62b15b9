from keras_vattn.layers.attention import Attention


class NamedAttention(Attention):
    """Base class of layers that implement the attention of one paper. A subclass fixes some arguments of
    `keras_vattn.Attention`, such as the alignment and the context, and accepts their parameters instead.

    A subclass calls `refuse_fixed` first in `__init__`. The config contains `own_arguments` but not `fixed_arguments`.
    """

    fixed_arguments = ("alignment", "context")
    own_arguments = ()

    def refuse_fixed(self, arguments):
        """Raise ValueError if `arguments` contains an argument that this class fixes."""
        for name in self.fixed_arguments:
            if name in arguments:
                raise ValueError(
                    f"{type(self).__name__} sets `{name}` itself; use keras_vattn.Attention to choose it. "
                    f"Received: {name}={arguments[name]!r}"
                )

    def get_config(self):
        config = {**super().get_config(), **{name: getattr(self, name) for name in self.own_arguments}}
        return {name: value for name, value in config.items() if name not in self.fixed_arguments}

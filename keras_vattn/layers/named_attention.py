from keras_vattn.layers.attention import Attention


class NamedAttention(Attention):
    """Base class of the attention layers of individual papers. Some arguments of `keras_vattn.Attention` are fixed, and
    the parameters of the alignment or context are arguments of the layer.

    A subclass calls `refuse_fixed` first in `__init__`. The config contains `own_arguments` but not `fixed_arguments`.
    """

    fixed_arguments = ("alignment", "context")
    own_arguments = ()

    def refuse_fixed(self, arguments):
        """Raise ValueError for an argument that this class has fixed."""
        for name in self.fixed_arguments:
            if name in arguments:
                raise ValueError(
                    f"{type(self).__name__} sets `{name}` itself; use keras_vattn.Attention to choose it. "
                    f"Received: {name}={arguments[name]!r}"
                )

    def get_config(self):
        config = {**super().get_config(), **{name: getattr(self, name) for name in self.own_arguments}}
        return {name: value for name, value in config.items() if name not in self.fixed_arguments}

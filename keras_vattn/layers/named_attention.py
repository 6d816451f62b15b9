from keras_vattn.layers.attention import Attention


class NamedAttention(Attention):
    """Base class of layers that implement the attention of one paper.

    Users of a subclass cannot pass the arguments of `keras_vattn.Attention` that are listed in `fixed_arguments`. They
    can pass the arguments in `own_arguments`, which the config contains. `__init__` calls `refuse_fixed` first.
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

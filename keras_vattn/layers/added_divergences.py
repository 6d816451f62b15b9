import dataclasses

import tensorflow as tf


@dataclasses.dataclass(eq=False)
class AddedDivergence:
    """The KL of one loss.

    Attributes:
        loss: The tensor that was added to the losses.
        total: The KL, unweighted and summed over the batch, a scalar.
        above_floor: As `total`, of the KL above its floor.
        batch_size: Number of examples.
        thread: Id of the replica's thread, `None` outside of `tf.distribute`.
        is_logged: Whether the log has it.
    """

    loss: tf.Tensor
    total: tf.Tensor
    above_floor: tf.Tensor
    batch_size: object
    thread: int | None
    is_logged: bool = False

    @property
    def is_current(self):
        """Whether the loss belongs to the graph, or the eager code, that runs now."""
        if tf.executing_eagerly():
            return tf.is_tensor(self.loss) and not tf.is_symbolic_tensor(self.loss)
        return getattr(self.loss, "graph", None) is tf.compat.v1.get_default_graph()


class AddedDivergences:
    """The KLs of the losses of a layer. Keras and TensorFlow would track a dictionary or a list."""

    def __init__(self):
        self._divergences = []

    def add(self, divergence):
        self._divergences.append(divergence)

    def prune(self, losses):
        """Drop the KLs whose losses the layer has cleared, and return the KLs of these losses."""
        identities = {id(x) for x in losses}
        self._divergences = [x for x in self._divergences if id(x.loss) in identities]
        return self._divergences

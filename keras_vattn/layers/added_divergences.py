import dataclasses

import tensorflow as tf


@dataclasses.dataclass(eq=False)
class AddedDivergence:
    """Record of a KL that a layer added with one `add_loss` call.

    Attributes:
        loss: The tensor that was passed to `add_loss`.
        total: Scalar, the unweighted KL, summed over the batch.
        above_floor: Scalar, the KL minus its floor (see `Alignment.divergence_floor`), summed over the batch.
        batch_size: Number of examples.
        thread: Id of the thread of the replica that added the KL, or `None` outside `tf.distribute`.
        is_logged: Whether the KL has been added to the log.
    """

    loss: tf.Tensor
    total: tf.Tensor
    above_floor: tf.Tensor
    batch_size: object
    thread: int | None
    is_logged: bool = False

    @property
    def is_current(self):
        """Whether the loss belongs to the current graph or, in eager code, is an eager tensor."""
        if tf.executing_eagerly():
            return tf.is_tensor(self.loss) and not tf.is_symbolic_tensor(self.loss)
        return getattr(self.loss, "graph", None) is tf.compat.v1.get_default_graph()


class AddedDivergences:
    """The `AddedDivergence` objects of a layer. Keras and TensorFlow would track a list, but not this object."""

    def __init__(self):
        self._divergences = []

    def add(self, divergence):
        self._divergences.append(divergence)

    def prune(self, losses):
        """Remove the `AddedDivergence` objects whose `loss` is not in `losses`. Return the remaining objects."""
        identities = {id(x) for x in losses}
        self._divergences = [x for x in self._divergences if id(x.loss) in identities]
        return self._divergences

"""The products of a step with what its loop does not change: found in a trace, kept, and known again in the gradient.

The author of a step writes `product(x, kernel)`; a loop says, while it has the step taken, which object answers.
"""

import contextlib
import dataclasses
import math
import threading

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient

_local = threading.local()
ANOTHER_STEP = "A step asks for the same products whenever it is taken: this one has asked for others in its trace."


def product(x, kernel):
    """Return x @ kernel, (..., D) x (D, units), or (B, n, D) x (B, D, units), whatever a loop around it does.

    What a step multiplies by a weight, or by what was made of the memory, goes through here: of rank 2 where it can,
    because the gradient of a matmul of rank 3 does not compile in a loop whose batch size is unknown, and in one place,
    which knows which gradients are sums over steps. In a step x has a row for each example. A step asks for the same
    products whenever it is taken, and for none inside of a `tf.custom_gradient` or `tf.recompute_grad` of its own.

    Example:

    >>> keras_vattn.recurrent.product(keras.ops.ones((2, 4, 3)), keras.ops.ones((3, 5))).shape
    TensorShape([2, 4, 5])
    """
    answer = _answer_here()
    return matmul(x, kernel) if answer is None else answer.product(x, kernel)


@contextlib.contextmanager
def answering(answer):
    """Within, `product` in the graph at hand is that of `answer`, which checks at the end that it was asked for all."""
    outer = getattr(_local, "answer", (None, None))
    _local.answer = (tf.compat.v1.get_default_graph(), answer)
    try:
        yield
    finally:
        _local.answer = outer
    answer.finish()


def _answer_here():
    graph, answer = getattr(_local, "answer", (None, None))
    # The graph of a branch, or of a loop in the step, is another one.
    return answer if answer is not None and tf.compat.v1.get_default_graph() is graph else None


def matmul(x, y):
    """Return x @ y, (..., D) x (D, units) or (B, n, D) x (B, D, units), of rank 2 where that is possible.

    On a CPU TensorFlow 2.21 writes outside of the result in the product of (B, 1, n, D) and one matrix for all
    examples. A Jacobian turns a rank-3 product of one example into such a product.
    """
    if len(y.shape) != 2:
        if x.shape[0] != 1 or y.shape[0] != 1:
            return ops.matmul(x, y)
        return ops.expand_dims(ops.matmul(ops.squeeze(x, axis=0), ops.squeeze(y, axis=0)), axis=0)
    y = ops.cast(y, x.dtype)
    if len(x.shape) == 2:
        return ops.matmul(x, y)
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), y)
    return ops.reshape(rows, (*ops.shape(x)[:-1], ops.shape(y)[-1]))


def project(dense, x, num_leading):
    """Return dense(x) as one product of rank 2; its kernel's gradient is one product then, and not one an example.

    Args:
        dense: `keras.layers.EinsumDense` whose kernel has the axes of x behind the leading ones, and then its own.
        x: Tensor (..., D), or (..., H, D).
        num_leading: Number of axes that the result shares with x.
    """
    is_plain = type(dense) is keras.layers.EinsumDense and getattr(dense, "quantization_mode", None) is None
    if not is_plain or dense.activity_regularizer is not None:
        # Keras has products of its own for quantized kernels, and adds the loss of the activity in the call.
        return dense(x)
    x, kernel = (ops.cast(tensor, dense.compute_dtype) for tensor in (x, dense.kernel))
    shape, num_inputs = ops.shape(x), len(x.shape) - num_leading
    width, units = math.prod(kernel.shape[:num_inputs]), kernel.shape[num_inputs:]
    rows = ops.matmul(ops.reshape(x, (-1, width)), ops.reshape(kernel, (width, -1)))
    if dense.bias is not None:
        rows = ops.add(rows, ops.reshape(ops.cast(dense.bias, dense.compute_dtype), (-1,)))
    output = ops.reshape(rows, (*shape[:num_leading], *units))
    return output if dense.activation is None else dense.activation(output)


@dataclasses.dataclass
class Product:
    """A product of the step with what the loop does not change: (B, [1,] D) x (D, units) or (B, 1, D) x (B, D, units).

    Attributes:
        kernel: The tensor or variable that the loop does not change.
        rows: TensorSpec (B, D) of what is multiplied.
        results: TensorSpec (B, units).
    """

    kernel: object
    rows: tf.TensorSpec
    results: tf.TensorSpec

    def __call__(self, rows):
        if len(self.kernel.shape) == 2:
            return tf.matmul(rows, self.kernel)
        return tf.squeeze(tf.matmul(tf.expand_dims(rows, 1), self.kernel), axis=1)

    def prepare_backward(self):
        # A product with a transposed kernel takes half as long again.
        self._transposed = tf.transpose(self.kernel) if len(self.kernel.shape) == 2 else None

    def of_rows(self, upstream):
        """Return the gradient of the rows of a step."""
        if self._transposed is not None:
            return tf.matmul(upstream, self._transposed)
        return tf.squeeze(tf.matmul(tf.expand_dims(upstream, 1), self.kernel, transpose_b=True), axis=1)

    def gradient(self, rows, upstream):
        """Return that of the kernel, from the rows and the gradients of the results of all steps, (T, B, ...)."""
        if self._transposed is not None:
            rows, upstream = (tf.reshape(x, (-1, tf.shape(x)[-1])) for x in (rows, upstream))
        else:
            rows, upstream = (tf.transpose(x, (1, 0, 2)) for x in (rows, upstream))
        return tf.matmul(rows, upstream, transpose_a=True)


class PlainProducts:
    """`product` as it is outside of a loop."""

    products = ()
    is_differentiated = False

    def __init__(self, products=()):
        pass

    def product(self, x, kernel):
        return matmul(x, kernel)

    def kept(self, flat_state):
        return []

    def finish(self):
        """Raise ValueError if the step was another one than that of the trace."""


class TracedProducts(PlainProducts):
    """`product` in the trace: finds those whose kernels have their gradients after the loop."""

    def __init__(self):
        # In the order of the step; `None` where it is a product like any other.
        self.products = []
        self._stand_ins = []

    def product(self, x, kernel):
        if not _leaves_loop(x, kernel):
            self.products.append(None)
            return matmul(x, kernel)
        # Of something that stands for it: so the kernel is none of the captures, unless it is used otherwise, too.
        self._stand_ins.append(tf.compat.v1.placeholder(x.dtype, kernel.shape))
        result = matmul(x, self._stand_ins[-1])
        specs = (tf.TensorSpec((y.shape[0], y.shape[-1]), y.dtype) for y in (x, result))
        self.products.append(Product(kernel, *specs))
        return result

    @property
    def is_differentiated(self):
        """Whether the step asks for gradients of products itself."""
        return any(len(x.consumers()) > 1 for x in self._stand_ins)


class ForwardProducts(PlainProducts):
    """`product` in the forward loop of training, which keeps the results."""

    def __init__(self, products):
        self._left = list(products)
        self._results = []

    def product(self, x, kernel):
        if not self._left or (self._left[0] is not None) != _leaves_loop(x, kernel):
            raise ValueError(ANOTHER_STEP)
        entry = self._left.pop(0)
        if entry is None:
            return matmul(x, kernel)
        if tuple(kernel.shape) != tuple(entry.kernel.shape):
            raise ValueError(ANOTHER_STEP)
        result = self.result_of(entry, _rows(x))
        return result if len(x.shape) == 2 else tf.expand_dims(result, axis=1)

    def result_of(self, entry, rows):
        self._results.append(entry(rows))
        return self._results[-1]

    def kept(self, flat_state):
        return [*flat_state, *self._results]

    def finish(self):
        if self._left:
            raise ValueError(ANOTHER_STEP)


class BackwardProducts(ForwardProducts):
    """`product` in the backward loop: the result that was kept, whose gradient goes on to what was multiplied."""

    def __init__(self, products, results):
        super().__init__(products)
        self._results = list(results)
        self.rows = []

    def result_of(self, entry, rows):
        @custom_gradient
        def known(rows, result):
            # A tensor of its own, as `apart` has it.
            return result, lambda upstream: (entry.of_rows(upstream), tf.identity(upstream))

        self.rows.append(rows)
        return known(rows, self._results.pop(0))


def _rows(x):
    return x if len(x.shape) == 2 else tf.squeeze(x, axis=1)


def _leaves_loop(x, kernel):
    """Whether a product has one row an example, and a kernel from the graph around the step."""
    if tf.is_tensor(kernel) and getattr(kernel, "graph", None) is tf.compat.v1.get_default_graph():
        return False
    if len(kernel.shape) == 2:
        return len(x.shape) == 2 or (len(x.shape) == 3 and x.shape[1] == 1)
    # One of each example, and not one for all.
    of_each = len(kernel.shape) == 3 and (kernel.shape[0] != 1 or x.shape[0] == 1)
    same_type = keras.backend.standardize_dtype(kernel.dtype) == keras.backend.standardize_dtype(x.dtype)
    return of_each and same_type and len(x.shape) == 3 and x.shape[1] == 1

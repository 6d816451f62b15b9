"""Multiply tensors by kernels, and record the products in the step of a loop.

A loop records the calls of `product(x, kernel)` while it traces the step, and stores the results. After the backward
loop, one product over all steps computes the gradient of each kernel.
"""

import contextlib
import contextvars
import math

import keras
import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient

_recorder = contextvars.ContextVar("recorder", default=None)


def product(x, kernel):
    """Return x @ kernel, (..., D) x (D, units) or (B, n, D) x (B, D, units).

    Use `product` in the step of a decoder, for a kernel that exists before the loop: a weight or a projected memory. If
    x is (B, D) or (B, 1, D), training is then faster: one product computes the gradient of the kernel for all steps.

    Inside a `tf.custom_gradient` or `tf.recompute_grad`, use `tf.matmul` instead.

    Example:

    >>> x, kernel = keras.ops.ones((2, 4, 3)), keras.ops.ones((3, 5))
    >>> keras_vattn.recurrent.product(x, kernel).shape
    TensorShape([2, 4, 5])
    """
    recorder = _recorder.get()
    # The backward loop cannot use products inside a branch or an inner loop.
    is_recorded = recorder is not None and recorder.graph is tf.compat.v1.get_default_graph()
    return recorder.product(x, kernel) if is_recorded else matmul(x, kernel)


@contextlib.contextmanager
def record_products():
    """Yield a `ProductRecorder`, which records the calls of `product` inside the `with` block."""
    recorder = ProductRecorder(tf.compat.v1.get_default_graph())
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def matmul(x, y):
    """Return x @ y. The shapes are (..., D) x (D, units) or (B, n, D) x (B, D, units)."""
    if len(y.shape) != 2:
        # With B = 1, the Jacobian of a rank-3 product may corrupt memory (CPU, TensorFlow 2.21).
        if x.shape[0] != 1 or y.shape[0] != 1:
            return ops.matmul(x, y)
        return ops.expand_dims(ops.matmul(ops.squeeze(x, axis=0), ops.squeeze(y, axis=0)), axis=0)
    y = ops.cast(y, x.dtype)
    if len(x.shape) == 2:
        return ops.matmul(x, y)
    # The gradient of a rank-3 product would fail to compile if the batch size is unknown.
    rows = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), y)
    return ops.reshape(rows, (*ops.shape(x)[:-1], ops.shape(y)[-1]))


def project(dense, x, num_leading):
    """Return dense(x), computed with a single product of rank-2 tensors.

    Args:
        dense: A `keras.layers.EinsumDense` that sums over all axes of x except the leading axes. The first axes of the
            kernel are the summed axes. The other axes of the kernel are output axes.
        x: Tensor (..., D), or (..., H, D).
        num_leading: Number of leading axes, which x and the result share.
    """
    is_plain = type(dense) is keras.layers.EinsumDense and getattr(dense, "quantization_mode", None) is None
    if not is_plain or dense.activity_regularizer is not None:
        # The product below would ignore quantization and the activity regularizer.
        return dense(x)
    x, kernel = (ops.cast(tensor, dense.compute_dtype) for tensor in (x, dense.kernel))
    shape, num_inputs = ops.shape(x), len(x.shape) - num_leading
    width, units = math.prod(kernel.shape[:num_inputs]), kernel.shape[num_inputs:]
    rows = ops.matmul(ops.reshape(x, (-1, width)), ops.reshape(kernel, (width, -1)))
    if dense.bias is not None:
        rows = ops.add(rows, ops.reshape(ops.cast(dense.bias, dense.compute_dtype), (-1,)))
    output = ops.reshape(rows, (*shape[:num_leading], *units))
    return output if dense.activation is None else dense.activation(output)


class ProductRecorder:
    """Records the products in a loop step for which `_has_outer_kernel` is true, in order.

    Attributes:
        graph: The graph of the step.
        products: List of `Product`s.
        kernels: List with one kernel per product, a tensor or a variable.
    """

    def __init__(self, graph):
        self.graph, self.products, self.kernels = graph, [], []

    def product(self, x, kernel):
        if not _has_outer_kernel(x, kernel):
            return matmul(x, kernel)
        self.products.append(Product(x if len(x.shape) == 2 else tf.squeeze(x, axis=1), kernel.shape))
        self.kernels.append(kernel)
        result = self.products[-1].result
        return result if len(x.shape) == 2 else tf.expand_dims(result, axis=1)


class Product:
    """A product in a loop step: (B, D) x (D, units), or (B, D) x (B, D, units) with one kernel per example.

    Attributes:
        rows: Tensor (B, D), the left factor.
        kernel_input: Placeholder for the kernel, the right factor.
        transposed_input: Placeholder for the transposed kernel (units, D); `None` if each example has its own kernel.
        result: Tensor (B, units).
        is_differentiated: Whether TensorFlow has computed the gradient with respect to `rows`.
    """

    def __init__(self, rows, kernel_shape):
        self.rows, self.is_differentiated = rows, False
        self.kernel_input, self.transposed_input = tf.compat.v1.placeholder(rows.dtype, kernel_shape), None
        if len(kernel_shape) == 2:
            self.transposed_input = tf.compat.v1.placeholder(rows.dtype, kernel_shape[::-1])
        self.result = custom_gradient(lambda rows: (self._multiply(rows), self._row_gradient))(rows)

    def _multiply(self, rows):
        if self.transposed_input is not None:
            return tf.matmul(rows, self.kernel_input)
        return tf.squeeze(tf.matmul(tf.expand_dims(rows, 1), self.kernel_input), axis=1)

    def _row_gradient(self, upstream):
        self.is_differentiated = True
        # A product with `transpose_b` would take 1.5 times as long.
        if self.transposed_input is not None:
            return tf.matmul(upstream, self.transposed_input)
        return tf.squeeze(tf.matmul(tf.expand_dims(upstream, 1), self.kernel_input, transpose_b=True), axis=1)

    def kernel_gradient(self, rows, upstream):
        """Return the gradient of the kernel. `rows`: (T, B, D); `upstream`: gradients of the results, (T, B, units)."""
        if self.transposed_input is not None:
            rows, upstream = (tf.reshape(x, (-1, tf.shape(x)[-1])) for x in (rows, upstream))
        else:
            rows, upstream = (tf.transpose(x, (1, 0, 2)) for x in (rows, upstream))
        return tf.matmul(rows, upstream, transpose_a=True)


def _has_outer_kernel(x, kernel):
    """Return whether x has one row per example, (B, D) or (B, 1, D), and the kernel is not computed in the step."""
    if tf.is_tensor(kernel) and getattr(kernel, "graph", None) is tf.compat.v1.get_default_graph():
        return False
    if len(kernel.shape) == 2:
        return len(x.shape) == 2 or (len(x.shape) == 3 and x.shape[1] == 1)
    # All examples share a kernel (1, D, units), unless B is 1.
    has_kernels = len(kernel.shape) == 3 and (kernel.shape[0] != 1 or x.shape[0] == 1)
    same_type = keras.backend.standardize_dtype(kernel.dtype) == keras.backend.standardize_dtype(x.dtype)
    return has_kernels and same_type and len(x.shape) == 3 and x.shape[1] == 1

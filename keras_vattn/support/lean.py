"""Operations of a step whose gradients are lean.

Where the batch size is not known TensorFlow's own gradients of sums, products and `where` ask for shapes, and sum over
axes that may have been broadcast: half a dozen operations each, at every step of a backward loop. Here the operands
have one shape.
"""

import functools

import tensorflow as tf

from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.products import is_differentiating


def add(*terms):
    """Return the sum of tensors, which are as a rule of one shape."""
    if any(x.shape.as_list() != terms[0].shape.as_list() for x in terms):
        return functools.reduce(tf.add, terms)
    return tf.add_n(terms)


def where(mask, new, old):
    """Return the rows of `new` where a boolean mask (B,) holds, and those of `old` elsewhere; both have one shape."""
    return tf.raw_ops.Select(condition=mask, x=new, y=old)


def lstm(gates, cell):
    """Return h and c' of an LSTM: c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c').

    Args:
        gates: i, f, g, o, (B, units) each.
        cell: c, (B, units).
    """

    def outcome(into, forget, candidate, out, cell):
        into, forget, candidate, out = tf.sigmoid(into), tf.sigmoid(forget), tf.tanh(candidate), tf.sigmoid(out)
        new = add(forget * cell, into * candidate)
        squashed = tf.tanh(new)
        return (out * squashed, new), (into, forget, candidate, out, squashed)

    if not is_differentiating():
        return outcome(*gates, cell)[0]

    @custom_gradient
    def gated(*gates_and_cell):
        results, (into, forget, candidate, out, squashed) = outcome(*gates_and_cell)

        def gradient(of_hidden, of_new):
            of_new = add(of_new, tf.raw_ops.TanhGrad(y=squashed, dy=of_hidden * out))
            return (
                tf.raw_ops.SigmoidGrad(y=into, dy=of_new * candidate),
                tf.raw_ops.SigmoidGrad(y=forget, dy=of_new * cell),
                tf.raw_ops.TanhGrad(y=candidate, dy=of_new * into),
                tf.raw_ops.SigmoidGrad(y=out, dy=of_hidden * squashed),
                of_new * forget,
            )

        return results, gradient

    return gated(*gates, cell)

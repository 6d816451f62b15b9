"""Seeds and noise. Every stochastic layer draws through these functions.

Seeds are int32 pairs: TensorFlow Probability refuses int64. Uniforms and normals are made from Philox *bits*, because
with TensorFlow 2.21 `stateless_uniform(alg="philox")` and `stateless_normal(alg="philox")` give other numbers under XLA
than outside it, and the bits are the same in both. The conversion never yields 0 or 1, so a logarithm of the draw, or
of one minus the draw, is finite.
"""

import tensorflow as tf
from keras import ops


def draw_seed(seed_generator):
    """Advance a `keras.random.SeedGenerator` and return a fresh int32 seed of shape (2,).

    The id of the replica is folded in: the generator's state is mirrored under `tf.distribute`, and without it all
    replicas would draw the same noise.

    Args:
        seed_generator: A `keras.random.SeedGenerator`.

    Returns:
        An int32 tensor of shape (2,).

    Example:

    >>> generator = keras.random.SeedGenerator(7)
    >>> keras_vattn.random.draw_seed(generator).shape
    TensorShape([2])
    """
    seed = tf.bitcast(tf.cast(seed_generator.next(), tf.uint32), tf.int32)
    return fold_in_replica(seed)


def fold_in_replica(seed):
    """Return the seed with the id of this replica folded in, unchanged where there is one replica."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, context.replica_id_in_sync_group)


def fold_in(seed, number):
    """Return a new int32 seed of shape (2,) from a seed and an integer; different integers give unrelated seeds.

    Args:
        seed: int32 tensor of shape (2,).
        number: Integer or integer scalar tensor.

    Returns:
        An int32 tensor of shape (2,).

    Example:

    >>> seed = keras_vattn.random.as_seed(7)
    >>> bool(keras.ops.all(keras_vattn.random.fold_in(seed, 0) == keras_vattn.random.fold_in(seed, 1)))
    False
    """
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32), alg="philox")


def as_seed(seed):
    """Return an int32 seed of shape (2,) from an integer, an integer tensor of shape () or one of shape (2,).

    Args:
        seed: An integer, or an integer tensor of shape () or (2,).

    Returns:
        An int32 tensor of shape (2,).

    Raises:
        ValueError: If the shape is neither () nor (2,).

    Example:

    >>> keras_vattn.random.as_seed(7)
    <tf.Tensor: shape=(2,), dtype=int32, numpy=array([7, 0], dtype=int32)>
    """
    if isinstance(seed, int):
        seed = seed & 0xFFFFFFFF
        seed = seed - (1 << 32) if seed >= 1 << 31 else seed
    seed = tf.cast(tf.convert_to_tensor(seed), tf.int32)
    if seed.shape.rank == 0:
        return tf.stack([seed, tf.zeros_like(seed)])
    if seed.shape.as_list() != [2]:
        raise ValueError(
            f"A seed is an integer, or an integer tensor of shape () or (2,). Received: shape={seed.shape}"
        )
    return seed


def uniform(shape, seed):
    """Draw float32 uniforms from the open interval (0, 1); the smallest is 2**-24, the largest 1 - 2**-24.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of the given shape, the same with and without XLA.

    Example:

    >>> draw = keras_vattn.random.uniform((1000,), keras_vattn.random.as_seed(7))
    >>> bool(keras.ops.all((draw > 0) & (draw < 1)))
    True
    """
    bits = tf.random.stateless_uniform(shape, seed, minval=None, maxval=None, dtype=tf.int32, alg="philox")
    high_bits = tf.bitwise.right_shift(tf.bitcast(bits, tf.uint32), tf.constant(9, tf.uint32))
    return (tf.cast(high_bits, tf.float32) + 0.5) * 2.0**-23


def normal(shape, seed):
    """Draw float32 standard normals, by the inverse distribution function of `uniform`.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of the given shape with |value| below 5.5.

    Example:

    >>> draw = keras_vattn.random.normal((10_000,), keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.std(draw)) - 1) < 0.05
    True
    """
    return ops.cast(tf.math.ndtri(uniform(shape, seed)), "float32")

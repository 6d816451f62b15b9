"""Seeds and noise. Every stochastic layer draws through these functions.

Seeds are int32 pairs: TensorFlow Probability refuses int64. Uniforms and normals are made from Philox *bits*, because
with TensorFlow 2.21 `stateless_uniform(alg="philox")` and `stateless_normal(alg="philox")` give other numbers under XLA
than outside it, and the bits are the same in both. The conversion never yields 0 or 1, so a logarithm of the draw, or
of one minus the draw, is finite.

A *stack* of seeds, (K, 2), draws each K-th part of the first axis from a seed of its own, as K calls would: that is how
`keras_vattn.posterior_predictive` puts several draws into one call of a model.
"""

import math

import tensorflow as tf
from keras import ops

from keras_vattn.support.special import exponential_gap

# The ends of `uniform`.
SMALLEST, LARGEST = 2.0**-24, 1.0 - 2.0**-24
# Proposals per Gamma draw. One is accepted with probability 0.952 at least, all are refused with less than 3e-7.
NUM_PROPOSALS = 5


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
        seed: int32 tensor of shape (2,), or a stack (K, 2).
        number: Integer or integer scalar tensor.

    Returns:
        An int32 tensor of the shape of `seed`.

    Example:

    >>> seed = keras_vattn.random.as_seed(7)
    >>> bool(keras.ops.all(keras_vattn.random.fold_in(seed, 0) == keras_vattn.random.fold_in(seed, 1)))
    False
    """
    number = tf.cast(number, tf.int32)
    if _is_stack(seed):
        return tf.map_fn(lambda one: fold_in(one, number), seed)
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")


def _is_stack(seed):
    return len(ops.shape(seed)) == 2


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
        seed: int32 tensor of shape (2,), or a stack (K, 2), whose K divides `shape[0]`.

    Returns:
        A float32 tensor of the given shape, the same with and without XLA.

    Example:

    >>> draw = keras_vattn.random.uniform((1000,), keras_vattn.random.as_seed(7))
    >>> bool(keras.ops.all((draw > 0) & (draw < 1)))
    True
    """
    bits = _bits(shape, seed)
    high_bits = tf.bitwise.right_shift(tf.bitcast(bits, tf.uint32), tf.constant(9, tf.uint32))
    return (tf.cast(high_bits, tf.float32) + 0.5) * 2.0**-23


def _bits(shape, seed):
    if _is_stack(seed):
        part = (shape[0] // tf.shape(seed)[0], *shape[1:])
        return tf.reshape(tf.map_fn(lambda one: _bits(part, one), seed), shape)

    size = tf.reduce_prod(shape) if tf.is_tensor(shape) else math.prod(shape)
    num_pairs = (size + 1) // 2

    def draw(seed):
        # int64 hold the bits of two int32, and XLA makes them on a CPU in half the time.
        pairs = tf.random.stateless_uniform((num_pairs,), seed, minval=None, maxval=None, dtype=tf.int64, alg="philox")
        return tf.reshape(tf.reshape(tf.bitcast(pairs, tf.int32), (-1,))[:size], shape)

    # XLA would fuse the generator into everything that uses the bits, and run it once for each of them (1.26 instead of
    # 1.11 of a softmax attention). It does not fuse across a condition that it cannot decide; both branches draw.
    return tf.cond(seed[0] == seed[1], lambda: draw(seed + 1), lambda: draw(seed))


def normal(shape, seed):
    """Draw float32 standard normals, by the inverse distribution function of `uniform`.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,), or a stack (K, 2), whose K divides `shape[0]`.

    Returns:
        A float32 tensor of the given shape with |value| below 5.5.

    Example:

    >>> draw = keras_vattn.random.normal((10_000,), keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.std(draw)) - 1) < 0.05
    True
    """
    return ops.cast(tf.math.ndtri(uniform(shape, seed)), "float32")


def gumbel(shape, seed):
    """Draw float32 standard Gumbel noise, -log(-log u) of `uniform`.

    The argmax of log probabilities with such noise added is a draw from them; `keras_vattn.GumbelSoftmax` relaxes it.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,), or a stack (K, 2), whose K divides `shape[0]`.

    Returns:
        A float32 tensor of the given shape with values between -2.9 and 16.7.

    Example:

    >>> draw = keras_vattn.random.gumbel((10_000,), keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.mean(draw)) - 0.5772) < 0.05  # Euler's constant
    True
    """
    return -ops.log(-ops.log(uniform(shape, seed)))


def gamma_noise(shape, seed):
    """Draw the noise of `log_gamma`, before the concentration is known: float32 proposals and thresholds.

    Args:
        shape: Shape of the Gamma draws.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of shape (*shape, 2 * NUM_PROPOSALS).

    Example:

    >>> noise = keras_vattn.random.gamma_noise((1000,), keras_vattn.random.as_seed(7))
    >>> draws = keras.ops.exp(keras_vattn.random.log_gamma(keras.ops.full((1000,), 3.0), noise))
    >>> abs(float(keras.ops.mean(draws)) - 3.0) < 0.2
    True
    """
    proposals = normal((*shape, NUM_PROPOSALS), fold_in(seed, 0))
    thresholds = ops.log(uniform((*shape, NUM_PROPOSALS), fold_in(seed, 1)))
    return ops.concatenate([proposals, thresholds], axis=-1)


@tf.custom_gradient
def log_gamma(concentration, noise):
    """Return log G, G ~ Gamma(concentration, 1), for concentrations of at least 1, from the noise of `gamma_noise`.

    Marsaglia and Tsang 2000, with a fixed number of proposals drawn beforehand, so that it runs in a loop of unknown
    batch under XLA; if all are refused (probability below 3e-7) the draw is d = concentration - 1/3. The gradient with
    respect to the concentration is the implicit one (Figurnov et al. 2018).

    Args:
        concentration: Float32 tensor, at least 1.
        noise: Result of `gamma_noise` for the shape of `concentration`.

    Returns:
        A float32 tensor of the shape of `concentration`.
    """
    proposals, thresholds = tf.split(noise, 2, axis=-1)
    d = concentration - 1.0 / 3.0
    root = 1.0 + proposals / (3.0 * tf.sqrt(d))[..., None]
    log_v = 3.0 * tf.math.log(tf.maximum(root, 1e-6))
    bound = 0.5 * tf.square(proposals) - d[..., None] * exponential_gap(log_v)
    accepted = (root > 1e-6) & (thresholds < bound)
    first = accepted & (tf.cumsum(tf.cast(accepted, tf.int32), axis=-1) == 1)
    log_draw = tf.math.log(d) + tf.reduce_sum(tf.where(first, log_v, 0.0), axis=-1)

    def gradient(upstream):
        # Above 100 the cube root of a draw is normal (Wilson and Hilferty 1931); there the op loses its accuracy.
        is_large = concentration > 100.0
        alpha, draw = tf.where(is_large, 1.0, concentration), tf.exp(tf.where(is_large, 0.0, log_draw))
        implicit = tf.raw_ops.RandomGammaGrad(alpha=alpha, sample=draw) / draw
        inverse_root = tf.exp((tf.math.log(d) - log_draw) / 3.0)
        slope = tf.where(is_large, (1.5 * inverse_root - 0.5) / d, implicit)
        return upstream * slope, tf.zeros_like(noise)

    return log_draw, gradient

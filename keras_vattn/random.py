"""Compute seeds and noise. Every stochastic layer draws its noise with these functions.

Noise is computed from the random bits of the Philox generator, which are the same with and without XLA. The functions
of `keras.random` give different values under XLA (TensorFlow 2.21). A uniform draw u is never 0 or 1, so log(u) and
log(1 - u) are finite. Bits are uint32, because most GPU kernels of TensorFlow keep int32 in host memory. Seeds are
pairs of int32, because TensorFlow Probability rejects int64.

Two draws from one seed are equal, so code that draws twice must fold a different number into the seed each time. If you
change how bits are used, the draws of every seed change, so add an entry to the changelog. The tests are in
tests/test_random.py and tests/battery/test_replicas.py (several replicas).
"""

import math
import numbers

import numpy as np
import tensorflow as tf
from keras import ops

from keras_vattn.support.gradients import custom_gradient
from keras_vattn.support.special import derivative, polynomial

__all__ = [
    "as_seed",
    "draw_seed",
    "dropout_mask",
    "fold_in",
    "fold_in_replica",
    "gamma_noise",
    "gumbel",
    "log_gamma",
    "normal",
    "uniform",
]

_PHILOX = tf.random.Algorithm.PHILOX.value
# Upper words of the Philox counters. Without different words, a folded seed would equal a draw.
_DRAW_COUNTER, _SECOND_DRAW_COUNTER, _FOLD_COUNTER = range(3)

# `dropout_mask` does not accept the seed (-2**31, -2**31), so no key equals this number.
_NO_SEED = 0x8000000080000000

# tests/helpers/coefficients.py fits these polynomials. `_SINE`, in powers of v^2, is sin(pi v / 4) / v within 1e-9.
_SINE = (0.785398153, -0.0807453673, 0.00248987197, -3.58772584e-05)
# Coefficients of a polynomial in eta that approximates log x, where eta^2 / 2 = x - 1 - log x.
_LOGARITHM = (
    *(0.0, 1.0, -0.166666009, 0.0277760185, -0.00370996311, 0.00023726535),
    *(6.56825945e-05, -2.97270158e-05, 3.14164899e-06, 7.42859674e-07, -1.33147057e-07, -2.42206124e-09),
)
# Coefficients of p_0, p_1 and p_2 in eta = v + p_0(v) / c + p_1(v) / c^2 + p_2(v) / c^3. Here x = g / c with the g of
# `log_gamma`, and v is the normal draw divided by sqrt(c).
_QUANTILE = (
    (-0.333333822, 0.0278189375, 0.000692901385, -0.00126345598, 0.000316629175, 2.82074288e-05, -1.2967806e-05),
    (-0.017376857, -0.0026847201, 0.00210124259, -0.00036190889, -0.000136649003),
    (0.00515890164, -0.00312204515, 0.00148202358),
)
# Coefficients of -c d(eta - v)/dc. A term v^j / c^(k + 1) varies as c^-n with n = k + 1 + j / 2.
_QUANTILE_SLOPE = tuple(
    tuple((k + 1 + 0.5 * j) * term for j, term in enumerate(terms)) for k, terms in enumerate(_QUANTILE)
)


def draw_seed(seed_generator):
    """Advance a `keras.random.SeedGenerator` and return a fresh int32 seed of shape (2,).

    Under `tf.distribute`, every replica gets a different seed.

    Args:
        seed_generator: A `keras.random.SeedGenerator`.

    Example:

    >>> generator = keras.random.SeedGenerator(7)
    >>> keras_vattn.random.draw_seed(generator).shape
    TensorShape([2])
    """
    seed = tf.bitcast(tf.cast(seed_generator.next(), tf.uint32), tf.int32)
    return fold_in_replica(seed)


def fold_in_replica(seed):
    """Fold the id of this replica into a seed. If there is only one replica, return the seed unchanged.

    Args:
        seed: int32 tensor of shape (2,).

    Example:

    >>> seed = keras_vattn.random.as_seed(7)
    >>> bool(keras.ops.all(keras_vattn.random.fold_in_replica(seed) == seed))
    True
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, context.replica_id_in_sync_group)


def fold_in(seed, number):
    """Return a new int32 seed of shape (2,) from a seed and an integer; different integers give unrelated seeds.

    Args:
        seed: An integer, or an int32 tensor of shape (2,).
        number: Integer or integer scalar tensor.

    Example:

    >>> fold_in, seed = keras_vattn.random.fold_in, keras_vattn.random.as_seed(7)
    >>> bool(keras.ops.all(fold_in(seed, 0) == fold_in(seed, 1)))
    False
    """
    seed = as_seed(seed) if isinstance(seed, numbers.Integral) else tf.cast(seed, tf.int32)
    number = int(number) % 2**64 if isinstance(number, numbers.Integral) else tf.cast(number, tf.uint64)
    return _philox((2,), tf.reshape(_key(seed), (1,)), (number, _FOLD_COUNTER), tf.int32)


def _philox(shape, key, counter, dtype):
    """Return random bits of Philox4x32-10 (Salmon et al. 2011). `key`: shape (1,); `counter`: two 64-bit words."""
    # TensorFlow's seeded functions would add about forty operations, which Philox does not need.
    counter = tf.convert_to_tensor(counter, tf.uint64)
    return tf.raw_ops.StatelessRandomUniformFullIntV2(shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=dtype)


def _key(seed):
    return tf.bitcast(seed, tf.uint64)


def as_seed(seed):
    """Return an int32 seed of shape (2,) from an integer or an integer tensor of shape () or (2,).

    Args:
        seed: An integer, or an integer tensor of shape () or (2,).

    Returns:
        An int32 tensor of shape (2,).

    Raises:
        ValueError: If the seed is not an integer, or its shape is neither () nor (2,).

    Example:

    >>> keras_vattn.random.as_seed(7)
    <tf.Tensor: shape=(2,), dtype=int32, numpy=array([7, 0], dtype=int32)>
    """
    if isinstance(seed, numbers.Integral) and not isinstance(seed, bool):
        return tf.stack([_word(int(seed)), _word(max(int(seed), 0) >> 32)])
    received, seed = seed, tf.convert_to_tensor(seed)
    if not seed.dtype.is_integer or seed.shape.as_list() not in ([], [2]):
        raise ValueError(f"A seed is an integer, or an integer tensor of shape () or (2,). Received: seed={received!r}")
    seed = tf.cast(seed, tf.int32)
    return seed if seed.shape.rank else tf.stack([seed, tf.zeros_like(seed)])


def _word(number):
    low = number & 0xFFFFFFFF
    return tf.constant(low - (1 << 32) if low >= 1 << 31 else low, tf.int32)


def uniform(shape, seed):
    """Draw uniform float32 numbers from the open interval (0, 1), at least 2**-24 and at most 1 - 2**-24.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of the given shape. Its values are the same with and without XLA.

    Example:

    >>> draw = keras_vattn.random.uniform((1000,), keras_vattn.random.as_seed(7))
    >>> bool(keras.ops.all((draw > 0) & (draw < 1)))
    True
    """
    seed = tf.cast(seed, tf.int32)
    high_bits = tf.bitwise.right_shift(_bits(shape, seed), tf.constant(9, tf.uint32))
    # With the sign and exponent bits of 1.0, these bits form a number between 1 and 2.
    return tf.bitcast(high_bits | tf.constant(0x3F800000, tf.uint32), tf.float32) - (1.0 - 2.0**-24)


def _bits(shape, seed):
    key = _key(seed)
    keys = tf.reshape(key, (1,))

    def generate(num_pairs, word):
        # Under XLA on a CPU, generating uint32 words directly would take twice as long.
        return tf.bitcast(_philox((num_pairs,), keys, (0, word), tf.int64), tf.uint32)

    return _entries(shape, generate, tf.equal(key, 0), _SECOND_DRAW_COUNTER, _DRAW_COUNTER)


def _draw_once(draw, condition, word, otherwise):
    """Return draw(word) if the condition is true, and draw(otherwise) if it is false."""
    # Without a `tf.cond`, or with a constant condition, XLA on a CPU would draw the bits again in every operation that
    # uses the bits. On a GPU, a `tf.cond` would wait for all earlier work of the GPU.
    # `tf.vectorized_map`, which traces in this name scope, rejects a `tf.cond` with equal conditions for all seeds.
    is_vectorized = "loop_body" in tf.get_current_name_scope()
    if is_vectorized or tf.config.list_physical_devices("GPU"):
        return draw(tf.where(condition, tf.constant(word, tf.uint64), tf.constant(otherwise, tf.uint64)))
    return tf.cond(condition, lambda: draw(word), lambda: draw(otherwise))


def _entries(shape, generate, *draw_arguments):
    """Return random bits. `generate(n, word)` returns bits (n, 2). `draw_arguments` belong to `_draw_once`."""
    size = _size(shape)
    bits = _draw_once(lambda word: generate((size + 1) // 2, word), *draw_arguments)
    bits = tf.reshape(bits, (-1,))
    return tf.reshape(bits if isinstance(size, int) and size % 2 == 0 else bits[:size], shape)


def _size(shape):
    return tf.reduce_prod(shape) if tf.is_tensor(shape) else math.prod(shape)


def dropout_seed(seed_generator):
    """Advance a `keras.random.SeedGenerator` and return the seed that Keras's dropout would use, int32 (2,).

    Under `tf.distribute`, every replica gets a different seed.
    """
    # Keras's dropout converts the state to int32 in the same way.
    return fold_in_replica(tf.cast(tf.math.floormod(seed_generator.next(), tf.int32.max - 1), tf.int32))


def dropout_mask(shape, rate, seed):
    """Draw a dropout mask, which is `False` for entries that are dropped.

    The mask is the same with and without XLA. In float32 and without XLA, Keras's dropout draws the same mask, unless a
    number of the seed is negative.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        rate: Probability that an entry is dropped, in [0, 1).
        seed: int32 tensor of shape (2,), other than (-2**31, -2**31).

    Returns:
        A boolean tensor of the given shape.

    Example:

    >>> mask = keras_vattn.random.dropout_mask((1000,), 0.25, keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.mean(keras.ops.cast(mask, "float32"))) - 0.75) < 0.05
    True
    """
    # The casts to unsigned integers give the same result with and without XLA, also for negative seeds.
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.cast(tf.bitcast(seed, tf.uint32), tf.int64))

    def generate(num_pairs, word):
        options = {"shape": (num_pairs,), "key": key, "alg": _PHILOX, "dtype": tf.int64}
        return tf.bitcast(tf.raw_ops.StatelessRandomUniformFullIntV2(counter=counter + word, **options), tf.uint32)

    bits = _entries(shape, generate, tf.equal(_key(seed), _NO_SEED), 1, 0)
    # TensorFlow's dropout compares the rate in float32 with uniform draws that are multiples of 2^-23.
    threshold = math.ceil(float(np.float32(rate)) * 2**23)
    low_bits = tf.bitwise.bitwise_and(bits, tf.constant(2**23 - 1, tf.uint32))
    return low_bits >= tf.constant(threshold, tf.uint32)


def normal(shape, seed):
    """Draw standard normal numbers in float32 with the method of Box and Muller (1958).

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of the given shape, with absolute values below 6.6.

    Example:

    >>> draw = keras_vattn.random.normal((10_000,), keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.std(draw)) - 1) < 0.05
    True
    """
    seed = tf.cast(seed, tf.int32)
    size = _size(shape)
    words = _bits((2, (size + 1) // 2), seed)
    cosine, sine = _normal_pair(words[0], words[1])
    return tf.reshape(tf.reshape(tf.stack([cosine, sine]), (-1,))[:size], shape)


def _normal_pair(radius_word, angle_word):
    # An odd word is never 0, which has no logarithm. The numbers x and -x are equally likely.
    signed = _signed(tf.bitwise.bitwise_or(radius_word, tf.constant(1, tf.uint32)))
    radius = tf.sign(signed) * tf.sqrt(-tf.math.log(tf.square(signed)))
    # XLA's sine would take 10 times as long. The radius has a random sign, so half a circle of angles suffices.
    v = _signed(angle_word)
    sine = v * polynomial(tf.square(v), _SINE)
    square = tf.square(sine)
    return radius * (1.0 - 2.0 * square), radius * (2.0 * sine * tf.sqrt(1.0 - square))


def _signed(word):
    return tf.cast(tf.bitcast(word, tf.int32), tf.float32) * 2.0**-31


def gumbel(shape, seed):
    """Draw float32 standard Gumbel noise, -log(-log u) for u from `uniform`.

    If you add this noise to log-probabilities, the argmax is a draw from their categorical distribution.
    `keras_vattn.GumbelSoftmax` replaces the argmax with a softmax.

    Args:
        shape: Shape of the result, a tuple of integers and scalar tensors.
        seed: int32 tensor of shape (2,).

    Returns:
        A float32 tensor of the given shape with values between -2.9 and 16.7.

    Example:

    >>> draw = keras_vattn.random.gumbel((10_000,), keras_vattn.random.as_seed(7))
    >>> abs(float(keras.ops.mean(draw)) - 0.5772) < 0.05  # Euler's constant
    True
    """
    return -ops.log(-ops.log(uniform(shape, seed)))


def gamma_noise(shape, seed):
    """Draw the noise for `log_gamma`. The noise does not depend on the concentration.

    Args:
        shape: Shape of the Gamma draws.
        seed: int32 tensor of shape (2,).

    Returns:
        A tuple of three float32 tensors of the given shape: normal draws, and the logarithms of two uniform draws.

    Example:

    >>> noise = keras_vattn.random.gamma_noise((1000,), keras_vattn.random.as_seed(7))
    >>> log_draws = keras_vattn.random.log_gamma(keras.ops.full((1000,), 3.0), noise)
    >>> abs(float(keras.ops.mean(keras.ops.exp(log_draws))) - 3.0) < 0.2
    True
    """
    first, second = (tf.math.log(uniform(shape, fold_in(seed, number))) for number in (1, 2))
    return normal(shape, fold_in(seed, 0)), first, second


@custom_gradient
def log_gamma(concentration, noise):
    """Return log G for draws G ~ Gamma(concentration, 1), computed from the noise of `gamma_noise`.

    With c = concentration + 2, G = g u1^(1 / (c - 2)) u2^(1 / (c - 1)), where g ~ Gamma(c, 1), and u1 and u2 are
    uniform. The draw g is computed from a normal draw x with Temme's expansion (1992) and fitted coefficients. The
    probabilities P(Gamma(c, 1) < g) and P(N(0, 1) < x) differ by at most 3e-6. There is no rejection step, so XLA can
    compile this function.

    The gradient with respect to the concentration is the implicit derivative of the quantile (Figurnov et al. 2018).
    The relative error of the gradient is below 2e-4 for |x| up to 3.

    Args:
        concentration: Float32 tensor, at least 1.
        noise: Result of `gamma_noise` for the shape of `concentration`.

    Returns:
        A float32 tensor of the shape of `concentration`.

    Example:

    >>> noise = keras_vattn.random.gamma_noise((10_000,), keras_vattn.random.as_seed(7))
    >>> log_draws = keras_vattn.random.log_gamma(keras.ops.full((10_000,), 2.0), noise)
    >>> abs(float(keras.ops.mean(log_draws)) - 0.4228) < 0.05  # digamma(2)
    True
    """
    normals, first, second = noise
    c = concentration + 2.0
    inverse = 1.0 / c
    v = normals * tf.sqrt(inverse)
    eta = v + inverse * _quantile(_QUANTILE, inverse, v)
    lifted = tf.math.log(c) + polynomial(eta, _LOGARITHM)

    def gradient(upstream):
        eta_slope = 0.5 * v + inverse * _quantile(_QUANTILE_SLOPE, inverse, v)
        slope = (1.0 - polynomial(eta, derivative(_LOGARITHM)) * eta_slope) * inverse
        slope -= first / tf.square(concentration) + second / tf.square(concentration + 1.0)
        return upstream * slope, tf.nest.map_structure(tf.zeros_like, noise)

    return lifted + first / concentration + second / (concentration + 1.0), gradient


def _quantile(terms, inverse, v):
    zeroth, first, second = (polynomial(v, coefficients) for coefficients in terms)
    return zeroth + inverse * (first + inverse * second)

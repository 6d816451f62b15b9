"""Trains a small network to predict the words that describe an image (multiple-instance learning, Fang et al. 2015).

The network predicts p(word | cell) for each cell. A word describes an image if it describes at least one cell, so
p(word | image) is the noisy-OR 1 - prod_cells (1 - p(word | cell)). Training needs only labels of whole images.

Shapes: N images, B images in a batch, S x S pixels, a grid of G x G cells, D features per cell, V words.
"""

import collections
import math

import keras
import numpy as np
from keras import ops

from applications.common.batches import array_batches, num_array_batches
from applications.common.errors import InputError

MIN_IMAGES = 5  # A word is learned only if it describes at least this many images,
MAX_SHARE = 0.9  # and at most this fraction of all images.
MAX_WORDS = 1000
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
EPOCHS = 10
# With the seed of the run, runs with different seeds would read different features.
SEED = 0
FIRST_FILTERS = 16
WIDTH = 128
# Lower bound of the sum in `noisy_or`: the logarithm of 0 is infinite.
_LEAST = 1e-30


def train_detectors(pixels, words, side, cells):
    """Return a network that is trained to detect words in images, uint8 (N, S, S, 3). `words` lists the words that
    describe each image. If every word describes too few or too many images, raise `InputError`."""
    vocabulary = vocabulary_of(words)
    if not vocabulary:
        raise InputError(
            f"--network words: expected at least one word that describes {MIN_IMAGES} images or more, but at most "
            f"{MAX_SHARE:.0%} of all images. Received: {len(set().union(*words))} words for {len(words)} images"
        )
    index = {word: number for number, word in enumerate(vocabulary)}
    labels = np.zeros((len(words), len(vocabulary)), np.float32)
    for row, said in enumerate(words):
        labels[row, [index[word] for word in said if word in index]] = 1.0
    network, training = build(side, cells, labels.mean(axis=0))
    training.compile(keras.optimizers.Adam(LEARNING_RATE), keras.losses.BinaryCrossentropy(from_logits=True))
    arrays = pixels, labels
    training.fit(
        array_batches(arrays, BATCH_SIZE, SEED, first_epoch=0),
        steps_per_epoch=num_array_batches(arrays, BATCH_SIZE),
        epochs=EPOCHS,
        verbose=2,
        shuffle=False,
    )
    return network


def vocabulary_of(words):
    """Return the list of words to learn, sorted by decreasing frequency, then alphabetically."""
    counts = collections.Counter(word for said in words for word in set(said))
    most = MAX_SHARE * len(words)
    frequent = [word for word, count in counts.items() if MIN_IMAGES <= count <= most and any(map(str.isalnum, word))]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:MAX_WORDS]


def build(side, cells, shares):
    """Return two models that share layers and read images (B, S, S, 3) with values from 0 to 255.

    The first model extracts features. It returns maps (B, G', G', D) with G' >= G. The second model is trained. It
    returns the log-odds (B, V) that a word describes the image. The initial probability of a word is near its entry in
    `shares` (V,), the fraction of images that the word describes.
    """
    halvings = int(math.log2(side // cells))
    images = keras.Input((side, side, 3), name="images")
    maps = keras.layers.Rescaling(1 / 127.5, -1.0, name="scaled")(images)
    for number in range(halvings + 1):
        last = number == halvings
        maps = keras.layers.Conv2D(
            WIDTH if last else min(FIRST_FILTERS * 2**number, WIDTH),
            # A larger kernel in the last layer would mix neighbouring cells.
            1 if last else 3,
            # Without this stride, the first layer would take most of the time.
            strides=2 if number == 0 and not last else 1,
            padding="same",
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(SEED + number),
            name=f"convolution_{number}",
        )(maps)
        maps = keras.layers.BatchNormalization(momentum=0.9, name=f"normalization_{number}")(maps)
        maps = keras.layers.ReLU(name="map" if last else f"relu_{number}")(maps)
        if 0 < number < halvings:
            maps = keras.layers.MaxPooling2D(name=f"half_{number}")(maps)
    # If p(word | cell) is 1 - exp(-cell_rate) in every cell, p(word | image) equals `shares`.
    cell_rate = -np.log1p(-np.clip(shares, 1e-6, 1 - 1e-6)) / (maps.shape[1] * maps.shape[2])
    bias = np.log(np.expm1(cell_rate))
    logits = keras.layers.Dense(
        len(shares),
        kernel_initializer=keras.initializers.GlorotUniform(SEED + halvings + 1),
        bias_initializer=lambda shape, dtype=None: ops.convert_to_tensor(bias, dtype),
        name="words",
    )(maps)
    return keras.Model(images, maps), keras.Model(images, noisy_or(logits))


def noisy_or(logits):
    """Return the log-odds (B, V) that a word describes at least one cell. `logits` (B, G, G, V) are the log-odds of
    each cell.

    The log-odds of p(word | image) = 1 - exp(-s) are log(exp(s) - 1) = s + log(1 - exp(-s)), s = sum_cells
    softplus(logit). The last expression does not overflow for large s.
    """
    total = ops.maximum(ops.sum(ops.softplus(logits), axis=(1, 2)), _LEAST)
    return total + ops.log(-ops.expm1(-total))

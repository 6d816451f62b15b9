"""A small network that learns to see the words about images, by multiple-instance learning.

Fang et al. 2015: a word is in an image if it is in one of its cells, with the probability of the noisy-OR,
1 - prod_cells (1 - p(word | cell)). So the network learns where a word is from labels of whole images.

Shapes: N images, B of a batch, S their side in pixels, G cells a side, D width of a cell's features, V words.
"""

import collections
import math

import keras
import numpy as np
from keras import ops

from applications.common.batches import array_batches, num_array_batches
from applications.common.errors import InputError

# A word of fewer images cannot be learned; a word of nearly all images tells them apart in nothing.
MIN_IMAGES = 5
MAX_SHARE = 0.9
MAX_WORDS = 1000
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
EPOCHS = 10
# Apart from the model's, so that its seeds are compared on the same features.
SEED = 0
FIRST_FILTERS = 16
WIDTH = 128
# The logarithm of a smaller sum would be -inf.
_LEAST = 1e-30


def train_detectors(pixels, words, side, cells):
    """Return the network of `build`, trained on images, uint8 (N, S, S, 3), and the lists of words about each; print a
    line an epoch. Without a word about enough images, and not about nearly all, this is an `InputError`."""
    vocabulary = vocabulary_of(words)
    if not vocabulary:
        raise InputError(
            f"--network: words needs a word that is said about {MIN_IMAGES} images at least, and not about nearly all. "
            f"Received: {len(set().union(*words))} words about {len(words)} images"
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
    """Return the words that are learned, the most frequent first, equally frequent words in alphabetical order."""
    counts = collections.Counter(word for said in words for word in set(said))
    most = MAX_SHARE * len(words)
    frequent = [word for word, count in counts.items() if MIN_IMAGES <= count <= most and any(map(str.isalnum, word))]
    return sorted(frequent, key=lambda word: (-counts[word], word))[:MAX_WORDS]


def build(side, cells, shares):
    """Return two models of images (B, S, S, 3), values from 0 to 255: the network, to maps (B, G', G', D), G' >= G, and
    the model that is trained, to the log-odds of words in the image (B, V).

    The network halves the images down to the grid's cells, with twice the filters each time, at most D. The noisy-OR
    starts at the `shares` (V,) of the images that the words are about.
    """
    halvings = int(math.log2(side // cells))
    images = keras.Input((side, side, 3), name="images")
    maps = keras.layers.Rescaling(1 / 127.5, -1.0, name="scaled")(images)
    for number in range(halvings + 1):
        last = number == halvings
        maps = keras.layers.Conv2D(
            WIDTH if last else min(FIRST_FILTERS * 2**number, WIDTH),
            # A cell's features are its own, and not its neighbours'.
            1 if last else 3,
            # The largest maps are most of the work.
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
    # The noisy-OR of all cells is then the share.
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
    """Return the log-odds that a word is in one cell at least, (B, V), of those in each cell (B, G, G, V).

    1 - p = prod_cells sigmoid(-logit) = exp(-s) with s = sum_cells softplus(logit), and the log-odds are
    log(exp(s) - 1) = s + log(1 - exp(-s)): a large s does not overflow.
    """
    total = ops.maximum(ops.sum(ops.softplus(logits), axis=(1, 2)), _LEAST)
    return total + ops.log(-ops.expm1(-total))

"""A small network that learns to see the words about images: detectors of words, by multiple-instance learning.

Fang et al. 2015, "From captions to visual concepts and back": a word is in an image if it is in one of its cells, with
the probability of the noisy-OR, 1 - prod_cells (1 - p(word | cell)). So the network learns where a word is from labels
of whole images, and its last map has the features of cells.

Shapes: N images, B of a batch, S their side in pixels, G cells a side, D width of a cell's features, V words.
"""

import collections
import math
import types

import keras
import numpy as np
from keras import ops
from sklearn.metrics import average_precision_score

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
# Below it softplus(x) is exp(x), and expm1(x) is x, to the last bits of a float32.
_SMALL = -15.0


def train_detectors(pixels, words, options):
    """Return the models of `build`, trained, and the words; print a line an epoch, and the average precision on a tenth
    of the images, which is held out.

    Training images are uint8 (N, S, S, 3), `words` the lists of words about each; without a word about enough images,
    and not about nearly all, this is an `InputError`.
    """
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
    order = np.random.default_rng(SEED).permutation(len(words))
    held, kept = (np.sort(part) for part in np.split(order, [max(1, len(order) // 10)]))
    models = build(options, labels[kept].mean(axis=0))
    models.training.compile(keras.optimizers.Adam(LEARNING_RATE), keras.losses.BinaryCrossentropy(from_logits=True))
    arrays = pixels[kept], labels[kept]

    def say(epoch, logs):
        print(f"words: epoch {epoch + 1}/{EPOCHS}, loss {logs['loss']:.4f}", flush=True)

    models.training.fit(
        array_batches(arrays, BATCH_SIZE, SEED, first_epoch=0),
        steps_per_epoch=num_array_batches(arrays, BATCH_SIZE),
        epochs=EPOCHS,
        verbose=0,
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=say)],
    )
    scores = models.training.predict(pixels[held], batch_size=BATCH_SIZE, verbose=0)
    truth = labels[held] > 0
    known = np.flatnonzero(truth.any(axis=0))
    precision = [average_precision_score(truth[:, word], scores[:, word]) for word in known] or [math.nan]
    chance = [random_precision(truth[:, word].sum(), len(held)) for word in known] or [math.nan]
    print(
        f"words: average precision {np.mean(precision):.3f}, {np.mean(chance):.3f} by chance, of {len(known)} of "
        f"{len(vocabulary)} words on {len(held)} images that are held out",
        flush=True,
    )
    return models, vocabulary


def vocabulary_of(words):
    """Return the words that are learned, the most frequent first, equally frequent words in alphabetical order."""
    counts = collections.Counter(word for said in words for word in set(said))
    most = MAX_SHARE * len(words)
    kept = [word for word, count in counts.items() if MIN_IMAGES <= count <= most and any(map(str.isalnum, word))]
    return sorted(kept, key=lambda word: (-counts[word], word))[:MAX_WORDS]


def build(options, shares):
    """Return models of images (B, S, S, 3), values from 0 to 255: `network`, to maps (B, G', G', D), G' >= G, `cells`,
    to the log-odds of words in each cell (B, G', G', V), and `training`, to their log-odds in the image (B, V).

    The network halves the images down to the grid's cells, with twice the filters each time, at most D. The noisy-OR
    starts at the `shares` (V,) of the images that the words are about.
    """
    halvings = int(math.log2(options.side // options.cells))
    images = keras.Input((options.side, options.side, 3), name="images")
    maps = keras.layers.Rescaling(1 / 127.5, -1.0, name="scaled")(images)
    for number in range(halvings + 1):
        last = number == halvings
        maps = keras.layers.Conv2D(
            options.feature_units if last else min(FIRST_FILTERS * 2**number, options.feature_units),
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
    num_cells = maps.shape[1] * maps.shape[2]
    # The noisy-OR of all cells is then the share.
    of_cell = -np.log1p(-np.clip(shares, 1e-6, 1 - 1e-6)) / num_cells
    bias = np.log(np.expm1(of_cell))
    logits = keras.layers.Dense(
        len(shares),
        kernel_initializer=keras.initializers.GlorotUniform(SEED + halvings + 1),
        bias_initializer=lambda shape, dtype=None: ops.convert_to_tensor(bias, dtype),
        name="words",
    )(maps)
    return types.SimpleNamespace(
        network=keras.Model(images, maps),
        cells=keras.Model(images, logits),
        training=keras.Model(images, noisy_or(logits)),
    )


def noisy_or(logits):
    """Return the log-odds that a word is in one cell at least: log-odds in each cell (B, G, G, V) to (B, V).

    1 - p = prod_cells sigmoid(-logit) = exp(-s) with s = sum_cells softplus(logit), and the log-odds are
    log(exp(s) - 1), computed in log space: large logits neither underflow nor overflow.
    """
    safe = ops.maximum(logits, _SMALL)
    log_softplus = ops.where(logits < _SMALL, logits, ops.log(ops.softplus(safe)))
    log_sum = ops.logsumexp(log_softplus, axis=(1, 2))
    total = ops.sum(ops.softplus(logits), axis=(1, 2))
    safe = ops.maximum(total, math.exp(_SMALL))
    return ops.where(log_sum < _SMALL, log_sum, safe + ops.log(-ops.expm1(-safe)))


def random_precision(num_true, num):
    """Return the mean average precision of `num` images in random order, `num_true` of them true."""
    ranks = np.arange(1, num + 1)
    return float(np.mean((1 + (ranks - 1) * (num_true - 1) / max(num - 1, 1)) / ranks))

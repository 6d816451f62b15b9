"""Draw a picture of the attention weights for each word of a generated caption.

Shapes: T words, R regions.
"""

import numpy as np
import scipy.special

import keras_vattn
from applications.captioning.captions import Captions
from applications.captioning.data import Part, encode
from applications.captioning.model import MODELS
from applications.common.shown import random_rows
from applications.vision.codec import picture_of

NUM_PICTURES = 3
_SEED = 0


def draw_pictures(run, part, captions):
    """Write PNGs of random images to pictures/, with the attention weights of each caption word.

    For BAM, the top row shows weights from the prior, the bottom row from the posterior (Figure 1 of Fan et al. 2020).
    """
    for row in random_rows(len(part), NUM_PICTURES):
        picture = picture_of(run.codec.regions, part.sources, part.rows[row])
        if picture is not None and captions[row]:
            image, boxes = picture
            words, weights = attended(run, part, row, captions[row])
            is_drawn = len(weights) > 1
            title = " ".join(words) + ("; a new sample for each word" if is_drawn else "")
            rows = np.concatenate(list(weights.values()))
            labels = list(weights) if is_drawn else None
            path = run.folder.file(f"pictures/{part.captions.ids[row]}.png")
            keras_vattn.plots.image_attention(image, rows, boxes, words, labels, title, path=path)


def attended(run, part, row, caption):
    """Return the words of a caption, and a dictionary of attention weights (T, R).

    For BAM, the dictionary contains a sample "prior" and a sample "posterior". Otherwise, it contains only "weights".
    """
    captions = Captions([part.captions.ids[row]], [[caption]])
    encoded = encode(run.options, part.codec, Part(captions, part.sources))
    ((inputs, _),) = encoded.batches(run.options)
    words, num_regions = encoded.tokens[0], int(inputs["num_regions"][0])
    if MODELS[run.options.model].alignment in ("weibull", "lognormal"):
        with keras_vattn.posterior_draws(run.models.training, seed=np.array([_SEED, 0])):
            posterior = run.models.decode(**inputs)[0]["weights"]
        weights = {"prior": prior_draws(run, inputs, len(words)), "posterior": posterior[0]}
    else:
        weights = {"weights": run.models.decode(**inputs)[0]["weights"][0]}
    return words, {name: np.array(x)[: len(words), :num_regions] for name, x in weights.items()}


def prior_draws(run, inputs, num_words):
    """Return weights (T, R), sampled from the contextual prior, which does not depend on the word.

    The function samples the logarithms of the weights, because samples of Gamma(1e-6) underflow in float32.
    """
    decoded, memory, mask = run.models.decode(**inputs)
    p = run.models.decoder.attention.prior_distribution(decoded["query"], memory, value_mask=mask)
    log_draws = p.log_sample((num_words, *p.like.shape), keras_vattn.random.as_seed(_SEED))
    return scipy.special.softmax(np.array(log_draws)[:, 0, 0], axis=1)

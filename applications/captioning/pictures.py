"""Pictures of where a model looks for the words of its captions."""

import keras_vattn
from applications.captioning.captions import Captions
from applications.captioning.data import Part, encode
from applications.common.shown import random_rows
from applications.vision.codec import picture_of

NUM_PICTURES = 3


def draw_pictures(run, part, captions):
    """Draw where the model looks in some images for each word of its caption, at the mean of the attention: a PNG for
    each image in pictures/."""
    for row in random_rows(len(part), NUM_PICTURES):
        picture = picture_of(run.codec.regions, part.sources, part.rows[row])
        # A caption may lack words.
        if picture is not None and captions[row]:
            image, boxes = picture
            words, weights = attended(run, part, row, captions[row])
            path = run.folder.file(f"pictures/{part.captions.ids[row]}.png")
            keras_vattn.plots.image_attention(
                image, weights[:, : len(boxes)], boxes, words, title=" ".join(words), path=path
            )


def attended(run, part, row, caption):
    """Return the T words of a caption of an image, and their weights of the R regions, (T, R)."""
    captions = Captions([part.captions.ids[row]], [[caption]])
    encoded = encode(run.options, part.codec, Part(captions, part.sources))
    ((inputs, _),) = encoded.batches(run.options)
    words = encoded.tokens[0]
    return words, run.models.decode(**inputs)[0]["weights"][0, : len(words)].numpy()

"""Reads captions and the images that they are of, cuts parts, fits the vocabulary, and makes batches."""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from applications.captioning.captions import Captions, read_parts, split_images
from applications.captioning.metrics import require_pycocoevalcap
from applications.common.errors import InputError
from applications.text.options import PARTS
from applications.text.text import END, SPECIAL_TOKENS, START, UNKNOWN, Tokenizer, Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, open_sources
from applications.vision.images import Images
from applications.vision.program import Codec, require_some

# Seed of the embedded scenes, the same for all runs.
SCENES_SEED = 0
CAPTIONS_PER_SCENE = 3
# Side of their images in pixels.
SCENE_SIZE = 48


@dataclasses.dataclass
class Part:
    """Captions and the images that they are of, as they were read.

    Attributes:
        captions: `Captions`.
        sources: `Sources`.
        scenes: The `Scene` of each image where it is known, otherwise `None`.
        without_image: How many images were left out because they have no features.
    """

    captions: Captions
    sources: Sources
    scenes: list | None = None
    without_image: int = 0


def load(options):
    """Return the parts that the options describe: files, or captions of rendered scenes."""
    require_pycocoevalcap()
    given = options.captions
    if given.train_captions is None:
        return embedded(options)
    sources = open_sources(options.regions)
    found = read_parts({part: getattr(given, f"{part}_captions") for part in PARTS}, given.skip_invalid)
    found = {part: with_images(captions, sources, options) for part, captions in found.items()}
    if "valid" not in found:
        captions, held = split_images(found["train"].captions, given.valid_fraction, given.split_seed)
        found["train"].captions, found["valid"] = captions, Part(held, sources)
    return {part: found[part] for part in PARTS if part in found}


def embedded(options):
    """Return the parts of rendered scenes, 80 % for training."""
    rendered = scenes.scenes(options.captions.num_scenes, SCENES_SEED)
    columns = scenes.caption_columns(rendered, CAPTIONS_PER_SCENE)
    captions = [[] for _ in rendered]
    for row, text in zip(columns["row"], columns["text"], strict=True):
        captions[row].append(text)
    rest, test = split_images(Captions([str(row) for row in range(len(rendered))], captions), 0.1, 2)
    train, valid = split_images(rest, 1 / 9, options.captions.split_seed)
    sources = open_sources(options.regions, images_of(rendered))
    parts = {"train": train, "valid": valid, "test": test}
    return {name: Part(part, sources, [rendered[int(image)] for image in part.ids]) for name, part in parts.items()}


def images_of(rendered):
    """Return the `Images` of scenes."""
    ids = [str(row) for row in range(len(rendered))]
    return Images("scenes", ids, pixels=scenes.images_of(rendered, SCENE_SIZE))


def sources_of(options):
    """Return the `Sources` of a run."""
    if options.captions.train_captions is not None:
        return open_sources(options.regions)
    return open_sources(options.regions, images_of(scenes.scenes(options.captions.num_scenes, SCENES_SEED)))


def with_images(captions, sources, options):
    """Return the `Part` of the images that are there; `InputError` for others, unless they are to be left out."""
    kept = sources.require(captions.ids, options.regions.skip_missing)
    require_some(kept, "images that have captions")
    ids, texts = (list(itertools.compress(column, kept)) for column in (captions.ids, captions.captions))
    return Part(dataclasses.replace(captions, ids=ids, captions=texts), sources, None, int(np.sum(~kept)))


def words_of(captions):
    """Return the words of each caption, a list of lists of str: without punctuation, as published splits have them."""
    tokens = Tokenizer().token_lists(captions)
    return [[token for token in row if any(character.isalnum() for character in token)] for row in tokens]


def words_of_images(captions):
    """Return what `Captions` say, a dictionary from the ids of images to words."""
    return {
        image: [word for row in words_of(of_image) for word in row]
        for image, of_image in zip(captions.ids, captions.captions, strict=True)
    }


def codec_of(options, part):
    """Return the codec of the training part; a network that learns words is trained on its captions."""
    words = words_of_images(part.captions)
    vocabulary = Vocabulary.fit(words.values(), len(SPECIAL_TOKENS) + 10**6, options.captions.min_word_count)
    if len(vocabulary) == len(SPECIAL_TOKENS):
        raise InputError(
            f"--min-word-count: no word occurs {options.captions.min_word_count} times in the training captions."
        )
    return Codec(vocabulary, RegionCodec.fit(options.regions, part.sources, part.captions.ids, words))


@dataclasses.dataclass
class EncodedPart:
    """A part as the model sees it, of N images with C captions.

    Attributes:
        captions: `Captions`.
        sources: `Sources`.
        scenes: As those of a `Part`.
        codec: `Codec`.
        rows: Rows of the images in the regions, int64 (N,).
        image: Which of these images each caption is of, int32 (C,).
        texts: The captions, a list of C str.
        tokens: Their words, as many as are read, a list of C lists.
        target_input: What the decoder is fed, int32 (C, T): `<start>` and the words.
        target: What it is taught, int32 (C, T): the words and `<end>`.
        report: Counts, for the log.
    """

    captions: Captions
    sources: Sources
    scenes: list | None
    codec: Codec
    rows: np.ndarray
    image: np.ndarray
    texts: list
    tokens: list
    target_input: np.ndarray
    target: np.ndarray
    report: dict

    @classmethod
    def of(cls, options, codec, part):
        captions, most = part.captions, options.captions.max_length
        regions = codec.regions.regions_of(part.sources)
        image = np.repeat(np.arange(len(captions), dtype=np.int32), [len(texts) for texts in captions.captions])
        texts = [text for of_image in captions.captions for text in of_image]
        every = words_of(texts)
        tokens = [row[:most] for row in every]
        target_input, target = np.zeros((2, len(tokens), 1 + max(map(len, tokens))), np.int32)
        for row, of_caption in enumerate(tokens):
            ids = [codec.vocabulary.ids.get(word, UNKNOWN) for word in of_caption]
            target_input[row, : len(ids) + 1] = START, *ids
            target[row, : len(ids) + 1] = *ids, END
        report = {
            "images": len(captions),
            "captions": len(texts),
            "skipped": captions.skipped,
            "images_without_captions": captions.uncaptioned,
            "images_without_features": part.without_image,
            "captions_cut": sum(len(row) > most for row in every),
            "unknown_words": int(np.sum(target == UNKNOWN)),
            "images_with_more_regions": regions.num_cut(codec.regions.max_regions),
        }
        rows = regions.rows_of(captions.ids)
        return cls(captions, part.sources, part.scenes, codec, rows, image, texts, tokens, target_input, target, report)

    def __len__(self):
        return len(self.rows)

    def num_batches(self, batch_size):
        """Return how many batches an epoch has."""
        return -(-len(self.texts) // batch_size)

    def batches(self, options, first_epoch=None):
        """Return batches of (inputs, targets), a caption an example, as `Application.batches` has them."""
        with tf.device("CPU:0"):
            rows = tf.constant(self.rows[self.image])
            target_input, target = tf.constant(self.target_input), tf.constant(self.target)
        seed, batch_size = options.run.seed, options.fit.batch_size

        def of_epoch(epoch):
            order = tf.random.experimental.stateless_shuffle(tf.range(len(rows)), tf.stack([seed, epoch]))
            return tf.data.Dataset.from_tensor_slices(order).batch(batch_size)

        def of_captions(chosen):
            inputs = {"image": rows, "target_input": target_input, "target": target}
            inputs = {name: tf.gather(x, chosen) for name, x in inputs.items()}
            return inputs, inputs["target"]

        if first_epoch is None:
            dataset = tf.data.Dataset.range(len(rows)).batch(batch_size)
        else:
            dataset = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(of_epoch)
        return self.codec.regions.with_regions(dataset.map(of_captions), self.sources)

    def images(self, batch_size, chosen=None):
        """Return batches of (inputs,), an image an example: all in their order, or some."""
        rows = self.rows if chosen is None else self.rows[chosen]
        dataset = tf.data.Dataset.from_tensor_slices({"image": rows}).batch(batch_size)
        return self.codec.regions.with_regions(dataset.map(lambda inputs: (inputs,)), self.sources)

"""Read captions and images, split the captions, fit the vocabulary, and build batches."""

import collections
import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from applications.captioning.captions import Captions, read_parts, split_images
from applications.captioning.metrics import require_pycocoevalcap
from applications.common.batches import array_batches, num_array_batches
from applications.common.errors import InputError
from applications.text.batching import teacher_forced
from applications.text.options import PARTS
from applications.text.text import SPECIAL_TOKENS, UNKNOWN, Tokenizer, Vocabulary
from applications.vision import scenes
from applications.vision.codec import RegionCodec, Sources, open_sources
from applications.vision.program import Codec
from applications.vision.program import load_codec as load_codec  # imported by the commands from here

CAPTIONS_PER_SCENE = 3
SCENE_SIZE = 48


@dataclasses.dataclass
class Part:
    """Captions and their images. If the images are rendered, `scenes` contains the `Scene` of each image."""

    captions: Captions
    sources: Sources
    scenes: list | None = None


def read(options):
    """Return the `Part` of each split. Without caption files, render scenes: 80% train, 10% valid, 10% test."""
    require_pycocoevalcap()
    names, fraction, rendered = options.captions, options.captions.valid_fraction, None
    if names.train_captions is None:
        rendered = scenes.scenes(names.num_scenes)
        columns = scenes.caption_columns(rendered, CAPTIONS_PER_SCENE, names.scene_captions)
        texts = np.reshape(columns["text"], (-1, CAPTIONS_PER_SCENE)).tolist()
        train, test = split_images(Captions([str(row) for row in range(len(texts))], texts), 0.1, 2)
        parts, fraction = {"train": train, "test": test}, 1 / 9
    else:
        parts = read_parts({part: getattr(names, f"{part}_captions") for part in PARTS})
    sources = sources_of(options).subset([image for captions in parts.values() for image in captions.ids])
    if "valid" not in parts:
        parts["train"], parts["valid"] = split_images(parts["train"], fraction, 0)
    scenes_of = lambda ids: None if rendered is None else [rendered[int(image)] for image in ids]  # noqa: E731
    return {part: Part(parts[part], sources, scenes_of(parts[part].ids)) for part in PARTS if part in parts}


def read_other(options, evaluation):
    """Return a `Part` with the captions in the file `--captions` of `evaluate`. Without this option, return `None`."""
    if evaluation.captions is None:
        return None
    captions = read_parts({"test": evaluation.captions})["test"]
    return Part(captions, sources_of(options).subset(captions.ids))


def sources_of(options):
    """Return the `Sources` of a run: the images or features that its options name, or built-in scenes."""
    attributes = ("color", "shape", "row", "column")
    return open_sources(options.regions, options.captions.num_scenes, attributes, SCENE_SIZE)


def words_of(captions):
    """Return the list of words of each caption, without punctuation."""
    tokens = Tokenizer().token_lists(captions)
    return [[token for token in row if any(character.isalnum() for character in token)] for row in tokens]


def words_of_images(captions):
    """Return a dictionary that maps the id of each image to the words in all captions of the image."""
    words = [[word for row in words_of(texts) for word in row] for texts in captions.captions]
    return dict(zip(captions.ids, words, strict=True))


def codec_of(options, part):
    """Fit the vocabulary and the region features on the training data."""
    words = words_of_images(part.captions)
    counts = collections.Counter(itertools.chain.from_iterable(words.values()))
    min_count = options.captions.min_word_count
    vocabulary = Vocabulary.fit(counts, len(SPECIAL_TOKENS) + 10**6, min_count)
    if len(vocabulary) == len(SPECIAL_TOKENS):
        raise InputError(f"--min-word-count: no word occurs at least {min_count} times; lower the number.")
    return Codec(vocabulary, RegionCodec.fit(options.regions, part.sources, part.captions.ids, words))


@dataclasses.dataclass(kw_only=True)
class EncodedPart(Part):
    """An encoded `Part` of N images with C captions.

    Attributes:
        rows: For each image, its row in the region features, int64 (N,).
        image: For each caption, the number of its image, from 0 to N - 1, int32 (C,).
        texts: The captions, a list of C strings.
        tokens: A list of words for each caption, truncated to `max_length`.
        target_input: Inputs of the decoder, int32 (C, T): `<start>` and the words.
        target: Targets of the decoder, int32 (C, T): the words and `<end>`.
        report: Counts for the log.
    """

    codec: Codec
    rows: np.ndarray
    image: np.ndarray
    texts: list
    tokens: list
    target_input: np.ndarray
    target: np.ndarray
    report: dict

    def __len__(self):
        return len(self.rows)

    def num_batches(self, batch_size):
        return num_array_batches(self.target, batch_size)

    def batches(self, options, first_epoch=None):
        """Return batches (inputs, targets) of captions, in the order of `array_batches`."""
        arrays = {"image": self.rows[self.image], "target_input": self.target_input, "target": self.target}
        dataset = array_batches((arrays, self.target), options.fit.batch_size, options.run.seed, first_epoch)
        return self._with_regions(dataset)

    def images(self, batch_size, count=None):
        """Return batches (inputs,) of all images in order, or of the first `count` images."""
        dataset = tf.data.Dataset.from_tensor_slices(({"image": self.rows[:count]},)).batch(batch_size)
        return self._with_regions(dataset)

    def _with_regions(self, dataset):
        codec = self.codec.regions
        return codec.with_regions(dataset, codec.regions_of(self.sources))


def encode(options, codec, part, training=False):
    captions, max_length = part.captions, options.captions.max_length
    regions = codec.regions.regions_of(part.sources)
    image = np.repeat(np.arange(len(captions), dtype=np.int32), list(map(len, captions.captions)))
    texts = list(itertools.chain.from_iterable(captions.captions))
    words = words_of(texts)
    tokens = [row[:max_length] for row in words]
    ids = [[codec.vocabulary.ids.get(word, UNKNOWN) for word in row] for row in tokens]
    _, target_input, target = teacher_forced(ids, ids)
    report = {
        "images": len(captions),
        "captions": len(texts),
        "captions_without_words": captions.skipped,
        "images_without_captions": captions.uncaptioned,
        "captions_cut": sum(len(row) > max_length for row in words),
        "unknown_words": int(np.sum(target == UNKNOWN)),
        "images_with_more_regions": regions.num_cut(codec.regions.max_regions),
    }
    arrays = {"rows": regions.rows_of(captions.ids), "image": image, "target_input": target_input, "target": target}
    return EncodedPart(**vars(part), codec=codec, texts=texts, tokens=tokens, report=report, **arrays)

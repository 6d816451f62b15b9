"""Defines what `captioning` and `vqa` share: a codec, the outputs for images in an input file, an exported module."""

import dataclasses
import inspect
import os

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.records import read_record
from applications.common.runs import CODEC, write_json
from applications.common.serving import Untracked, in_graph, with_names
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary
from applications.vision.codec import RegionCodec
from applications.vision.extractors import extract
from applications.vision.images import Images, image_id

BATCH = 32
STRINGS = tf.TensorSpec([None], tf.string)
INTEGER = tf.TensorSpec([], tf.int32)


@dataclasses.dataclass
class Codec:
    """Converts texts and images to tensors, and back. `answers` lists the answers that a VQA model can give."""

    vocabulary: Vocabulary
    regions: RegionCodec
    answers: list | None = None

    def __post_init__(self):
        self.words = TextEncoder(Tokenizer(), self.vocabulary)

    def save(self, folder):
        config = {"words": self.vocabulary.tokens[len(SPECIAL_TOKENS) :]}
        write_json(folder.file(CODEC), config if self.answers is None else config | {"answers": self.answers})
        self.regions.save(folder)


def load_codec(options, folder):
    """Read the `Codec` that `Codec.save` wrote into a `RunFolder`."""
    config = read_record(folder.path / CODEC)
    return Codec(Vocabulary(config["words"]), RegionCodec.load(folder), config.get("answers"))


def answers_about(codec, names, sources_of, place, answer):
    """Return a list with one answer for each input line. A line names an image.

    Args:
        codec: `RegionCodec`.
        names: For each line, the id of an image. If the codec has an extractor, a path of an image file
            is also accepted. The answer to "" is `None`.
        sources_of: Function that returns the `Sources` of the ids; called only if `names` contains ids.
        place: Name of the input file. An `InputError` begins with "place:line".
        answer: Function `answer(numbers, regions)` that returns the answers to a batch of lines. `numbers` are the
            indices of these lines, and `regions` is the result of `Regions.read` for their images.
    """
    files = [number for number, name in enumerate(names) if os.path.isfile(name)]
    id_lines = [number for number, name in enumerate(names) if name and not os.path.isfile(name)]
    answers, batches = [None] * len(names), []
    if files:
        if codec.extractor is None:
            raise InputError(
                f"{place}:{files[0] + 1}: expected the id of an image, because this run has no extractor for files. "
                f"Received: {names[files[0]]}"
            )
        images = Images(".", [str(number) for number in files], files=[names[number] for number in files])
        batches.append((extract(codec.extractor, images), np.arange(len(files)), files))
    if id_lines:
        sources, ids = sources_of(), [image_id(names[number]) for number in id_lines]
        available_ids = set(sources.source.ids)
        for number, each in zip(id_lines, ids, strict=True):
            if each not in available_ids:
                raise InputError(
                    f"{place}:{number + 1}: expected an image file, or the id of an image in {sources.source.place}. "
                    f"Received: {names[number]!r}"
                )
        regions = codec.regions_of(sources.subset(ids))
        batches.append((regions, regions.rows_of(ids), id_lines))
    for regions, rows, numbers in batches:
        for start in range(0, len(rows), BATCH):
            batch = slice(start, start + BATCH)
            batch_answers = answer(numbers[batch], regions.read(rows[batch], codec.max_regions))
            for number, each in zip(numbers[batch], batch_answers, strict=True):
                answers[number] = each
    return answers


class ImageModule(tf.Module):
    """Base class of exported modules, with a model's variables and endpoints that take features. If the run has an
    extractor, the module also has endpoints that take JPEG or PNG strings."""

    def __init__(self, name, run, model):
        super().__init__(name=name)
        self.text_encoder = run.codec.words
        self.variables_of_model = [variable.value for variable in model.variables]
        extractor = run.codec.regions.extractor
        self.variables_of_extractor = [] if extractor is None else [variable.value for variable in extractor.variables]
        self._models, self._regions = Untracked(run.models), Untracked(run.codec.regions)
        self._names = []

    def add_endpoint(self, name, *signature):
        """Add the endpoint `name`, which calls the method `self._NAME`.

        If the run has an extractor, the endpoint `name` takes images, and a second endpoint, `NAME_features`, takes
        features. Otherwise, the endpoint `name` takes features. `signature` defines the other arguments of both
        endpoints.

        An endpoint for features takes features (B, R, D), boxes (B, R, 4) and numbers of regions (B,). Boxes are x0,
        y0, x1, y1 in [0, 1]; models trained without boxes ignore them. `self._NAME` takes the region inputs (B, R, D),
        the numbers of regions and the other arguments.
        """
        regions, method = self._regions.value, getattr(self, f"_{name}")
        argument_names = list(inspect.signature(method).parameters)[2:]

        def from_features(features, boxes, num_regions, *arguments):
            return method(*self._padded(regions.inputs(features, boxes), num_regions), *arguments)

        def from_images(images, *arguments):
            return method(*self._padded(*regions.regions_of_images(images)), *arguments)

        features = (tf.TensorSpec(shape, tf.float32) for shape in ([None, None, regions.width], [None, None, 4]))
        from_features = with_names(from_features, "features", "boxes", "num_regions", *argument_names)
        from_features = in_graph(*features, tf.TensorSpec([None], tf.int32), *signature)(from_features)
        takes_images = regions.extractor is not None
        from_images = in_graph(STRINGS, *signature)(with_names(from_images, "images", *argument_names))
        setattr(self, f"{name}_features", from_features)
        setattr(self, name, from_images if takes_images else from_features)
        self._names.append(name)

    @property
    def names(self):
        """Names of all endpoints. The first is the default endpoint."""
        names = tuple(self._names)
        return names if self._regions.value.extractor is None else (*names, *(f"{name}_features" for name in names))

    def _padded(self, regions, num_regions):
        """Return region inputs, cut or padded to `max_regions`, and the numbers of regions."""
        most = self._regions.value.max_regions
        missing = tf.maximum(most - tf.shape(regions)[1], 0)
        regions = tf.pad(regions[:, :most], [[0, 0], [0, missing], [0, 0]])
        regions = tf.ensure_shape(regions, [None, most, self._regions.value.model_width])
        return regions, tf.minimum(num_regions, most - missing)

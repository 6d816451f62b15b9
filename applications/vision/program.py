"""What the programs on images share: the codec of a run, the commands about named images, the exported module."""

import dataclasses
import json

import tensorflow as tf

from applications.common.application import Application
from applications.common.errors import InputError
from applications.common.runs import CODEC, write_json
from applications.common.serving import Untracked, in_graph
from applications.text.text import SPECIAL_TOKENS, TextEncoder, Tokenizer, Vocabulary
from applications.vision.codec import RegionCodec, named_regions
from applications.vision.features import read_words, write_features
from applications.vision.images import open_images

# Images that are answered about at once.
BATCH = 32
STRINGS = tf.TensorSpec([None], tf.string)
INTEGER = tf.TensorSpec([], tf.int32)


@dataclasses.dataclass
class Codec:
    """What turns texts and images into tensors, and back.

    Args:
        vocabulary: `Vocabulary` of the words.
        regions: `RegionCodec`.
        answers: List of the answers that are known, in a program that has them.
    """

    vocabulary: Vocabulary
    regions: RegionCodec
    answers: list | None = None

    def __post_init__(self):
        self.words = TextEncoder(Tokenizer(), self.vocabulary)

    def save(self, folder):
        found = {"words": self.vocabulary.tokens[len(SPECIAL_TOKENS) :]}
        write_json(folder.file(CODEC), found if self.answers is None else found | {"answers": self.answers})
        self.regions.save(folder)

    @classmethod
    def load(cls, folder):
        found = json.loads((folder.path / CODEC).read_text(encoding="utf-8"))
        return cls(Vocabulary(found["words"]), RegionCodec.load(folder), found.get("answers"))


class ImageApplication(Application):
    """An `Application` on images."""

    def load_codec(self, options, folder):
        return Codec.load(folder)

    def words_of(self, options):
        """Return what the program's own file of `FeaturesOptions` says about images; `None` if there is none."""
        raise NotImplementedError

    def features(self, options):
        """The command `features`."""
        words = self.words_of(options) if options.words is None else read_words(options.words)
        write_features(options, open_images(options.images), words)

    def answers_about(self, codec, names, sources_of, place, answer):
        """Return an answer about each of the images that names stand for, a list.

        Args:
            codec, names, sources_of, place: As `named_regions` has them.
            answer: Function from the numbers of some names and their regions, as `Regions.read` returns them, to as
                many answers.
        """
        answers = [None] * len(names)
        for regions, rows, numbers in named_regions(codec, names, sources_of, place):
            for start in range(0, len(rows), BATCH):
                chosen = numbers[start : start + BATCH]
                found = answer(chosen, regions.read(rows[start : start + BATCH], codec.max_regions))
                for number, each in zip(chosen, found, strict=True):
                    answers[number] = each
        return answers


def require_some(kept, what):
    """Raise `InputError` if of all examples none is kept, as none has an image."""
    if not kept.any():
        raise InputError(f"--skip-missing: none of the {len(kept)} {what} is there.")


class ImageModule(tf.Module):
    """What is exported: endpoints that take encoded images, where the features that the model was trained on can be
    made of them, and endpoints that take features.

    Args:
        name: Name of the module.
        run: `Run`.
        model: The model whose variables are exported.
    """

    def __init__(self, name, run, model):
        super().__init__(name=name)
        extractor = run.codec.regions.extractor
        self.text_encoder = run.codec.words
        self.variables_of_model = [variable.value for variable in model.variables]
        self.variables_of_extractor = [] if extractor is None else [variable.value for variable in extractor.variables]
        self._models, self._regions = Untracked(run.models), Untracked(run.codec.regions)
        self._names = []

    def offer(self, name, *signature):
        """Make endpoints of the methods `_NAME_images` and `_NAME_features`; `signature` is that of their arguments
        beside the image."""
        regions = self._regions.value
        features = (tf.TensorSpec(shape, tf.float32) for shape in ([None, None, regions.width], [None, None, 4]))
        of_features = in_graph(*features, tf.TensorSpec([None], tf.int32), *signature)(
            getattr(self, f"_{name}_features")
        )
        setattr(self, f"{name}_features", of_features)
        takes_images = regions.extractor is not None
        of_images = in_graph(STRINGS, *signature)(getattr(self, f"_{name}_images")) if takes_images else of_features
        setattr(self, name, of_images)
        self._names.append(name)

    @property
    def names(self):
        """Names of the endpoints, the default one first."""
        own = tuple(self._names)
        return own if self._regions.value.extractor is None else (*own, *(f"{name}_features" for name in own))

    def seen_images(self, images):
        """Return what `seen_features` does of encoded images, (B,) strings."""
        return self._padded(*self._regions.value.of_images(images))

    def seen_features(self, features, boxes, num_regions):
        """Return the regions that the model sees, as many as it takes, the first ones, and how many there are (B,).

        Args:
            features: (B, R, D).
            boxes: (B, R, 4), x0, y0, x1, y1 in [0, 1]; they may be zeros where the model was trained without.
            num_regions: (B,).
        """
        return self._padded(self._regions.value.inputs(features, boxes), num_regions)

    def _padded(self, regions, num_regions):
        most = self._regions.value.max_regions
        missing = tf.maximum(most - tf.shape(regions)[1], 0)
        regions = tf.pad(regions[:, :most], [[0, 0], [0, missing], [0, 0]])
        regions = tf.ensure_shape(regions, [None, most, self._regions.value.model_width])
        return regions, tf.minimum(num_regions, most - missing)

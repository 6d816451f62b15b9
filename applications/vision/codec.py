"""Converts images to the region features that a model reads.

Shapes: N images, B images in a batch, R regions, D features per region.
"""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from applications.common.batches import prefetched
from applications.common.errors import InputError
from applications.common.records import read_record
from applications.common.runs import write_json
from applications.vision import scenes
from applications.vision.extractors import Extractor, extract, extractor_beside, make_extractor
from applications.vision.images import Images, open_images, silenced_stderr
from applications.vision.options import REGIONS
from applications.vision.region_hdf5 import open_regions
from applications.vision.regions import MemoryRegions, Regions

_CONFIG = "regions.json"
_PLAIN = ("width", "max_regions", "use_boxes", "scale")
_EXTRACTOR = "extractor"
# Larger files are read batch by batch. This number of float32 features takes 256 MB.
_MOST_IN_MEMORY = 2**26
# With tf.data.AUTOTUNE, the memory use would depend on the machine.
_PARALLEL_BATCHES = 4
_WAITING_BATCHES = 2
_SMALLEST_BOX = 0.01  # Minimum width and height of a displayed box, as a fraction of the image size.
_NUM_SCALE = 256  # Maximum number of training images for `scale`.


@dataclasses.dataclass
class Sources:
    """Images and their region features. If `regions` is `None`, a codec computes the features from `images`. Pictures
    of attention weights need `images`."""

    images: Images | None
    regions: Regions | None

    @property
    def source(self):
        return self.images if self.regions is None else self.regions

    def subset(self, ids):
        """Return the `Sources` of these ids, or `self` if `regions` is set. Unknown ids raise `InputError`."""
        rows = self.source.rows_of(list(dict.fromkeys(ids)))
        return self if self.regions is not None else Sources(self.images.subset(np.sort(rows)), None)


def open_sources(options, num_scenes, attributes, size=64):
    """Return the `Sources` that `RegionOptions` select. If the options name no files, return built-in scenes. Without
    `--network`, the features of a scene are exact codes of the `attributes` of its objects."""
    if options.images is None and options.features is None:
        rendered = scenes.scenes(num_scenes)
        regions = None if options.network else scenes.regions_of(rendered, attributes)
        return Sources(scenes.images_of(rendered, size), regions)
    images = None if options.images is None else open_images(options.images)
    if options.features is None:
        return Sources(images, None)
    path = pathlib.Path(options.features)
    return Sources(images, open_regions(path / REGIONS if (path / REGIONS).exists() else path))


class RegionCodec:
    """Converts images to model inputs: features and, if `use_boxes`, boxes of up to `max_regions` regions.

    `width` is the number of features per region. `scale` is the standard deviation of training features. Without
    `extractor`, sources must contain features.
    """

    def __init__(self, width, max_regions, use_boxes=False, scale=1.0, extractor=None):
        self.width = width
        self.max_regions = max_regions
        self.use_boxes = use_boxes
        self.scale = scale
        self.extractor = extractor
        self._cache = {}

    @classmethod
    def fit(cls, options, sources, ids, words):
        """Return a codec that is fitted on the training images `ids`. `words` maps the id of an image to the words that
        describe the image. With `--network words`, a network is trained to detect these words."""
        if sources.regions is not None:
            extractor = None if options.features is None else extractor_beside(options.features)
            most = options.max_regions if options.features else int(max(sources.regions.counts))
            width, max_regions = sources.regions.width, min(options.max_regions, most)
        else:
            extractor = make_extractor(options, sources.images, words)
            width, max_regions = extractor.width, min(options.max_regions, len(extractor.boxes))
        codec = cls(width, max_regions, options.use_boxes, extractor=extractor)
        regions, subset = codec.regions_of(sources), list(dict.fromkeys(ids))[:_NUM_SCALE]
        features, _, counts = regions.read(regions.rows_of(subset), max_regions)
        codec.scale = float(np.std(features[np.arange(max_regions) < counts[:, None]]))
        return codec

    def save(self, folder):
        """Write the codec, with its extractor, into a `RunFolder`."""
        if self.extractor is not None:
            self.extractor.save(folder.path / _EXTRACTOR)
        config = {name: getattr(self, name) for name in _PLAIN}
        write_json(folder.file(_CONFIG), config | {"has_extractor": self.extractor is not None})

    @classmethod
    def load(cls, folder):
        """Read a codec from a `RunFolder`."""
        config = read_record(folder.path / _CONFIG)
        extractor = Extractor.load(folder.path / _EXTRACTOR) if config["has_extractor"] else None
        return cls(**{name: config[name] for name in _PLAIN}, extractor=extractor)

    @property
    def model_width(self):
        """Number of input values per region: `width`, and 4 more if boxes are used."""
        return self.width + 4 * self.use_boxes

    def regions_of(self, sources):
        """Return the region features of `sources`, computed from images if necessary. The result is cached."""
        source = sources.source
        # Without a reference to the source, Python could reuse its `id` for another object.
        if id(source) not in self._cache:
            self._cache[id(source)] = source, self._regions_of(sources)
        return self._cache[id(source)][1]

    def _regions_of(self, sources):
        regions = sources.regions
        if regions is None:
            if self.extractor is None:
                raise InputError("--images: this run was trained on features and has no extractor; set --features.")
            return extract(self.extractor, sources.images)
        if regions.width != self.width:
            raise InputError(f"--features: expected {self.width} features per region. Received: {regions.width}")
        num_regions = min(self.max_regions, int(max(regions.counts)))
        if len(regions) * num_regions * (regions.width + 4) > _MOST_IN_MEMORY:
            return regions
        features, boxes, counts = regions.read(np.arange(len(regions)), num_regions)
        return MemoryRegions(regions.place, regions.ids, counts, regions.width, features, boxes)

    def inputs(self, features, boxes):
        """Return the model's inputs (B, R, D). If `use_boxes`, their shape is (B, R, D + 4). Runs in graph mode."""
        return tf.concat([features, boxes], axis=-1) if self.use_boxes else features

    def with_regions(self, dataset, regions, blind=False):
        """Replace the input "image" with the inputs "regions" and "num_regions" in every batch. "image" contains
        indices (B,) of rows of `regions`. If `blind`, the input "regions" contains only zeros."""

        def add_regions(inputs, *rest):
            features, boxes, num_regions = regions.tensors(inputs.pop("image"), self.max_regions)
            region_inputs = self.inputs(features, boxes)
            return inputs | {
                "regions": tf.zeros_like(region_inputs) if blind else region_inputs,
                "num_regions": num_regions,
            }, *rest

        return prefetched(dataset.map(add_regions, num_parallel_calls=_PARALLEL_BATCHES), _WAITING_BATCHES)

    def regions_of_images(self, strings):
        """Convert JPEG or PNG strings (B,) to model inputs and region counts (B,). Runs in graph mode."""
        features = self.extractor(self.extractor.decode(strings))[:, : self.max_regions]
        shape = tf.shape(features)
        boxes = tf.broadcast_to(self.extractor.boxes[: self.max_regions], (shape[0], shape[1], 4))
        return self.inputs(features, boxes), tf.fill([shape[0]], shape[1])


def picture_of(codec, sources, row):
    """Return an image (H, W, 3) and the boxes of its regions, float32 (R, 4). `row` is the index of the image in the
    region features. If the image or its boxes are unknown, return `None`. Boxes without area are enlarged."""
    regions = codec.regions_of(sources)
    _, boxes, counts = regions.read(np.array([row]), codec.max_regions)
    boxes = boxes[0, : counts[0]]
    if sources.images is None or not np.any(boxes):
        return None
    boxes[:, :2] = np.minimum(boxes[:, :2], 1.0 - _SMALLEST_BOX)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + _SMALLEST_BOX)
    with silenced_stderr():
        return sources.images.read(sources.images.rows_of([regions.ids[row]])[0]), boxes

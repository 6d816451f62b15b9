"""Captions of images: the JSON of COCO, or a split by Karpathy.

The whole file is checked before anything is returned, and an `InputError` names the file and the place in it. Files may
end in ``.gz``; a byte-order mark at the start is dropped.
"""

import collections
import dataclasses
import itertools
import pathlib
import re
import reprlib
import sys

from applications.common.errors import InputError
from applications.text.options import PARTS
from applications.text.readers import ParallelText, read_json, split_by_group
from applications.vision.images import image_id

LAYOUTS = (
    'captions of COCO, {"images": [{"id"}], "annotations": [{"id", "image_id", "caption"}]}; '
    'or a split by Karpathy, {"images": [{"cocoid" or "filename", "split", "sentences": [{"raw"}]}]}; plain or .gz'
)
# restval are the images of COCO's validation set that everybody trains on.
SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}
_WORD = re.compile(r"[^\W_]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass
class Captions:
    """Ids of images, and the captions of each: at least one, without line breaks; and the numbers of captions without a
    word and of images without a caption that were left out."""

    ids: list
    captions: list
    skipped: int = 0
    uncaptioned: int = 0

    def __len__(self):
        return len(self.ids)


def read_parts(paths):
    """Return the captions of each part of a data set, a dictionary of `Captions` in the order train, valid, test.

    `paths` is a dictionary from the parts to a file or `None`. A split by Karpathy holds all parts: the file of a part
    is read for that part alone, and the training file also gives the parts without a file. A file of COCO is one part.
    What is left out is counted on standard error.
    """
    named = {part: paths[part] for part in PARTS if paths.get(part) is not None}
    files = {path: _read(path) for path in named.values()}
    parts = {}
    for part in PARTS:
        path = named.get(part, named.get("train"))
        content = files.get(path)
        if part in named and not isinstance(content, dict):
            parts[part] = content
        elif isinstance(content, dict) and part in content:
            parts[part] = content[part]
        elif part in named:
            received = ", ".join(content) or "no part"
            raise InputError(f"{path}: expected images of the {part} part. Received: images of {received}")
    for first, second in itertools.combinations(parts, 2):
        common = sorted(set(parts[first].ids) & set(parts[second].ids))
        if common:
            raise InputError(
                f"{named.get(second, named.get('train'))}: expected an image in one part only. Received: {len(common)} "
                f"images of the {second} part that are in the {first} part too, {', '.join(common[:5])}"
            )
    return parts


def split_images(captions, fraction, seed):
    """Return captions cut in two by image, `(train, held_out)`, as `split_by_group` does; counts go with `train`."""
    train, held_out = split_by_group(ParallelText(captions.ids, captions.captions), fraction, seed, group="image")
    return (
        dataclasses.replace(captions, ids=train.sources, captions=train.targets),
        Captions(held_out.sources, held_out.targets),
    )


def _read(path):
    """Return the `Captions` of a file; of a split by Karpathy a dictionary of them by part."""
    if pathlib.Path(str(path).removesuffix(".gz")).suffix in (".csv", ".tsv"):
        raise _unknown(path, "a table")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise _unknown(path, content)
    if isinstance(content.get("annotations"), list):
        return _captions(path, _coco(path, content["images"], content["annotations"]))
    parts = _split(path, content["images"])
    return {part: _captions(f"{path}, {part} part", images) for part, images in parts.items()}


def _coco(path, images, annotations):
    """Return a dictionary from the ids of images to the values of their captions."""
    captions = _images(path, [_image(path, image, "id") for image in images])
    seen = set()
    for annotation in annotations:
        image = _image(path, annotation, "image_id")
        if not {"id", "caption"} <= annotation.keys():
            raise _unknown(path, annotation)
        number = str(annotation["id"])
        if image not in captions or number in seen:
            expected = "one annotation with this id" if image in captions else "an image of the list of images"
            raise InputError(f"{path}: annotation {number} of image {image}: expected {expected}.")
        seen.add(number)
        captions[image].append(annotation["caption"])
    return captions


def _split(path, images):
    """Return the result of `_coco` for each part, a dictionary."""
    parts = {}
    for entry in images:
        image = _image(path, entry, "cocoid", "filename")
        sentences, split = entry.get("sentences"), entry.get("split")
        if not isinstance(sentences, list) or not all(isinstance(sentence, dict) for sentence in sentences):
            raise _unknown(path, entry)
        if str(split) not in SPLITS:
            raise InputError(f"{path}: image {image}: expected the split {', '.join(SPLITS)}. Received: {split!r}")
        parts.setdefault(SPLITS[split], []).append((image, [sentence.get("raw") for sentence in sentences]))
    return {part: _images(path, [image for image, _ in pairs]) | dict(pairs) for part, pairs in parts.items()}


def _images(path, ids):
    """Return a dictionary from ids to empty lists; `InputError` for an id that occurs twice."""
    repeated = [image for image, count in collections.Counter(ids).items() if count > 1]
    if repeated:
        raise InputError(
            f"{path}: expected every image once, whatever its folder. Received: {len(repeated)} images twice, "
            f"{', '.join(repeated[:5])}"
        )
    return {image: [] for image in ids}


def _captions(path, images):
    """Return the `Captions` of a dictionary of values; captions without a word and images without a caption are left
    out, and counted."""
    kept = {image: [" ".join(x.split()) for x in values if _is_caption(x)] for image, values in images.items()}
    captioned = {image: captions for image, captions in kept.items() if captions}
    if not captioned:
        raise InputError(f"{path}: expected images with captions. Received: none of {len(images)} has one")
    skipped = sum(map(len, images.values())) - sum(map(len, kept.values()))
    captions = Captions(list(captioned), list(captioned.values()), skipped, len(images) - len(captioned))
    for count, what in ((skipped, "captions without a word"), (captions.uncaptioned, "images without captions")):
        if count:
            print(f"{path}: {count} {what} were left out", file=sys.stderr)
    return captions


def _is_caption(value):
    return isinstance(value, str) and bool(_WORD.search(value)) and not _SURROGATE.search(value)


def _image(path, entry, *fields):
    """Return the id of the image that the first of the fields names."""
    name = next((entry[field] for field in fields if field in entry), None) if isinstance(entry, dict) else None
    if name is None:
        raise _unknown(path, entry)
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{path}: expected the name or the number of an image. Received: {reprlib.repr(name)}")
    return image_id(name)


def _unknown(path, entry):
    return InputError(f"{path}: captions are read from {LAYOUTS}. Received: {reprlib.repr(entry)}")

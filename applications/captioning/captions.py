"""Captions of images: the JSON of COCO, or a split by Karpathy.

Every reader checks the whole file before it returns anything, and every complaint is an `InputError` that names the
file and the place in it. Files may end in ``.gz``; a byte-order mark at the start is dropped.
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
    """Images with their captions.

    Args:
        ids: the id of each image, a str, as `applications.vision.images.image_id` makes them; none occurs twice.
        captions: the captions of each image, a list of list of str: at least one, without line breaks.
        skipped: how many captions of the file were left out because there was something wrong with them.
        uncaptioned: how many images of the file were left out because they have no caption.
    """

    ids: list
    captions: list
    skipped: int = 0
    uncaptioned: int = 0

    def __len__(self):
        return len(self.ids)


def read_parts(paths, skip_invalid=False):
    """Reads the captions of each part of a data set.

    A split by Karpathy holds all parts: the file of a part is read for that part alone, and that of the training part
    also gives those for which no file is named. A file of another layout is read whole. What is left out is counted on
    standard error.

    Args:
        paths: dict from "train", "valid" and "test", or some of them, to a file, or to `None` where there is none.
        skip_invalid: leave out captions that are empty, of an image that the file does not have, or with an id that
            was there before, and count them, instead of raising.

    Returns:
        Dict from the parts that there are to `Captions`, in the order train, valid, test.

    Raises:
        InputError: for a file that is missing, damaged or of no known layout, for a part that its file does not have,
            and for an image in two parts.
    """
    named = {part: paths[part] for part in PARTS if paths.get(part) is not None}
    read = {path: _read(path, skip_invalid) for path in named.values()}
    found = {}
    for part in PARTS:
        path = named.get(part, named.get("train"))
        content = read.get(path)
        if part in named and not isinstance(content, dict):
            found[part] = content
        elif isinstance(content, dict) and part in content:
            found[part] = content[part]
        elif part in named:
            parts = ", ".join(content) or "no part"
            raise InputError(f"{path}: expected images of the {part} part. Received: images of {parts}")
    for first, second in itertools.combinations(found, 2):
        common = sorted(set(found[first].ids) & set(found[second].ids))
        if common:
            raise InputError(
                f"{named.get(second, named.get('train'))}: expected an image in one part only. Received: {len(common)} "
                f"images of the {second} part that are in the {first} part too, {', '.join(common[:5])}"
            )
    return found


def split_images(captions, fraction, seed):
    """Cuts captions in two, `(train, held_out)`, by image; arguments and errors as of `split_by_group`.

    What was left out of the file counts for `train`.
    """
    train, held_out = split_by_group(ParallelText(captions.ids, captions.captions), fraction, seed)
    return (
        dataclasses.replace(captions, ids=train.sources, captions=train.targets),
        Captions(held_out.sources, held_out.targets),
    )


def _read(path, skip_invalid):
    """`Captions` of a file; of a split by Karpathy a dict of them by part."""
    if pathlib.Path(str(path).removesuffix(".gz")).suffix in (".csv", ".tsv"):
        raise _unknown(path, "a table")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise _unknown(path, content)
    if isinstance(content.get("annotations"), list):
        return _gathered(path, *_coco(path, content["images"], content["annotations"]), skip_invalid)
    parts = _split(path, content["images"])
    return {part: _gathered(f"{path}, {part} part", *found, skip_invalid) for part, found in parts.items()}


# Each of these returns the ids of the images, one an image or more, and the rows of the captions: a row is the place,
# the image, the caption, and what is wrong with it.


def _coco(path, images, annotations):
    ids = [_image(path, image, "id") for image in images]
    _require_once(path, ids)
    known, seen, rows = set(ids), set(), []
    for annotation in annotations:
        image = _image(path, annotation, "image_id")
        if not {"id", "caption"} <= annotation.keys():
            raise _unknown(path, annotation)
        number = str(annotation["id"])
        fault = None if image in known else "expected an image of the list of images"
        if number in seen:
            fault = "expected one annotation with this id"
        seen.add(number)
        rows.append((f"{path}: annotation {number} of image {image}", image, annotation["caption"], fault))
    return ids, rows


def _split(path, images):
    """The same for each part, a dict."""
    found = {}
    for entry in images:
        image = _image(path, entry, "cocoid", "filename")
        sentences, split = entry.get("sentences"), entry.get("split")
        if not isinstance(sentences, list) or not all(isinstance(sentence, dict) for sentence in sentences):
            raise _unknown(path, entry)
        if str(split) not in SPLITS:
            raise InputError(f"{path}: image {image}: expected the split {', '.join(SPLITS)}. Received: {split!r}")
        ids, rows = found.setdefault(SPLITS[split], ([], []))
        ids.append(image)
        for number, sentence in enumerate(sentences, start=1):
            rows.append((f"{path}: caption {number} of image {image}", image, sentence.get("raw"), None))
    for ids, _ in found.values():
        _require_once(path, ids)
    return found


def _require_once(path, ids):
    repeated = [image for image, count in collections.Counter(ids).items() if count > 1]
    if repeated:
        raise InputError(
            f"{path}: expected every image once, whatever its folder. Received: {len(repeated)} images twice, "
            f"{', '.join(repeated[:5])}"
        )


def _gathered(path, ids, rows, skip_invalid):
    """The `Captions` of rows, the images in the order of `ids`; says what is left out."""
    found, skipped = {image: [] for image in ids}, 0
    for place, image, caption, fault in rows:
        if fault is None and not (
            isinstance(caption, str) and _WORD.search(caption) and not _SURROGATE.search(caption)
        ):
            fault = "expected a caption that is not empty"
        if fault is None:
            found[image].append(" ".join(caption.split()))
        elif skip_invalid:
            skipped += 1
        else:
            raise InputError(
                f"{place}: {fault}; mend it, or skip such captions where the command has --skip-invalid. "
                f"Received: {reprlib.repr(caption)}"
            )
    captioned = {image: captions for image, captions in found.items() if captions}
    if not captioned:
        raise InputError(f"{path}: expected images with captions. Received: none of {len(found)} has one")
    captions = Captions(list(captioned), list(captioned.values()), skipped, len(found) - len(captioned))
    for count, what in ((skipped, "captions that cannot be used"), (captions.uncaptioned, "images without captions")):
        if count:
            print(f"{path}: {count} {what} were left out", file=sys.stderr)
    return captions


def _image(path, entry, *fields):
    """The id of the image that the first of the fields names."""
    name = next((entry[field] for field in fields if field in entry), None) if isinstance(entry, dict) else None
    if name is None:
        raise _unknown(path, entry)
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InputError(f"{path}: expected the name or the number of an image. Received: {reprlib.repr(name)}")
    return image_id(name)


def _unknown(path, entry):
    return InputError(f"{path}: captions are read from {LAYOUTS}. Received: {reprlib.repr(entry)}")

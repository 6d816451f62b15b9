"""Read image captions from a JSON file in the format of COCO or of the Karpathy splits.

Files may end in ``.gz``. A reader checks the whole file before it returns. An `InputError` names the file and the
position of the error.
"""

import collections
import dataclasses
import itertools
import sys
from typing import Literal

from typing_extensions import TypedDict

from applications.common.errors import InputError
from applications.text.options import PARTS
from applications.text.readers import ParallelText, json_entries, read_json, split_by_group
from applications.vision.images import image_id

COCO = '{"images": [{"id"}], "annotations": [{"image_id", "caption"}]}'
KARPATHY = '{"images": [{"filename", "split", "sentences": [{"raw"}]}]}'
LAYOUTS = f"captions of COCO, {COCO}, or a Karpathy split, {KARPATHY}"
# "restval" contains the images of COCO's validation set that most papers use for training.
SPLITS = {"train": "train", "restval": "train", "val": "valid", "test": "test"}


@dataclasses.dataclass
class Captions:
    """Image ids, and a list of captions for each image.

    `skipped` counts captions without words. `uncaptioned` counts images without captions. Both are left out.
    """

    ids: list
    captions: list
    skipped: int = 0
    uncaptioned: int = 0

    def __len__(self):
        return len(self.ids)


def read_parts(paths):
    """Return a dictionary that maps each split to its `Captions`, in the order train, valid, test.

    `paths` maps each split to a file or `None`. A COCO file contains one split. A Karpathy file contains all splits. If
    the training file is a Karpathy file, it also provides the splits that have no file. The numbers of skipped captions
    and images are printed to standard error.
    """
    contents = {part: _read(paths[part], part) for part in PARTS if paths.get(part) is not None}
    parts = {}
    for part in PARTS:
        content = contents.get(part, contents.get("train", {}))
        if part in content:
            parts[part] = content[part]
        elif part in contents:
            received = ", ".join(content) or "no split"
            raise InputError(f"{paths[part]}: expected images of the {part} split. Received: images of {received}")
    for first, second in itertools.combinations(parts, 2):
        common = sorted(set(parts[first].ids) & set(parts[second].ids))
        if common:
            raise InputError(
                f"{paths.get(second) or paths['train']}: expected an image in one split only. Received: {len(common)} "
                f"images of the {second} split that are also in the {first} split: {', '.join(common[:5])}"
            )
    return parts


def split_images(captions, fraction, seed):
    """Return `(train, held_out)`, split by image with `split_by_group`. `train` gets the counts of skipped captions."""
    train, held_out = split_by_group(ParallelText(captions.ids, captions.captions), fraction, seed, group="image")
    rest = dataclasses.replace(captions, ids=train.sources, captions=train.targets)
    return rest, Captions(held_out.sources, held_out.targets)


class _CocoImage(TypedDict):
    id: int | str


class _Annotation(TypedDict):
    image_id: int | str
    caption: str


class _Sentence(TypedDict):
    raw: str


class _SplitImage(TypedDict):
    filename: str
    split: Literal[tuple(SPLITS)]
    sentences: list[_Sentence]


def _read(path, part):
    """Return a dictionary that maps each split in a file to its `Captions`; `part` is the split of a COCO file."""
    content = read_json(path)
    if isinstance(content, dict) and "annotations" in content:
        images = [image_id(image["id"]) for image in json_entries(path, content, "images", _CocoImage, LAYOUTS)]
        entries = json_entries(path, content, "annotations", _Annotation, LAYOUTS)
        return {part: _captions(path, images, [(image_id(x["image_id"]), x["caption"]) for x in entries])}
    images, pairs = collections.defaultdict(list), collections.defaultdict(list)
    for entry in json_entries(path, content, "images", _SplitImage, LAYOUTS):
        part, image = SPLITS[entry["split"]], image_id(entry["filename"])
        images[part].append(image)
        pairs[part] += [(image, sentence["raw"]) for sentence in entry["sentences"]]
    return {part: _captions(f"{path}, {part} split", images[part], pairs[part]) for part in images}


def _captions(path, images, pairs):
    captions_of = {image: [] for image in images}
    if len(captions_of) < len(images):
        repeated = [image for image, count in collections.Counter(images).items() if count > 1]
        raise InputError(f"{path}: expected one entry per image. Received: several for {', '.join(repeated[:5])}")
    skipped = 0
    for image, caption in pairs:
        if image not in captions_of:
            raise InputError(f"{path}: expected captions only of listed images. Received: a caption of image {image}")
        if any(map(str.isalnum, caption)):
            captions_of[image].append(" ".join(caption.split()))
        else:
            skipped += 1
    captioned = {image: captions for image, captions in captions_of.items() if captions}
    if not captioned:
        raise InputError(f"{path}: expected images with captions. Received: no captions for {len(images)} images")
    uncaptioned = len(images) - len(captioned)
    for count, kind in ((skipped, "captions without a word"), (uncaptioned, "images without captions")):
        if count:
            print(f"{path}: {count} {kind} were skipped", file=sys.stderr)
    return Captions(list(captioned), list(captioned.values()), skipped, uncaptioned)

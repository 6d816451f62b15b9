"""Reads images from a folder or an array, by id. A file that is not an image raises an `InputError` with its path.

Shapes: N images, B images in a batch, H x W pixels of an image, S x S pixels of a resized image.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import sys

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError, reading
from applications.common.progress import progress

ENDINGS = (".jpg", ".jpeg", ".png")
# Published region features have file names such as image.jpg.npz.
_ENDING = re.compile(rf"({'|'.join(map(re.escape, (*ENDINGS, '.npz', '.npy')))})+$", re.IGNORECASE)
_NUMBER = re.compile(r"\A(?:COCO_[A-Za-z]+\d{4}_)?0*([0-9]+)\Z", re.ASCII)
# EXIF: tag of the orientation, and type of 16-bit integers.
_ORIENTATION, _SHORT = 0x0112, 3


def image_id(name):
    """Return the id of an image as a str.

    `name` is a number, or the name or path of a file, with or without its extension. The id of a number or of a COCO
    file is the number without leading zeros.

    >>> image_id("images/COCO_train2014_000000000139.jpg"), image_id(139), image_id("synpic54610.jpg")
    ('139', '139', 'synpic54610')
    """
    stem = _ENDING.sub("", pathlib.PurePath(str(name)).name)
    return _NUMBER.sub(r"\1", stem)


@dataclasses.dataclass
class ById:
    """Base class of collections of elements with distinct string ids. `place` is their folder or file."""

    place: dataclasses.InitVar[str]
    ids: list

    def __post_init__(self, place):
        # If `place` were a field, the digest of the data would change with their path.
        self.place = str(place)

    def __len__(self):
        return len(self.ids)

    def rows_of(self, ids):
        """Return the row numbers of ids, int64. An `InputError` names up to five unknown ids."""
        row_of = {each: row for row, each in enumerate(self.ids)}
        missing = [each for each in dict.fromkeys(ids) if each not in row_of]
        if missing:
            received = f"{len(missing)} of {len(set(ids))} ids without an image, {', '.join(missing[:5])}"
            raise InputError(f"{self.place}: expected an image for every id. Received: {received}")
        return np.array([row_of[each] for each in ids], np.int64)


@contextlib.contextmanager
def silenced_stderr():
    """Hide libjpeg's messages about damaged files. These messages do not name the files."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


@dataclasses.dataclass
class Images(ById):
    """N images, from files or from an array. `files` lists paths in the folder `place`. If `files` is `None`, `pixels`
    is uint8 (N, H, W, 3)."""

    files: list | None = None
    pixels: np.ndarray | None = None

    def read(self, row):
        """Return the image in a row, uint8 (H, W, 3); raise `InputError` if it cannot be decoded."""
        if self.files is None:
            return self.pixels[row]
        path = pathlib.Path(self.place, self.files[row])
        try:
            with tf.device("CPU:0"):
                return decode_image(path.read_bytes()).numpy()
        except tf.errors.OpError as error:
            raise InputError(f"{path}: expected a valid JPEG or PNG.") from error

    def subset(self, rows):
        files = None if self.files is None else [self.files[row] for row in rows]
        pixels = None if self.pixels is None else self.pixels[rows]
        return Images(self.place, [self.ids[row] for row in rows], files, pixels)

    def batches(self, size, batch_size=64, title="images"):
        """Yield images resized to S = `size`, uint8 (B, S, S, 3). Raise `InputError` if an image cannot be decoded."""

        def resized_row(row):
            with tf.device("CPU:0"):
                return resized(self.read(row), size).numpy()

        with concurrent.futures.ThreadPoolExecutor() as pool:
            for start in progress(range(0, len(self), batch_size), title):
                rows = range(start, min(start + batch_size, len(self)))
                with silenced_stderr():
                    images = list(pool.map(resized_row, rows))
                yield np.stack(images)


def open_images(path):
    """Return the `Images` in a folder and its subfolders, or in an .npz file. An .npz file contains one uint8 array (N,
    H, W, 3). The id of a file is the `image_id` of its name. Hidden files are ignored."""
    path = pathlib.Path(path)
    if not path.is_dir():
        pixels = _read_array(path)
        return Images(path, [str(row) for row in range(len(pixels))], pixels=pixels)
    files = sorted(
        str(file.relative_to(path))
        for file in path.rglob("*")
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
    )
    if not files:
        raise InputError(f"{path}: expected files that end in {', '.join(ENDINGS)}. Received: none")
    file_of = {}
    for file in files:
        if (other := file_of.setdefault(image_id(file), file)) != file:
            raise InputError(f"{path}: expected one image with id {image_id(file)}. Received: {other} and {file}")
    return Images(path, list(file_of), files=files)


def _read_array(path):
    expected = "a folder of images, or an .npz with one uint8 array (N, H, W, 3)"
    # `np.load(path)` would not close a file that it cannot read. Unpickling could run code from the file.
    with reading(path, expected), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        (name,) = archive.files
        array = archive[name]
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or not array.size:
            raise ValueError(f"{array.dtype} {array.shape}")
    return array


def decode_image(content):
    """Decode the bytes of a JPEG or PNG to an image, uint8 (H, W, 3). Runs in graph mode. Grey becomes RGB, and 16 bits
    become 8 bits. Transparency is ignored. EXIF data determine the rotation."""
    # `decode_png` also reads JPEG. `tf.io.decode_image` would read a BMP with a palette as a grey image.
    return _upright(tf.io.decode_png(content, channels=3), content)


@tf.function(
    input_signature=[tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([], tf.string)],
    autograph=False,
)
def _upright(image, content):
    """Return an image (H, W, 3) upright. `content`, the image file, contains the EXIF orientation."""
    orientation = _orientation(content)

    def turned():
        swapped = tf.cond(orientation >= 5, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
        is_reversed = [tf.reduce_any(orientation == values) for values in ((3, 4, 7, 8), (2, 3, 6, 7))]
        return tf.reverse(swapped, tf.boolean_mask([0, 1], is_reversed))

    return tf.cond(orientation > 1, turned, lambda: image)


def _orientation(content):
    """Return the EXIF orientation of a JPEG or PNG, 1 to 8. If EXIF is missing, return 1 (upright)."""
    before = tf.where(tf.strings.substr(content, 0, 4) == b"\x89PNG", b"eXIf", b"Exif\0\0")
    # Without the added zeros, `substr` would read past the end of a damaged file.
    tiff = tf.strings.join([tf.strings.split(content, before, maxsplit=1)[-1], bytes(24)])
    size, is_little = tf.strings.length(tiff), tf.strings.substr(tiff, 0, 4) == b"II*\0"
    is_tiff = is_little | (tf.strings.substr(tiff, 0, 4) == b"MM\0*")

    def numbers(start, kind, count=1):
        field = tf.strings.substr(tiff, start, count * kind.size)
        return tf.cast(tf.where(is_little, *(tf.io.decode_raw(field, kind, x) for x in (True, False))), tf.int32)

    start = numbers(4, tf.int32)[0]
    start = tf.where((start >= 8) & (start < size - 14), start, size - 14)
    num_entries = tf.minimum(numbers(start, tf.uint16)[0], (size - start - 2) // 12)
    # A TIFF entry consists of a tag (16 bits), a type (16), a number of values (32) and the value (32).
    entries = tf.reshape(numbers(start + 2, tf.uint16, 6 * num_entries), (-1, 6))
    values = tf.boolean_mask(entries[:, 4], (entries[:, 0] == _ORIENTATION) & (entries[:, 1] == _SHORT))
    value = tf.concat([values, [1]], axis=0)[0]
    return tf.where(is_tiff & (value >= 1) & (value <= 8), value, 1)


def resized(image, size):
    """Resize an image (H, W, 3) to uint8 (S, S, 3), with S = `size`. An image of this size is unchanged."""
    scaled = tf.image.resize(image, (size, size), antialias=True)
    return tf.saturate_cast(tf.round(scaled), tf.uint8)

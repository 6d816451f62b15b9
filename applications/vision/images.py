"""Images of a folder or of an array, by id; what is no image is an `InputError` that names it.

Shapes: N images, B of a batch, H and W the height and width of an image in pixels, S the side of a resized one.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import re
import zipfile
import zlib

import numpy as np
import tensorflow as tf

from applications.common.errors import InputError
from applications.common.progress import progress

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
# Also those of files of features, which are named after the files of the images.
_ENDING = re.compile(rf"({'|'.join(map(re.escape, (*ENDINGS, '.npz', '.npy')))})+$", re.IGNORECASE)
_UNREADABLE = (
    *(AttributeError, EOFError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)
_DECODES = "expected an image that decodes"
_NUMBER = re.compile(r"(?:COCO_[A-Za-z]+\d{4}_)?0*([0-9]+)", re.ASCII)


def image_id(name):
    """Return the id of an image, a str.

    Args:
        name: Path or name of a file, with or without its ending, or a number. A number and the name of a COCO image,
            such as COCO_train2014_000000000139 or 000000000139.jpg, give the number without leading zeros.

    Example:

    >>> image_id("images/COCO_train2014_000000000139.jpg"), image_id(139), image_id("synpic54610.jpg")
    ('139', '139', 'synpic54610')
    """
    stem = _ENDING.sub("", pathlib.PurePath(str(name)).name)
    number = _NUMBER.fullmatch(stem)
    return stem if number is None else number[1]


def rows_by_id(place, known, ids, skip_missing=False):
    """Return the rows of ids, int64 (len(ids),).

    Args:
        place: What the error begins with.
        known: List of the ids that there are, a row each.
        ids: List of ids.
        skip_missing: Whether one that there is not gets the row -1.

    Raises:
        InputError: For ids that there are not; it counts the different ones and names the first five.
    """
    row_of = {each: row for row, each in enumerate(known)}
    rows = np.array([row_of.get(each, -1) for each in ids], np.int64).reshape(-1)
    missing = list(dict.fromkeys(each for each, row in zip(ids, rows, strict=True) if row < 0))
    if missing and not skip_missing:
        raise InputError(
            f"{place}: expected an image of every id. Received: {len(missing)} of {len(set(ids))} ids without one, "
            f"{_first(missing)}"
        )
    return rows


@contextlib.contextmanager
def reading(place):
    """Turn what the reading of damaged files raises into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        raise InputError(f"{place}: expected a file that can be read. Received: {error}") from error


@dataclasses.dataclass
class Images:
    """Images by id.

    Args:
        place: Folder or file that they are in.
        ids: List of N str.
        files: List of N paths in the folder; or `None`.
        pixels: uint8 (N, H, W, 3) instead of them.
    """

    place: dataclasses.InitVar[str]
    ids: list
    files: list | None = None
    pixels: np.ndarray | None = None

    def __post_init__(self, place):
        # No field: what is read is the same wherever it lies.
        self.place = str(place)

    def __len__(self):
        return len(self.ids)

    def name(self, row):
        """Return the place of an image, for messages."""
        return f"{self.place}:{row}" if self.files is None else str(pathlib.Path(self.place, self.files[row]))

    def read(self, row):
        """Return an image, uint8 (H, W, 3); `InputError` if it does not decode."""
        if self.files is None:
            return self.pixels[row]
        path = self.name(row)
        try:
            with tf.device("CPU:0"):
                return decode_image(pathlib.Path(path).read_bytes()).numpy()
        except tf.errors.OpError as error:
            raise InputError(f"{path}: {_DECODES}. Received: {_reason(error)}") from error

    def rows_of(self, ids, skip_missing=False):
        """Return the rows of ids, as `rows_by_id` has them."""
        return rows_by_id(self.place, self.ids, ids, skip_missing)

    def some(self, rows):
        """Return the `Images` of some rows."""
        return Images(
            self.place,
            [self.ids[row] for row in rows],
            None if self.files is None else [self.files[row] for row in rows],
            None if self.pixels is None else self.pixels[rows],
        )

    def check(self):
        """Raise `InputError` if images do not decode, as `batches` does."""
        if self.files is not None:
            collections.deque(self.batches(1, title="checking images"), maxlen=0)

    def batches(self, size, rows=None, batch_size=64, title="images"):
        """Yield images of one size, uint8 (B, S, S, 3), in the order of their rows.

        Args:
            size: S.
            rows: Rows of the images; all of them by default.
            batch_size: B, the last one may be smaller.
            title: Name of the progress line; `None` for none.

        Raises:
            InputError: After the last batch, for all images that do not decode: it counts them and names the first
                five.
        """
        rows = range(len(self)) if rows is None else rows
        errors = {}

        def resized_row(row):
            try:
                with tf.device("CPU:0"):
                    return resized(self.read(row), size).numpy()
            except InputError as error:
                errors[row] = error
                return np.zeros((size, size, 3), np.uint8)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            starts = range(0, len(rows), batch_size)
            for start in starts if title is None else progress(starts, title):
                yield np.stack(list(pool.map(resized_row, rows[start : start + batch_size])))
        if len(errors) == 1:
            raise next(iter(errors.values()))
        if errors:
            names = [self.files[row] for row in sorted(errors)]
            raise InputError(
                f"{self.place}: expected images that decode. Received: {len(names)} of {len(rows)} that do not, "
                f"{_first(names)}"
            )


def open_images(path):
    """Return the `Images` of a folder, searched through, or of an .npz file.

    Args:
        path: Folder with files that end in .jpg, .jpeg, .png, .bmp or .gif, whose ids are those of `image_id`; files
            whose names begin with a dot are none. Or an .npz with one uint8 array (N, H, W, 3), the ids 0, 1, ...

    Raises:
        InputError: If there is no image, if two have one id, or if the .npz holds something else. Whether a file
            decodes is known when it is read.
    """
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
        raise InputError(f"{path}: expected files that end in {', '.join(ENDINGS)}. Received: a folder without any")
    ids = [image_id(file) for file in files]
    file_of = {}
    for each, file in zip(ids, files, strict=True):
        if file_of.setdefault(each, file) != file:
            raise InputError(f"{path}: expected one image of the id {each}. Received: {file_of[each]} and {file}")
    return Images(path, ids, files=files)


def _read_array(path):
    if not path.is_file():
        raise InputError(f"{path}: expected a folder of images or an .npz file. Received: nothing of this name")
    # Opened here: NumPy leaves one that it cannot read open. Never allow_pickle: unpickling runs code of the file.
    with reading(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        names = archive.files
        array = archive[names[0]] if len(names) == 1 else None
    if array is None:
        raise InputError(f"{path}: expected an .npz of one array. Received: {', '.join(names) or 'none'}")
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or not array.size:
        raise InputError(f"{path}: expected a uint8 array (N, H, W, 3). Received: {array.dtype} {array.shape}")
    return array


def decode_image(content):
    """Return the image that a string of bytes holds, uint8 (H, W, 3), in graph.

    JPEG, PNG, BMP and the first picture of a GIF. Grey becomes RGB, 16 bits become 8, transparency is left out. A BMP
    with a palette is refused: its indices would be read as grey.
    """
    is_bitmap = tf.strings.regex_full_match(tf.strings.substr(content, 0, 2), "BM")
    # Its header says after 28 bytes how many bits a pixel has.
    bits = tf.io.decode_raw(tf.strings.substr(tf.strings.join([content, " " * 30]), 28, 1), tf.uint8)[0]
    assertion = tf.debugging.Assert(~is_bitmap | (bits >= 16), ["a BMP with a palette; save it as PNG"])
    with tf.control_dependencies([] if assertion is None else [assertion]):
        return tf.io.decode_image(content, channels=3, expand_animations=False)


def resized(image, size):
    """Return an image (H, W, 3) as uint8 (S, S, 3), in graph; one of that size as it is."""
    scaled = tf.image.resize(image, (size, size), antialias=True)
    return tf.saturate_cast(tf.round(scaled), tf.uint8)


def _first(names):
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _reason(error):
    """Return what TensorFlow says of an error in one line, without the name of the operation; or what we say."""
    own = re.search(r"Summarized data: b'(.*)'", error.message)
    return own[1] if own else re.sub(r"^\{\{.*?\}\} | \[Op:.*$|\n.*", "", error.message, flags=re.DOTALL)

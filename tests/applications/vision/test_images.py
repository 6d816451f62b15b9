"""Tests that images of all supported kinds are read correctly, and that errors name an invalid file."""

import io
import os
import pickle
import shutil

import numpy as np
import pytest
import tensorflow as tf
from files import fails
from PIL import Image, ImageOps

from applications.common.runs import digest_of
from applications.vision.images import decode_image, image_id, open_images, resized

generator = np.random.default_rng(0)
PIXELS = generator.integers(0, 256, (6, 5, 3), dtype=np.uint8)


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


ALPHA = generator.integers(0, 256, (6, 5, 1), dtype=np.uint8)
GREY = PIXELS[..., :1]
KINDS = {
    "rgb.png": (png(PIXELS), PIXELS),
    "grey.PNG": (png(GREY), np.repeat(GREY, 3, axis=-1)),
    "rgba.png": (png(np.concatenate([PIXELS, ALPHA], axis=-1)), PIXELS),
    "grey_alpha.png": (png(np.concatenate([GREY, ALPHA], axis=-1)), np.repeat(GREY, 3, axis=-1)),
    "deep.png": (png(PIXELS.astype(np.uint16) * 256 + 77), PIXELS),
    "deep_grey.png": (png(GREY.astype(np.uint16) * 256 + 77), np.repeat(GREY, 3, axis=-1)),
    "photo.jpeg": (tf.io.encode_jpeg(np.full((9, 7, 3), 90, np.uint8)).numpy(), np.full((9, 7, 3), 90)),
    "grey.jpg": (tf.io.encode_jpeg(np.full((9, 7, 1), 90, np.uint8)).numpy(), np.full((9, 7, 3), 90)),
    # The content of a file determines its format, not the file name.
    "named.jpg": (png(PIXELS), PIXELS),
}
BROKEN = {
    "cut.jpg": KINDS["photo.jpeg"][0][:-40],
    "start.jpg": KINDS["photo.jpeg"][0][:300],
    "half.png": KINDS["rgb.png"][0][:-30],
    "empty.png": b"",
    "text.png": b"no image",
    "old.jpg": b"BM" + bytes(100),
    "zeros.jpg": bytes(100),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_files(tmp_path, name):
    content, expected = KINDS[name]
    (tmp_path / name).write_bytes(content)
    images = open_images(tmp_path)
    decoded = images.read(0)
    assert (images.ids, decoded.dtype) == ([name.partition(".")[0]], np.uint8)
    np.testing.assert_array_equal(decoded, expected)
    # The graph of an exported model decodes the same pixels.
    decode = tf.function(decode_image, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    np.testing.assert_array_equal(decode(content), expected)


def with_orientation(kind, endian, orientation):
    """Return the file of an image of four colours whose EXIF tag says that the camera was rotated."""
    pixels = np.array([[(250, 0, 0), (0, 250, 0)], [(0, 0, 250), (250, 250, 250)]], np.uint8)
    exif, file = Image.Exif(), io.BytesIO()
    exif.endian = endian
    exif.update({0x010F: "a maker", 0x0112: orientation, 0x0131: "a program"})
    Image.fromarray(pixels.repeat(8, axis=0).repeat(16, axis=1)).save(file, kind, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("endian", "<>")
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_photograph_is_read_upright(tmp_path, kind, endian):
    decode = tf.function(decode_image, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    for orientation in range(10):
        content = with_orientation(kind, endian, orientation)
        with Image.open(io.BytesIO(content)) as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        (tmp_path / "photo.jpg").write_bytes(content)
        for pixels in (open_images(tmp_path).read(0), decode(content).numpy()):
            assert pixels.shape == expected.shape, orientation
            np.testing.assert_allclose(pixels.astype(int), expected, atol=4, err_msg=str(orientation))


def test_damaged_exif_is_ignored():
    intact, name = with_orientation("JPEG", ">", 6), b"MM\0*\0\0\0\x08"
    for wrong in (b"XX\0*\0\0\0\x08", b"MM\0*\xff\xff\xff\xff", b"MM\0*\x7f\xff\xff\xff", b"MM\0*\0\0\0\x3f"):
        assert decode_image(intact.replace(name, wrong)).shape == (16, 32, 3)
    assert decode_image(intact).shape == (32, 16, 3)


@pytest.mark.parametrize("name", BROKEN)
def test_undecodable_images_are_named(tmp_path, name, capfd):
    (tmp_path / "fine.png").write_bytes(KINDS["rgb.png"][0])
    (tmp_path / name).write_bytes(BROKEN[name])
    images = open_images(tmp_path)
    fails(lambda: list(images.batches(4)), f"{tmp_path / name}: expected a valid JPEG or PNG")
    assert "JPEG" not in capfd.readouterr().err


def test_batches_are_images_of_one_size_in_order(tmp_path):
    for number, shape in enumerate([(8, 8), (3, 20), (11, 2), (8, 8), (1, 1)]):
        (tmp_path / f"{number}.png").write_bytes(png(np.full((*shape, 3), 40 * number, np.uint8)))
    images = open_images(tmp_path)
    batches = list(images.batches(8, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    expected = np.broadcast_to(np.arange(5)[:, None, None, None] * 40, (5, 8, 8, 3))
    np.testing.assert_array_equal(np.concatenate(batches), expected)
    (chosen,) = images.subset(np.array([4, 1])).batches(8)
    np.testing.assert_array_equal(chosen, expected[[4, 1]])


def test_resizing_keeps_what_fits_and_averages_what_is_made_smaller():
    np.testing.assert_array_equal(resized(PIXELS[:5], 5), PIXELS[:5])
    stripes = np.where(np.arange(64) % 4, 0, 200).astype(np.uint8)[None, :, None].repeat(64, 0).repeat(3, -1)
    # Without antialiasing the stripes would vanish.
    assert np.abs(resized(stripes, 16).numpy()[:, 1:-1].astype(int) - 50).max() <= 5


@pytest.mark.parametrize(
    "name, expected",
    [
        (139, "139"),
        (np.int64(139), "139"),
        ("000000000139", "139"),
        ("COCO_train2014_000000000139", "139"),
        ("a/b.c/COCO_test-dev2015_000000000139.jpg", "COCO_test-dev2015_000000000139"),
        ("val/COCO_val2014_000000123456.jpg.npz", "123456"),
        ("0.png", "0"),
        ("synpic54610.jpg", "synpic54610"),
        ("figure.1.2.JPEG", "figure.1.2"),
        ("figure.1.2", "figure.1.2"),
        ("12a.png", "12a"),
        ("-3", "-3"),
    ],
)
def test_ids(name, expected):
    assert image_id(name) == expected


def test_a_folder_is_searched_through(tmp_path):
    for name in ("b/000000000002.jpg", "a/z.PNG", "COCO_val2014_000000000010.png", "b/.hidden.png", "read.me"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(KINDS["rgb.png"][0])
    images = open_images(tmp_path)
    assert images.ids == ["10", "z", "2"]
    assert len(images) == 3
    np.testing.assert_array_equal(images.rows_of(["2", "10", "2"]), [2, 0, 2])
    assert images.rows_of([]).dtype == np.int64
    missing = ["x1", "2", "x2", "x3", "x1", "x4", "x5", "x6"]
    fails(
        lambda: images.rows_of(missing),
        f"{tmp_path}: expected an image for every id. Received: 6 of 7 ids without an image, x1, x2, x3, x4, x5",
    )
    (tmp_path / "2.png").write_bytes(b"")
    fails(lambda: open_images(tmp_path), f"one image with id 2. Received: 2.png and {os.path.join('b', '0000')}")


def test_the_digest_of_images_does_not_depend_on_their_folder(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a.png").write_bytes(KINDS["rgb.png"][0])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    first, second = (open_images(tmp_path / name) for name in ("one", "two"))
    assert digest_of(first) == digest_of(second)
    shutil.copy(tmp_path / "two/a.png", tmp_path / "two/b.png")
    assert digest_of(first) != digest_of(open_images(tmp_path / "two"))


def test_an_array(tmp_path):
    np.savez(tmp_path / "images.npz", any_name=np.stack([PIXELS, 255 - PIXELS]))
    images = open_images(tmp_path / "images.npz")
    assert images.ids == ["0", "1"]
    np.testing.assert_array_equal(images.read(1), 255 - PIXELS)
    (batch,) = images.batches(3)
    np.testing.assert_array_equal(batch[0], resized(PIXELS, 3))


def test_invalid_sources_of_images(tmp_path):
    fails(lambda: open_images(tmp_path), f"{tmp_path}: expected files that end in .jpg, .jpeg, .png. Received")
    path = tmp_path / "images.npz"
    expected = f"{path}: expected a folder of images, or an .npz with one uint8 array (N, H, W, 3). Received: "
    fails(lambda: open_images(path), expected)
    wrong = {
        "float32 (1, 6, 5, 3)": {"x": PIXELS[None] / np.float32(255)},
        "uint8 (6, 5, 3)": {"x": PIXELS},
        "uint8 (2, 6, 5, 1)": {"x": np.stack([GREY, GREY])},
        "uint8 (0, 6, 5, 3)": {"x": PIXELS[None][:0]},
        "too many": {"x": PIXELS[None], "y": PIXELS[None]},
        "allow_pickle=False": {"x": np.array([{}], dtype=object)},
    }
    for received, arrays in wrong.items():
        np.savez(path, **arrays)
        fails(lambda: open_images(path), expected, received)
    np.savez_compressed(path, x=np.zeros((3, 9, 9, 3), np.uint8))
    intact = path.read_bytes()
    for content in (intact[:-30], intact[:60] + bytes(20) + intact[80:], b"text", b"", pickle.dumps([1])):
        path.write_bytes(content)
        fails(lambda: open_images(path), expected)

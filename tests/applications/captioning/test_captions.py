"""Tests both formats of caption files, invalid files, and splits by image."""

import json

import pytest
from files import fails, write

from applications.captioning.captions import Captions, read_parts, split_images

COCO = {
    "images": [{"id": 139, "file_name": "000000000139.jpg"}, {"id": 9}, {"id": 24}],
    "annotations": [
        {"image_id": 9, "id": 1, "caption": "A dog."},
        {"image_id": 139, "id": 2, "caption": " A\nman \u2028 rides. "},
        {"image_id": 24, "id": 3, "caption": "Café"},
        {"image_id": 9, "id": 4, "caption": "Two dogs."},
    ],
}
READ = Captions(["139", "9", "24"], [["A man rides."], ["A dog.", "Two dogs."], ["Café"]])


def saved(path, content):
    return write(path, json.dumps(content))


def karpathy(*rows):
    return {
        "images": [
            {"filename": name, "split": split, "sentences": [{"raw": raw, "tokens": raw.split()} for raw in captions]}
            for name, split, *captions in rows
        ]
    }


def read(path):
    return read_parts({"train": path})["train"]


@pytest.mark.parametrize("name", ["captions.json", "captions.json.gz"])
def test_captions_of_coco(tmp_path, name):
    """Captions are grouped by image in the order of the image list. Line breaks inside captions are removed."""
    assert read(saved(tmp_path / name, COCO)) == READ


def test_a_karpathy_file_has_all_splits(tmp_path):
    content = karpathy(
        ("images/synpic54610.jpg", "val", "v"),
        ("COCO_train2014_000000000002.jpg", "train", "a", "b"),
        ("3.jpg", "test", "t"),
        ("4.jpg", "restval", "c"),
    )
    path, other = saved(tmp_path / "dataset.json", content), saved(tmp_path / "other.json", COCO)
    train, test = Captions(["2", "4"], [["a", "b"], ["c"]]), Captions(["3"], [["t"]])
    valid = Captions(["synpic54610"], [["v"]])
    assert read_parts({"train": path, "valid": None}) == {"train": train, "valid": valid, "test": test}
    assert read_parts({"test": path}) == {"test": test}
    assert read_parts({"test": path, "train": other}) == {"train": READ, "test": test}
    # A validation file takes precedence over validation captions in the training file.
    assert read_parts({"train": path, "valid": other}) == {"train": train, "valid": READ, "test": test}


def test_a_missing_split(tmp_path):
    path = saved(tmp_path / "dataset.json", karpathy(("1", "train", "a"), ("2", "test", "b")))
    fails(lambda: read_parts({"train": path, "valid": path}), f"{path}: ", "valid split", "Received: ", "train, test")


def test_an_image_in_two_splits(tmp_path):
    path = saved(tmp_path / "a.json", COCO)
    other = saved(tmp_path / "b.json", karpathy(("COCO_train2014_000000000009.jpg", "test", "x")))
    fails(
        lambda: read_parts({"train": path, "test": other}), f"{other}: ", "1 images of the test split", "train split: 9"
    )


def test_captions_without_a_word_and_images_without_captions_are_counted(tmp_path, capsys):
    content = karpathy(("9", "train", "A dog.", "..."), ("10", "train", " \n\u2028"))
    path = saved(tmp_path / "split.json", content)
    assert read(path) == Captions(["9"], [["A dog."]], skipped=2, uncaptioned=1)
    assert capsys.readouterr().err == (
        f"{path}, train split: 2 captions without a word were skipped\n"
        f"{path}, train split: 1 images without captions were skipped\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (7, "Received at images: None"),
        ({"images": [{"id": 1}]}, "Received at images.0.filename"),
        ({"images": [{"id": 1}], "annotations": [{"image_id": 1, "bbox": [0]}]}, "annotations.0.caption"),
        ({"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": None}]}, "annotations.0.caption: None"),
        ({"images": [{"id": 1}], "annotations": [{"image_id": 2, "caption": "a"}]}, "a caption of image 2"),
        (
            {"images": [{"id": 1}, {"id": "1.jpg"}], "annotations": []},
            "expected one entry per image. Received: several for 1",
        ),
        ({"images": [{"id": 1}], "annotations": []}, "expected images with captions. Received: no captions for 1"),
        (karpathy(("1.jpg", "dev", "a")), "images.0.split: 'dev'"),
    ],
)
def test_wrong_files(tmp_path, content, message):
    path = saved(tmp_path / "layout.json", content)
    fails(lambda: read(path), f"{path}: ", message)


def test_images_are_not_shared_between_splits():
    ids = [str(index) for index in range(50)]
    captions = Captions(ids, [[f"{image} {number}" for number in range(5)] for image in ids], skipped=3, uncaptioned=2)
    train, held_out = split_images(captions, 0.2, seed=1)
    assert (len(train), len(held_out)) == (40, 10)
    assert sorted(train.ids + held_out.ids) == sorted(ids)
    for part in (train, held_out):
        assert all(len(texts) == 5 and texts[0].split()[0] == image for image, texts in zip(part.ids, part.captions))
    assert (train.skipped, train.uncaptioned, held_out.skipped, held_out.uncaptioned) == (3, 2, 0, 0)

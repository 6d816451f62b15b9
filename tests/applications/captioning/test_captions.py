"""Caption files of every layout, what must not be in them, and images that stay on one side of a cut."""

import gzip
import json

import pytest
from files import fails, write

from applications.captioning.captions import Captions, read_parts, split_images
from applications.common.runs import digest_of

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


def coco(*annotations, images=(139, 9)):
    return {"images": [{"id": image} for image in images], "annotations": list(annotations)}


def annotation(caption, image=9, number=7):
    return {"image_id": image, "id": number, "caption": caption}


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
    """In the order of the list of images, each caption with its image, on one line."""
    assert read(saved(tmp_path / name, COCO)) == READ
    assert read(write(tmp_path / f"mark-{name}", "\ufeff" + json.dumps(COCO))) == READ


def test_names_that_are_no_numbers(tmp_path):
    found = read(saved(tmp_path / "split.json", karpathy(("images/synpic54610.jpg", "train", "A scan."))))
    assert found.ids == ["synpic54610"]


def test_a_split_by_karpathy_has_all_parts(tmp_path):
    rows = [("1.jpg", "val", "v"), ("2.jpg", "train", "a", "b"), ("3.jpg", "test", "t"), ("4.jpg", "restval", "c")]
    content = karpathy(*rows)
    content["images"][0]["cocoid"] = 77
    path, other = saved(tmp_path / "dataset.json", content), saved(tmp_path / "other.json", COCO)
    train, valid, test = Captions(["2", "4"], [["a", "b"], ["c"]]), Captions(["77"], [["v"]]), Captions(["3"], [["t"]])
    assert read_parts({"train": path, "valid": None}) == {"train": train, "valid": valid, "test": test}
    assert read_parts({"test": path}) == {"test": test}
    assert read_parts({"test": path, "train": other}) == {"train": READ, "test": test}
    # A file that is named stands before the part of the training file.
    found = read_parts({"train": path, "valid": other})
    assert list(found) == ["train", "valid", "test"] and found["valid"] == READ
    assert read_parts({}) == {}


def test_a_part_that_the_split_does_not_have(tmp_path):
    path = saved(tmp_path / "dataset.json", karpathy(("1", "train", "a"), ("2", "test", "b")))
    assert list(read_parts({"train": path})) == ["train", "test"]
    fails(lambda: read_parts({"train": path, "valid": path}), f"{path}: ", "valid part", "Received: ", "train, test")
    fails(lambda: read(saved(tmp_path / "none.json", karpathy())), "none.json: ", "no part")
    wrong = saved(tmp_path / "wrong.json", karpathy(("1.jpg", "dev", "a")))
    fails(lambda: read(wrong), f"{wrong}: image 1: ", "train, restval, val, test", "'dev'")


def test_an_image_is_in_one_part_only(tmp_path):
    path = saved(tmp_path / "a.json", COCO)
    other = saved(tmp_path / "b.json", karpathy(("COCO_train2014_000000000009.jpg", "test", "x")))
    fails(lambda: read_parts({"train": path, "test": other}), f"{other}: ", "1 images of the test part", "train", ", 9")
    twice = saved(tmp_path / "twice.json", karpathy(("1.jpg", "train", "a"), ("0001.jpg", "val", "b")))
    fails(lambda: read_parts({"train": twice}), f"{twice}: ", "1 images of the valid part")


def test_an_image_stands_once_in_a_list_of_images(tmp_path):
    """Two files of one number in two folders would become one image with the captions of both."""
    content = {**COCO, "images": [*COCO["images"], COCO["images"][0]]}
    fails(
        lambda: read(saved(tmp_path / "coco.json", content)), "coco.json: expected every image once", "1 images twice"
    )
    twice = karpathy(("cats/1.jpg", "train", "a"), ("dogs/1.jpg", "train", "b"))
    fails(lambda: read(saved(tmp_path / "split.json", twice)), "split.json: expected every image once", "twice, 1")


@pytest.mark.parametrize("caption", ["", " \n\u2028", "...", None, 3, "a \ud800"])
def test_captions_without_a_word_are_counted(tmp_path, capsys, caption):
    good = annotation("A dog.", number=1)
    path = saved(tmp_path / "coco.json", coco(good, annotation(caption), images=[9]))
    assert read(path) == Captions(["9"], [["A dog."]], skipped=1)
    assert capsys.readouterr().err == f"{path}: 1 captions without a word were left out\n"
    content = karpathy(("9", "train", "A dog.", "x"))
    content["images"][0]["sentences"][1]["raw"] = caption
    split = saved(tmp_path / "split.json", content)
    assert read(split).skipped == 1


def test_an_annotation_belongs_to_one_image_that_there_is(tmp_path):
    first = annotation("A dog.", number=1)
    for name, wrong, parts in (
        ("unknown", annotation("x", image=5), ("annotation 7 of image 5: ", "list of images")),
        ("twice", annotation("x", number=1), ("annotation 1 of image 9: ", "one annotation with this id")),
        ("string", annotation("x", number="1"), ("annotation 1 of image 9: ", "one annotation with this id")),
    ):
        path = saved(tmp_path / f"{name}.json", coco(first, wrong, images=[9]))
        fails(lambda path=path, parts=parts: read(path), f"{path}: {parts[0]}", parts[1])


def test_images_without_captions_are_counted(tmp_path, capsys):
    path = saved(tmp_path / "coco.json", coco(annotation("A dog."), images=[139, 9, 24]))
    assert read(path) == Captions(["9"], [["A dog."]], uncaptioned=2)
    assert capsys.readouterr().err == f"{path}: 2 images without captions were left out\n"
    split = saved(tmp_path / "split.json", karpathy(("1", "train", "a"), ("2", "val", "b"), ("3", "val")))
    assert read_parts({"valid": split})["valid"].uncaptioned == 1
    assert capsys.readouterr().err == f"{split}, valid part: 1 images without captions were left out\n"
    for content in (coco(images=[9]), coco(images=[])):
        fails(lambda content=content: read(saved(tmp_path / "empty.json", content)), "empty.json: ", "with captions")


@pytest.mark.parametrize(
    "content",
    [
        {},
        7,
        {"images": [{"id": 1}]},
        {"images": [{"id": 1}], "annotations": [{"image_id": 1, "id": 1, "bbox": [0, 0, 1, 1]}]},
        {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a"}]},
        {"images": [{"id": 1}], "annotations": [{"id": 1, "caption": "a"}]},
        {"images": [{"id": 1}], "annotations": ["a"]},
        {"images": [{"file_name": "a.jpg"}], "annotations": []},
        {"images": ["a.jpg"], "annotations": []},
        {"images": [{"filename": "a.jpg", "split": "val", "sentences": ["a dog"]}]},
        [{"image_id": 1, "caption": "a"}],
    ],
)
def test_another_layout(tmp_path, content):
    path = saved(tmp_path / "layout.json", content)
    fails(lambda: read(path), f"{path}: ", '"annotations"', '"sentences"', "Received: ")


@pytest.mark.parametrize("image", [None, True, 1.5, "", ["a"], {"id": 1}])
def test_an_image_has_a_name_or_a_number(tmp_path, image):
    path = saved(tmp_path / "split.json", karpathy((image, "train", "a")))
    fails(lambda: read(path), f"{path}: ", "Received: ")


def test_what_is_no_json(tmp_path):
    fails(lambda: read(tmp_path / "none.json"), "none.json: ", "no such file")
    fails(lambda: read(write(tmp_path / "empty.json", "")), "empty.json: the file is empty")
    fails(lambda: read(write(tmp_path / "a.json", b'[\n{"file": "b\xe9"}]')), "a.json:2: ", "UTF-8")
    fails(lambda: read(write(tmp_path / "b.json", '[\n\n{"file": }]')), "b.json:3: ", "JSON")
    fails(lambda: read(write(tmp_path / "c.json", "[" * 100_000)), "c.json:1: ", "JSON")
    fails(lambda: read(write(tmp_path / "captions.csv", "image,caption\n1,a\n")), "captions.csv: ", "COCO", "a table")
    for name, content in (("cut.json.gz", gzip.compress(json.dumps(COCO).encode())[:-9]), ("plain.json.gz", b"[]")):
        (tmp_path / name).write_bytes(content)
        fails(lambda name=name: read(tmp_path / name), f"{name}: ", "not a whole gzip file")


def test_an_image_is_on_one_side_of_a_cut():
    ids = [str(index) for index in range(50)]
    captions = Captions(ids, [[f"{image} {number}" for number in range(5)] for image in ids], skipped=3, uncaptioned=2)
    train, held_out = split_images(captions, 0.2, seed=1)
    assert (len(train), len(held_out)) == (40, 10)
    assert sorted(train.ids + held_out.ids) == sorted(ids)
    for part in (train, held_out):
        assert all(len(found) == 5 and found[0].split()[0] == image for image, found in zip(part.ids, part.captions))
    assert (train.skipped, train.uncaptioned, held_out.skipped, held_out.uncaptioned) == (3, 2, 0, 0)
    assert split_images(captions, 0.2, seed=1) == (train, held_out)
    assert split_images(captions, 0.2, seed=2)[1].ids != held_out.ids


def test_the_digest_tells_captions_apart():
    others = [
        Captions(["9", "139", "24"], READ.captions),
        Captions(READ.ids, [["A man rides."], ["A dog.", "Two dogs"], ["Café"]]),
        Captions(READ.ids, [["A man rides."], ["A dog."], ["Two dogs.", "Café"]]),
    ]
    assert digest_of(READ) == digest_of(Captions(list(READ.ids), list(READ.captions)))
    assert len({digest_of(captions) for captions in (READ, *others)}) == 4

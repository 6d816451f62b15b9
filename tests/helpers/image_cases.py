"""Provides images with a coloured quarter, and questions and captions about these images."""

import io
import json

import numpy as np

COLORS = {"red": (220, 20, 20), "green": (20, 180, 20), "blue": (20, 20, 220)}


def color_of(row):
    return list(COLORS)[row % 3]


def colored_images(count):
    """Return images (count, 8, 8, 3), each with a coloured quarter. The index determines quarter and colour."""
    images = np.full((count, 8, 8, 3), 230, np.uint8)
    for row, image in enumerate(images):
        x, y = 4 * (row % 2), 4 * (row // 2 % 2)
        image[y : y + 4, x : x + 4] = COLORS[color_of(row)]
    return images


def array_of(array):
    """Return the bytes of an .npz with one array."""
    file = io.BytesIO()
    np.savez(file, array)
    return file.getvalue()


def question_table(rows):
    """Return a table of questions about `colored_images`."""
    lines = ["image\tquestion\tanswer"]
    for row in rows:
        color = color_of(row)
        lines += [f"{row}\twhat color is it ?\t{color}", f"{row}\tis it red ?\t{'yes' if color == 'red' else 'no'}"]
        lines += [f"{row}\tis it {color} ?\tyes", f"{row}\thow many {color} things are there ?\tone"]
    return "".join(f"{line}\n" for line in lines)


def caption_file(rows, more=()):
    """Return captions of `colored_images`, and additional (image, caption) pairs, in the JSON format of COCO."""
    pairs = []
    for row in rows:
        place = f"{('top', 'bottom')[row // 2 % 2]} {('left', 'right')[row % 2]}"
        pairs += [(row, f"a {color_of(row)} square"), (row, f"There is a {color_of(row)} square {place} .")]
    pairs += more
    annotations = [{"id": number, "image_id": row, "caption": text} for number, (row, text) in enumerate(pairs)]
    images = [{"id": row} for row in dict.fromkeys(row for row, _ in pairs)]
    return json.dumps({"images": images, "annotations": annotations})

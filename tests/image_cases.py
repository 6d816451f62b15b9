"""Images of a coloured quarter, and tables of questions about them and of their captions."""

import io

import numpy as np

COLORS = {"red": (220, 20, 20), "green": (20, 180, 20), "blue": (20, 20, 220)}


def color_of(row):
    return list(COLORS)[row % 3]


def colored_images(count):
    """Images (count, 8, 8, 3) with a quarter in a colour: which quarter and which colour the row says."""
    images = np.full((count, 8, 8, 3), 230, np.uint8)
    for row, image in enumerate(images):
        x, y = 4 * (row % 2), 4 * (row // 2 % 2)
        image[y : y + 4, x : x + 4] = COLORS[color_of(row)]
    return images


def array_of(array):
    """The bytes of an .npz of one array."""
    file = io.BytesIO()
    np.savez(file, array)
    return file.getvalue()


def question_table(rows):
    """Questions about `colored_images`, a table."""
    lines = ["image\tquestion\tanswer"]
    for row in rows:
        color = color_of(row)
        lines += [f"{row}\twhat color is it ?\t{color}", f"{row}\tis it red ?\t{'yes' if color == 'red' else 'no'}"]
        lines += [f"{row}\tis it {color} ?\tyes", f"{row}\thow many {color} things are there ?\tone"]
    return "".join(f"{line}\n" for line in lines)


def caption_table(rows):
    """Captions of `colored_images`, a table."""
    lines = ["image\tcaption"]
    for row in rows:
        place = f"{('top', 'bottom')[row // 2 % 2]} {('left', 'right')[row % 2]}"
        lines += [f"{row}\ta {color_of(row)} square", f"{row}\tThere is a {color_of(row)} square {place} ."]
    return "".join(f"{line}\n" for line in lines)

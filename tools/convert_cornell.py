"""Converts Cornell's movie dialogues (Danescu-Niculescu-Mizil and Lee 2011) to a table of pairs for applications.ved.

    python -m tools.convert_cornell CORPUS --out dialogue.tsv

The folder CORPUS contains movie_lines.txt and movie_conversations.txt. A pair consists of a line and the next line of
the conversation. Pairs with an empty line are skipped. The table has the columns line, reply and movie_id. To train:

    python -m applications.ved train --train-table dialogue.tsv --source-column line --target-column reply \
        --group-column movie_id
"""

import argparse
import ast
import itertools
import pathlib

_BETWEEN = " +++$+++ "


def convert(corpus, out):
    """Write the table `out`. Return the number of written pairs and the number of skipped pairs."""
    corpus, pairs = pathlib.Path(corpus), []
    lines = {fields[0]: " ".join(fields[4].split()) for fields in _rows(corpus / "movie_lines.txt", 5)}
    for *_, movie, names in _rows(corpus / "movie_conversations.txt", 4):
        spoken = [lines.get(name, "") for name in ast.literal_eval(names)]
        pairs += [(line, reply, movie) for line, reply in itertools.pairwise(spoken)]
    complete = [pair for pair in pairs if pair[0] and pair[1]]
    if not complete:
        raise SystemExit(f"{corpus}: expected conversations of at least two lines. Received: none")
    # The programs read quotation marks in a .tsv as text, so do not quote fields.
    rows = ["\t".join(row) for row in [("line", "reply", "movie_id"), *complete]]
    pathlib.Path(out).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(complete), len(pairs) - len(complete)


def _rows(path, num_fields):
    """Return the rows of a corpus file, each a list of `num_fields` strings."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="iso-8859-1").split("\n"), start=1):
        # An editor may have removed the final space of a line whose last field is empty.
        fields = f"{line.rstrip()} ".split(_BETWEEN)
        if line and len(fields) != num_fields:
            raise SystemExit(f"{path}: line {number}: expected {num_fields} fields. Received: {len(fields)}")
        rows += [[field.strip() for field in fields]] if line else []
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Cornell's movie dialogues as a table of pairs.")
    parser.add_argument("corpus", help="folder with movie_lines.txt and movie_conversations.txt")
    parser.add_argument("--out", required=True, help="the table to write, .tsv")
    options = parser.parse_args(arguments)
    num_pairs, num_skipped = convert(options.corpus, options.out)
    print(f"written: {options.out}, {num_pairs} pairs; {num_skipped} skipped, because a line is empty")


if __name__ == "__main__":
    main()

"""Converts gold word alignments from the table format of shared tasks to the format of applications.nmt.

    python -m tools.links_to_pharaoh gold.wa 447 > gold.pharaoh

gold.wa is a table for 447 sentence pairs. Each line is a link between two words, such as ``1 0 0 S``: sentence pair
(counted from 1), source word, target word, and ``S`` (sure) or ``P`` (possible). A link without a letter is sure. A
fifth field, the confidence, is ignored. If words are counted from 1, set ``--first-word 1``.
"""

import argparse
import pathlib
import re

_ROW = re.compile(r"([0-9]+)\s+([0-9]+)\s+([0-9]+)(?:\s+([SP]))?(?:\s+[0-9.]+)?")


def pharaoh_lines(path, num_pairs, first_word=0):
    """Return a line per sentence pair: ``i-j`` for sure links, ``ipj`` for possible links, "" for none."""
    links = [[] for _ in range(num_pairs)]
    for number, line in enumerate(pathlib.Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        match = _ROW.fullmatch(line.strip())
        if not match:
            raise SystemExit(
                f"{path}:{number}: expected 'pair i j', optionally with S or P. Received: {line.strip()!r}"
            )
        pair, i, j = int(match[1]), int(match[2]) - first_word, int(match[3]) - first_word
        if not 1 <= pair <= num_pairs:
            raise SystemExit(f"{path}:{number}: expected a pair from 1 to {num_pairs}. Received: {pair}")
        if min(i, j) < 0:
            raise SystemExit(f"{path}:{number}: expected word numbers >= {first_word}. Received: {line.strip()!r}")
        links[pair - 1].append(f"{i}{'p' if match[4] == 'P' else '-'}{j}")
    return [" ".join(row) for row in links]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("pairs", type=int)
    parser.add_argument("--first-word", type=int, default=0)
    arguments = parser.parse_args()
    try:
        print("\n".join(pharaoh_lines(arguments.table, arguments.pairs, arguments.first_word)))
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"error: {error}") from error

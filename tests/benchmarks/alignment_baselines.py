"""What simple methods score on gold word alignments, so that a model's F1 can be read.

python -m benchmarks.alignment_baselines SOURCE TARGET LINKS [TRAIN_SOURCE TRAIN_TARGET]

IBM model 1 is trained on the pairs themselves, and on them with the training pairs; the diagonal links words at the
same share of their sentences. Each line: F1 with its 95% interval over pairs, and the alignment error rate.
"""

import sys

from ibm1 import ibm1

from applications.nmt.alignments import Links, alignment_scores, bootstrap_interval
from applications.nmt.data import gold_links
from applications.text.readers import read_parallel


def diagonal(source, target):
    """Return the links of the words of `target` to those of `source` at the same share of the sentence."""
    num_source, num_target = len(source.split()), len(target.split())
    return Links(frozenset((min(j * num_source // num_target, num_source - 1), j) for j in range(num_target)))


def main(source, target, links, *training):
    pairs = read_parallel(source, target)
    gold = gold_links(links, pairs, skip_invalid=True)
    own = list(zip(pairs.sources, pairs.targets, strict=True))
    found = {"diagonal": [diagonal(*pair) for pair in own], f"IBM-1, {len(own)} pairs": ibm1(own)}
    if training:
        more = read_parallel(*training)
        both = [*own, *zip(more.sources, more.targets, strict=True)]
        found[f"IBM-1, {len(both)} pairs"] = ibm1(both)[: len(own)]
    for name, predicted in found.items():
        value, low, high = bootstrap_interval(predicted, gold, "f1")
        aer = alignment_scores(predicted, gold).aer
        print(f"{name}: F1 {value:.3f} [{low:.3f}, {high:.3f}], AER {aer:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

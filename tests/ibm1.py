"""IBM model 1, the baseline that an alignment score is read against."""

import numpy as np

from applications.nmt.alignments import Links


def ibm1(pairs, num_iterations=5):
    """Trains IBM model 1 by EM from uniform probabilities, and links each target word to its best source word.

    Args:
        pairs: list of (source, target), sentences as str of words joined by spaces.
        num_iterations: int, default 5.

    Returns:
        A list of `Links`, one per pair; a target word that is best explained by the empty source word has no link.
    """
    source_ids, target_ids = {None: 0}, {}
    # One entry per (pair, target word, source word): the row that it belongs to, and the two words.
    rows, source_entries, target_entries, lengths = [], [], [], []
    for source, target in pairs:
        words = [0] + [source_ids.setdefault(word, len(source_ids)) for word in source.split()]
        for word in target.split():
            rows.append(np.full(len(words), len(lengths)))
            source_entries.append(words)
            target_entries.append(np.full(len(words), target_ids.setdefault(word, len(target_ids))))
            lengths.append(len(words))
    rows, source_entries, target_entries = map(np.concatenate, (rows, source_entries, target_entries))
    kinds, entry_kinds = np.unique(source_entries * len(target_ids) + target_entries, return_inverse=True)
    kind_sources = kinds // len(target_ids)
    translation = np.full(len(kinds), 1.0 / len(target_ids))
    for _ in range(num_iterations):
        posterior = translation[entry_kinds]
        posterior = posterior / np.bincount(rows, posterior)[rows]
        counts = np.bincount(entry_kinds, posterior)
        translation = counts / np.bincount(kind_sources, counts)[kind_sources]
    scores = np.split(translation[entry_kinds], np.cumsum(lengths)[:-1])
    best = iter([int(np.argmax(row)) - 1 for row in scores])
    links = []
    for _, target in pairs:
        chosen = [(next(best), j) for j in range(len(target.split()))]
        links.append(Links(frozenset((i, j) for i, j in chosen if i >= 0)))
    return links

"""Contains code that all programs on text share, for files, tokens, batches, word vectors, and metrics of sentences."""

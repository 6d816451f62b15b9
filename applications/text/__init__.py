"""Code that all programs on text share: files, tokens, batches, word vectors, and metrics of sentences."""

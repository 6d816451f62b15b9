"""Contains the code that all text programs share: files, tokens, batches, word vectors and sentence metrics."""

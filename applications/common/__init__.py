"""What the applications share: reading, tokenising and batching text, word vectors, metrics."""

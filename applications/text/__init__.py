"""Code shared by programs on text: files, tokens, batches, word vectors, metrics of sentences."""

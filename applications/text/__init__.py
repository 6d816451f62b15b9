"""What programs that read and write text share: files, tokens, batches, word vectors, metrics of sentences."""

"""Parts of programs that read and write text: files, tokens, batches, word vectors, metrics of sentences."""

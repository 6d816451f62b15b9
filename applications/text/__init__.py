"""Code that all programs on text share: it reads files, tokenizes, batches, loads word vectors and rates sentences."""

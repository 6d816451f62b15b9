"""Neural machine translation: soft and latent alignments, and beam search."""

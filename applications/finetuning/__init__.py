"""Fine-tuning of a pretrained transformer, deterministic or with random attention."""

"""Fine-tuning of a pretrained transformer, with deterministic or stochastic attention."""

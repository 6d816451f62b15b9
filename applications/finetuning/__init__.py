"""Fine-tuning of a pretrained transformer, its attention as it is or drawn."""

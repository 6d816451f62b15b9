"""Variational encoder-decoder: question generation and dialogue with variational attention."""

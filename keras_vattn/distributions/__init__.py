"""Distributions of the rows of an alignment, and their KLs."""

"""Code that all programs share: it trains models, stores runs, defines commands, compares models and prints tables."""

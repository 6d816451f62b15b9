"""The parts that all programs share: runs, training, commands, comparisons, tables."""

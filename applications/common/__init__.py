"""Code shared by all programs: runs, training, commands, comparisons, tables."""

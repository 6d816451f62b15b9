"""What every program is made of, whatever its task: runs, training, commands, comparisons, tables."""

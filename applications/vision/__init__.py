"""Contains code that all programs on images share, to read images, compute region features and render scenes."""

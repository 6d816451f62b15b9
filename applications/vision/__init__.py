"""Code that all programs on images share: it reads images, computes region features and renders scenes."""

"""Code that all image programs share: it reads images, computes region features and renders scenes."""

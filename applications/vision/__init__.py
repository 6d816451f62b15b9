"""Code that all programs on images share: it reads images, computes features of image regions and renders scenes."""

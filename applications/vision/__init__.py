"""Code shared by programs on images: images, features of their regions, rendered scenes."""

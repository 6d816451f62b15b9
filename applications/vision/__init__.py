"""What programs on images share: images, features of their regions, rendered scenes."""

"""What the library's rooms share and users never import."""

"""What the metadata log says: the image, its records and levels of features."""

"""The corpus that ships with the translation program: German and English with known alignments."""

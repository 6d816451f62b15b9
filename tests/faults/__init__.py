"""The faults that `mutations.py` puts into the library: textual patches, and the tests that must notice."""

from faults import alignments, decoding, draws, latent_alignment, layers, recurrent, support

ROOMS = (alignments, decoding, draws, latent_alignment, layers, recurrent, support)
FAULTS = [fault for room in ROOMS for fault in room.FAULTS]

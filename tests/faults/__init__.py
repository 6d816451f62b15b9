"""The faults that `mutations.py` puts into the library and the programs: patches, and the tests that must notice."""

from faults import (
    alignments,
    captioning,
    decoding,
    draws,
    latent_alignment,
    layers,
    programs,
    recurrent,
    support,
    vision,
)

ROOMS = (alignments, captioning, decoding, draws, latent_alignment, layers, programs, recurrent, support, vision)
FAULTS = [fault for room in ROOMS for fault in room.FAULTS]

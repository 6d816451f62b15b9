"""The faults that `mutations.py` puts into the library and the programs: patches, and the tests that must notice."""

from faults import (
    alignments,
    captioning,
    decoding,
    draws,
    finetuning,
    graphs,
    latent_alignment,
    layers,
    programs,
    recurrent,
    support,
    vision,
    vrae,
)

ROOMS = (
    alignments,
    captioning,
    decoding,
    draws,
    finetuning,
    graphs,
    latent_alignment,
    layers,
    programs,
    recurrent,
    support,
    vision,
    vrae,
)
FAULTS = [fault for room in ROOMS for fault in room.FAULTS]

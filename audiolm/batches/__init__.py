"""Codes on disk become batches: who is held out, which windows, in which order, told what."""

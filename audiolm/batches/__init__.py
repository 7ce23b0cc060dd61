"""Codes on disk become batches: which clips, which windows, in which order, which conditions."""

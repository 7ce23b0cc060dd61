"""Recordings become the codes of a store: planned, decoded, encoded, in parts and after a kill."""

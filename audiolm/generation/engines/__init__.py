"""The ways to compute one step of decoding: eager, native (C++) and compiled; see `engine`."""

"""EnCodec's network as it is run: in chunks, in segments, clips of any lengths at once."""

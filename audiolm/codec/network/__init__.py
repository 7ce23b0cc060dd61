"""EnCodec's network as it is run: in pieces, in segments, clips of any lengths at once."""

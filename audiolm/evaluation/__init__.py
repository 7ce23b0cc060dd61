"""What can be told of a model, and of generated clips, without listening to them."""

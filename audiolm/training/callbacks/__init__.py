"""What happens beside the steps: checkpoints, the average of the weights, Ctrl-C, the bar."""

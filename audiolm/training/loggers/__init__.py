"""Where the numbers of a run go: metrics.csv and Weights & Biases."""

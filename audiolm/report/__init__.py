"""What a run leaves, on one page: its files read, plotted, and written as HTML."""

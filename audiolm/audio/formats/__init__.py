"""What decodes which file, chosen by what a file holds: libsndfile, the FFmpeg program, PyAV."""

"""Many pairs: the runner with its journals and threads, and batches of image pairs."""

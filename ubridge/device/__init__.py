"""State that ubridge keeps for each device: loaded images, kernels, layouts in device memory."""

"""What ubridge keeps of a device: images, kernels found once, layouts in its memory."""

"""Code without a device: layouts, the table of operations, promotion, accuracy, checks."""

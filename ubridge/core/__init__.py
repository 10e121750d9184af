"""What needs no device: layouts, the table of operations, promotion, accuracy, checks."""

"""The operations: operands, rule, reference and accuracy of each, one file for each kind."""

"""The assembler of `.topsfb` files: real containers, whose kernels run as host builds."""

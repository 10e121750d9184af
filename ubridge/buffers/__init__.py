"""Operations on buffers with layouts, for frameworks with tensors of their own."""

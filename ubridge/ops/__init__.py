"""Operations on tensors by numpy's rules: promotion, broadcast, results."""

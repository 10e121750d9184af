"""Operations that are described or traced once, and run many times."""

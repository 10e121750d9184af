"""Operations described or traced once and run as often as wanted."""

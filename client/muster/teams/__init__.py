"""Operations on teams, members, tokens and webhooks with their models."""

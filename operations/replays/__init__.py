"""Operations on plans: made, proposed, approved, rehearsed, applied."""

"""What a person has to complete first: password, second factor, first password; sessions and pauses."""

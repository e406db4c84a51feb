"""What a user's type checker sees."""

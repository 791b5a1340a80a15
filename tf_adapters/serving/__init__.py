"""What leaves Python: models for servers."""

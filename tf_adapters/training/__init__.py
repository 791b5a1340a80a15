"""What trains, and how."""

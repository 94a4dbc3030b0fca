"""What a person or CI runs on a fresh machine: setup, run, down. Owns no product logic."""

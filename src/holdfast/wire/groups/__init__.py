"""What groups agree on beside messages and records: where one lives, what consumers embed."""

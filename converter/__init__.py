"""netconv."""

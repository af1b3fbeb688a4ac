"""Concepts that several formats share."""

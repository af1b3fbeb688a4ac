"""Renderings of diagnostics and results: text.py for people, machine.py for programs (JSON, GitHub annotations, SARIF, JUnit)."""

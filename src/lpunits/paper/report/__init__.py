"""Turns records into tables, figures and pages. Never trains."""

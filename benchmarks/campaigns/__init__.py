"""Attacks that must come to nothing: damaged files, kills, wrong options, load, and every test of every family."""

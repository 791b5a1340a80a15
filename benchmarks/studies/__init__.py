"""Accuracy of methods and tasks over seeds, of whole trainings."""

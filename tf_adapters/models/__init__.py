"""The only room that touches transformers' modelling code."""

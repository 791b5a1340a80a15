"""What runs beside adapters on PyTorch, in an environment and processes of its own."""

"""What the package is measured, attacked and compared by. Each command is a script of this folder, which README.md lists."""

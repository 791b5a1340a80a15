"""What the package is measured and attacked by; the scripts of this folder are its commands."""

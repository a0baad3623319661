"""Where training happens: checkpoints and engines."""

"""A net, a reward model, a reward of explorers and a method of one's own: see docs/your-own.md. Each is chosen by its module and class."""

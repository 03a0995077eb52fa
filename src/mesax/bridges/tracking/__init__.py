"""Rows of runs in other people's tools: TensorBoard, Weights & Biases, CSV."""

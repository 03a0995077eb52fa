"""All that knows which world it is: presets, renders, figures, one folder a world."""

"""Any environment of a user's own: presets that fit whatever it is, and how its episodes are drawn."""

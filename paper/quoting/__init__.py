"""Pages that quote the store of results: blocks and numbers, each held against the store."""

"""Everything on disk: durable files, trees of arrays with checksums, settings as JSON, run directories."""

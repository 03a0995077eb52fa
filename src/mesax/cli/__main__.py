"""`python -m mesax.cli` is `mesax`."""

from mesax.cli.parser import main

raise SystemExit(main())

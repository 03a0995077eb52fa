"""What MESA is compared with: learners that search, learning on training tasks first, controls."""

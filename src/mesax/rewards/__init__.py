"""What is learned from, when it is not the task reward."""

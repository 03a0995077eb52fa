"""What is learnt from, when it is not the task reward."""

"""Small games of other papers, on which each baseline reproduces a result of its own authors."""

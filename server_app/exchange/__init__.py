"""The messages of a round: which client each node is, who is asked, what is sent, and which replies come back."""

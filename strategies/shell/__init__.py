"""What all strategies share: a round's messages to the clients, the way of replies to the rule, and its result."""

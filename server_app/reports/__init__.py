"""What a run says: a row for each round and client, the line of a round, progress, the model card, the plot."""

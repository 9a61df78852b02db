"""`fedstride node`: a SuperNode whose processes for messages are forks of one that has imported everything."""

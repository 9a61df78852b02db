"""The processes of messages: started, confined, watched and ended by the node."""

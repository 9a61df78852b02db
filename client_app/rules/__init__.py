"""What sets the rates of local training, one file a rule."""

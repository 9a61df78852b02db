"""The client rules, which set the learning rates of local training, one module for each."""

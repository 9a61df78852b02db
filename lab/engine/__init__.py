"""What runs on this machine: the two apps in this process, FedAvg beside them, sweeps, Ctrl-C, the live view."""

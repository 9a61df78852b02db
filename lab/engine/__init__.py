"""Runs in process: both apps in this process, the FedAvg comparison run, sweeps, Ctrl-C and the live view."""

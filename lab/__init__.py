"""The command `fedstride` and its parts: runs, deployment files, results, plots and reports."""

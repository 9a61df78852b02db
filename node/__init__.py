"""What a site runs: `fedstride node`, its log and its state."""

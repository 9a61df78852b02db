"""What a site runs: `fedstride node`, its log and its state. It knows nothing of servers and desks."""

"""What a deployment on real machines needs before it starts: certificates, keys, data handed out to nodes."""

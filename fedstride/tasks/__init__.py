"""What is learned: data, who holds what of it, and networks, each looked up by name.

Knows readers, partitions and models; does not know training, server or client.
"""

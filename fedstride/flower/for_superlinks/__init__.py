"""What a SuperLink needs of Flower: its server, its ServerApps, and the replies that nodes push."""

"""How an example is written and prepared: columns, images, sound, text."""

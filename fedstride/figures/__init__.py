"""Figures of models, such as accuracy: what each is, how it adds over clients, and its interval."""

"""Sends notifications to robots of chats, and by Apprise, from a queue on disk; records the answers."""

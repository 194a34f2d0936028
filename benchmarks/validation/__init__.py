"""How far the timing models are from independent measurements and published figures."""

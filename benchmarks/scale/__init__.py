"""How time and memory grow with the size of what is planned: points, fits, pictures, stated sizes."""

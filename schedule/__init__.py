"""What runs when: task graphs, their execution on devices, and how far an order is from the best."""

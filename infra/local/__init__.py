"""A Pulumi provider of our own for one machine: runtime, image, code, and supervised services as real resources."""
